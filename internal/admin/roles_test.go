package admin

import (
	"net/http"
	"strings"
	"testing"

	"github.com/quotad/quotad"
)

// may says in plain words who may do what.
func may(role quotad.Role, method, path string) bool {
	switch role {
	case quotad.RoleOwner:
		return true
	case quotad.RoleOperator:
		return !strings.HasPrefix(path, "/admin-tokens")
	case quotad.RoleViewer:
		return method == http.MethodGet && !strings.HasPrefix(path, "/admin-tokens")
	default:
		return false
	}
}

func TestEveryRouteAsksForItsRole(t *testing.T) {
	each(t, Options{FailedLogins: 1000}, func(t *testing.T, w *world) {
		routes := new(Server).routes()
		if len(routes) != 26 {
			t.Errorf("there are %d routes", len(routes))
		}
		for _, r := range routes {
			path := prefix + strings.NewReplacer(":name", "none", ":id", "none").Replace(r.path)
			methods := []string{r.method}
			if r.method == http.MethodGet {
				methods = append(methods, http.MethodHead)
			}
			for _, method := range methods {
				var body any
				if method == http.MethodPost || method == http.MethodPatch {
					body = "{}"
				}
				for _, role := range quotad.Roles {
					got := w.call(method, path, body, w.as(role))
					if allowed := got.status != 401 && got.status != 403; allowed != may(role, r.method, r.path) {
						t.Errorf("%s %s as %s: %d %s", method, path, role, got.status, got.body)
					}
					if got.status == 403 && method != http.MethodHead {
						got.refuses(quotad.CodeForbidden)
					}
				}
				for _, credential := range []string{"", "Bearer", "Bearer nonsense", "Basic " + w.tokens[quotad.RoleOwner], w.tokens[quotad.RoleOwner]} {
					got := w.call(method, path, body, with{"Authorization", credential}).is(401)
					if got.header.Get("WWW-Authenticate") == "" {
						t.Error("no WWW-Authenticate")
					}
					if method != http.MethodHead {
						got.refuses(quotad.CodeUnauthorized)
					}
				}
			}
		}
		// Nothing was written by any of that.
		if events := as[page[quotad.Event]](w.call("GET", "/admin/v1/audit-events", nil).is(200)); len(events.Items) != len(quotad.Roles) {
			t.Errorf("there are %d events", len(events.Items))
		}
	})
}
