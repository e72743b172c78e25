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
	tiers, tenants, groups, keys, tokens := s.tierResource(), s.tenantResource(), s.routeGroupResource(), s.keyResource(), s.adminTokenResource()
	paged := []string{"limit", "cursor"}
	events := append([]string{"resource", "target", "tenant", "action", "actor", "since", "until"}, paged...)
	return []route{
		{post, "/tiers", write, nil, tiers.create},
		{get, "/tiers", read, paged, tiers.list},
		{get, "/tiers/:name", read, nil, tiers.read},
		{patch, "/tiers/:name", write, nil, tiers.update},
		{del, "/tiers/:name", write, nil, tiers.delete},

		{post, "/tenants", write, nil, tenants.create},
		{get, "/tenants", read, paged, tenants.list},
		{get, "/tenants/:name", read, nil, tenants.read},
		{patch, "/tenants/:name", write, nil, tenants.update},
		{del, "/tenants/:name", write, nil, tenants.delete},

		{post, "/route-groups", write, nil, groups.create},
		{get, "/route-groups", read, paged, groups.list},
		{get, "/route-groups/:name", read, nil, groups.read},
		{patch, "/route-groups/:name", write, nil, groups.update},
		{del, "/route-groups/:name", write, nil, groups.delete},

		{post, "/tenants/:name/keys", write, nil, s.createKey},
		{get, "/tenants/:name/keys", read, paged, s.listKeys},
		{get, "/keys/:id", read, nil, keys.read},
		{patch, "/keys/:id", write, nil, keys.update},
		{del, "/keys/:id", write, nil, keys.delete}, // revokes
		{post, "/keys/:id/rotate", write, nil, s.rotateKey},

		{get, "/audit-events", read, events, s.listEvents},

		{post, "/admin-tokens", own, nil, tokens.create},
		{get, "/admin-tokens", own, paged, tokens.list},
		{get, "/admin-tokens/:id", own, nil, tokens.read},
		{del, "/admin-tokens/:id", own, nil, tokens.delete},
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
