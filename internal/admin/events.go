package admin

import (
	"context"
	"slices"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/database"
	"github.com/quotad/quotad/internal/events"
)

func (s *Server) listEvents(c echo.Context) error {
	filter, err := eventFilter(c)
	if err != nil {
		return err
	}
	return list(c, func(ctx context.Context, page database.Page) ([]quotad.Event, string, error) {
		return s.events.Events(ctx, filter, page)
	})
}

// resources are what events can be of.
var resources = []quotad.Resource{
	quotad.ResourceTier, quotad.ResourceTenant, quotad.ResourceRouteGroup, quotad.ResourceKey, quotad.ResourceAdminToken,
}

// eventFilter reads which events are asked for. What no event can have is
// refused: an empty list would read as "nothing was done".
func eventFilter(c echo.Context) (f events.Filter, err error) {
	query := c.QueryParams()
	f = events.Filter{
		Resource: quotad.Resource(query.Get("resource")), Target: query.Get("target"), Tenant: query.Get("tenant"),
		Action: query.Get("action"), ActorID: query.Get("actor"),
	}
	for name, text := range map[string]string{"target": f.Target, "tenant": f.Tenant, "actor": f.ActorID, "action": f.Action} {
		if query.Has(name) && !addressable(text) {
			return f, invalidQuery(name, "can be no name or id")
		}
	}
	if query.Has("resource") && !slices.Contains(resources, f.Resource) {
		return f, invalidQuery("resource", "must be tier, tenant, route_group, key or admin_token")
	}
	if f.Since, err = instant(c, "since"); err != nil {
		return f, err
	}
	f.Until, err = instant(c, "until")
	return f, err
}

// instant is a query parameter that is a time; the zero time where it is left out.
func instant(c echo.Context, name string) (time.Time, error) {
	if !c.QueryParams().Has(name) {
		return time.Time{}, nil
	}
	at, err := time.Parse(time.RFC3339Nano, c.QueryParam(name))
	if err != nil || at.UTC().Year() < 1970 || at.UTC().Year() > 9999 {
		return at, invalidQuery(name, "must be a time in RFC 3339 since 1970, such as 2030-01-31T12:00:00Z")
	}
	return at, nil
}

func invalidQuery(name, fault string) error {
	return quotad.NewError(quotad.CodeInvalidRequest, name+" "+fault)
}
