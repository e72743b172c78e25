package admin

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/quotad/quotad"
)

func groupTag(r quotad.RouteGroup) tag { return tag{created: r.CreatedAt, version: r.Version} }

func (s *Server) createRouteGroup(c echo.Context) error {
	spec, err := decode[quotad.RouteGroupSpec](c, quotad.RouteGroup{})
	if err != nil {
		return err
	}
	group, err := s.tiers.CreateRouteGroup(c.Request().Context(), actorOf(c), spec)
	if err != nil {
		return err
	}
	return created(c, "/route-groups/"+group.Name, groupTag(group), group)
}

func (s *Server) listRouteGroups(c echo.Context) error {
	page, err := pageOf(c)
	if err != nil {
		return err
	}
	items, next, err := s.tiers.RouteGroups(c.Request().Context(), page)
	if err != nil {
		return err
	}
	return list(c, items, next)
}

func (s *Server) readRouteGroup(c echo.Context) error {
	name, err := named(c, "name")
	if err != nil {
		return err
	}
	group, err := s.tiers.RouteGroup(c.Request().Context(), name)
	if err != nil {
		return err
	}
	return show(c, groupTag(group), group)
}

func (s *Server) updateRouteGroup(c echo.Context) error {
	name, err := named(c, "name")
	if err != nil {
		return err
	}
	patch, err := decodePatch[quotad.RouteGroupSpec](c, quotad.RouteGroup{})
	if err != nil {
		return err
	}
	version, err := s.expectedRouteGroup(c, name)
	if err != nil {
		return err
	}
	group, err := s.tiers.UpdateRouteGroup(c.Request().Context(), actorOf(c), name, version, patch.apply)
	if err != nil {
		return err
	}
	return updated(c, groupTag(group), group)
}

func (s *Server) deleteRouteGroup(c echo.Context) error {
	name, err := named(c, "name")
	if err != nil {
		return err
	}
	version, err := s.expectedRouteGroup(c, name)
	if err != nil {
		return err
	}
	if err := s.tiers.DeleteRouteGroup(c.Request().Context(), actorOf(c), name, version); err != nil {
		return err
	}
	return c.NoContent(http.StatusNoContent)
}

// expectedRouteGroup is the version that If-Match asks for.
func (s *Server) expectedRouteGroup(c echo.Context, name string) (*int64, error) {
	return expected(c.Request().Header, func() (tag, error) {
		group, err := s.tiers.RouteGroup(c.Request().Context(), name)
		return groupTag(group), err
	})
}
