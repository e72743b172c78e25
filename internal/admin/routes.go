package admin

import (
	"net/http"
	"net/url"
	"slices"

	"github.com/labstack/echo/v4"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/secret"
)

// prefix stands before every path of the admin API.
const prefix = "/admin/v1"

// A route is one line of the admin API: the one place that says which role may
// call it, and which query parameters it reads.
type route struct {
	method string
	path   string
	// least is the least role that may call it.
	least quotad.Role
	// query are the query parameters that it reads; others are refused.
	query  []string
	handle echo.HandlerFunc
}

// routes are all routes under prefix.
func (s *Server) routes() []route {
	const (
		get, post, patch, del = http.MethodGet, http.MethodPost, http.MethodPatch, http.MethodDelete
		read, write, own      = quotad.RoleViewer, quotad.RoleOperator, quotad.RoleOwner
	)
	paged := []string{"limit", "cursor"}
	events := append([]string{"resource", "target", "tenant", "action", "actor", "since", "until"}, paged...)
	return []route{
		{post, "/tiers", write, nil, s.createTier},
		{get, "/tiers", read, paged, s.listTiers},
		{get, "/tiers/:name", read, nil, s.readTier},
		{patch, "/tiers/:name", write, nil, s.updateTier},
		{del, "/tiers/:name", write, nil, s.deleteTier},

		{post, "/tenants", write, nil, s.createTenant},
		{get, "/tenants", read, paged, s.listTenants},
		{get, "/tenants/:name", read, nil, s.readTenant},
		{patch, "/tenants/:name", write, nil, s.updateTenant},
		{del, "/tenants/:name", write, nil, s.deleteTenant},

		{post, "/route-groups", write, nil, s.createRouteGroup},
		{get, "/route-groups", read, paged, s.listRouteGroups},
		{get, "/route-groups/:name", read, nil, s.readRouteGroup},
		{patch, "/route-groups/:name", write, nil, s.updateRouteGroup},
		{del, "/route-groups/:name", write, nil, s.deleteRouteGroup},

		{post, "/tenants/:name/keys", write, nil, s.createKey},
		{get, "/tenants/:name/keys", read, paged, s.listKeys},
		{get, "/keys/:id", read, nil, s.readKey},
		{patch, "/keys/:id", write, nil, s.updateKey},
		{del, "/keys/:id", write, nil, s.revokeKey},
		{post, "/keys/:id/rotate", write, nil, s.rotateKey},

		{get, "/audit-events", read, events, s.listEvents},

		{post, "/admin-tokens", own, nil, s.createAdminToken},
		{get, "/admin-tokens", own, paged, s.listAdminTokens},
		{get, "/admin-tokens/:id", own, nil, s.readAdminToken},
		{del, "/admin-tokens/:id", own, nil, s.deleteAdminToken},
	}
}

// mount puts all routes of the listener on the router.
func (s *Server) mount(e *echo.Echo) {
	for _, r := range s.routes() {
		chain := []echo.MiddlewareFunc{s.authorize(r.least), onlyQuery(r.query)}
		if r.method == http.MethodPost {
			chain = append(chain, s.replay)
		}
		e.Add(r.method, prefix+r.path, r.handle, chain...)
		if r.method == http.MethodGet {
			e.Add(http.MethodHead, prefix+r.path, r.handle, chain...)
		}
	}
	open := map[string]http.Handler{
		"/openapi.yaml": http.HandlerFunc(serveOpenAPI),
		"/healthz":      s.opts.Health,
		"/readyz":       s.opts.Ready,
		"/metrics":      s.opts.Metrics,
	}
	for path, handler := range open {
		if handler != nil {
			e.Match([]string{http.MethodGet, http.MethodHead}, path, echo.WrapHandler(handler))
		}
	}
}

// onlyQuery refuses query parameters that the route does not read, ones that are
// given twice, and a query that can't be read, parts of which net/url would drop
// without a word: a filter that is misspelt must not answer as if it held.
func onlyQuery(names []string) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			if _, err := url.ParseQuery(c.Request().URL.RawQuery); err != nil {
				return quotad.NewError(quotad.CodeInvalidRequest, "the query can't be read")
			}
			for name, values := range c.QueryParams() {
				if !slices.Contains(names, name) {
					return invalidQuery(member("", secret.Redact(name)), "is not a query parameter of this resource")
				}
				if len(values) > 1 {
					return invalidQuery(name, "is given twice")
				}
			}
			return next(c)
		}
	}
}
