package admin

import (
	"net/http"
	"testing"

	"github.com/quotad/quotad"
)

func TestRouteGroups(t *testing.T) {
	each(t, Options{}, func(t *testing.T, w *world) {
		limit := func(scope string, rate any) map[string]any {
			return map[string]any{
				"name": "l", "route_group": "exports", "scope": scope, "algorithm": "fixed_window",
				"rate_limit": rate, "rate_window": n("60"), "burst": nil, "max_delay_ms": n("0"), "shadow": false,
			}
		}
		lifecycle{
			collection: "/admin/v1/route-groups",
			id:         byName,
			full: `{"name":"exports","match":["POST /v1/exports","GET /v1/exports/{id...}"],"cost":0,"auth":"none","limits":[
				{"name":"l","route_group":"exports","scope":"ip","algorithm":"fixed_window","rate_limit":5,"rate_window":60,"burst":null,"max_delay_ms":0,"shadow":false}]}`,
			readOnly: []string{"version", "created_at", "updated_at"},
			patches: []step{
				{`{"cost":5}`, map[string]any{"cost": n("5")}},
				{`{"cost":null}`, map[string]any{"cost": n("1")}},
				{`{"auth":null}`, map[string]any{"auth": "key"}},
				{`{"limits":[{"name":"l","scope":"tenant","algorithm":"fixed_window","rate_limit":null,"rate_window":60}]}`,
					map[string]any{"limits": []any{limit("tenant", nil)}}},
				{`{"match":["/v1/Exports/"]}`, map[string]any{"match": []any{"/v1/Exports/"}}},
				{`{"limits":[]}`, map[string]any{"limits": []any{}}},
				{`{"match":null}`, map[string]any{"match": []any{}}},
				{`{"auth":"none"}`, map[string]any{"auth": "none"}},
			},
		}.run(t, w)
		w.call("DELETE", "/admin/v1/route-groups/exports", nil).is(http.StatusNoContent)
	})
}

func TestRouteGroupsThatCanNotBe(t *testing.T) {
	each(t, Options{}, func(t *testing.T, w *world) {
		w.call("POST", "/admin/v1/route-groups", `{"name":"a","match":["GET /v1/x"]}`).is(201)
		for _, body := range []string{
			`{"name":"b","match":["GET /v1/x"]}`, `{"name":"b","match":["GET /V1/X"]}`, `{"name":"b","match":["nonsense"]}`,
			`{"name":"b","match":["/a","/a"]}`, `{"name":"b","match":["example.com/a"]}`, `{"name":"b","match":[""]}`,
		} {
			p := w.call("POST", "/admin/v1/route-groups", body).refuses(quotad.CodeInvalidFields)
			if len(p.Fields) != 1 {
				t.Errorf("%s: %v", body, p.Fields)
			}
		}
		w.call("PATCH", "/admin/v1/route-groups/default", `{"match":["/"]}`).refuses(quotad.CodeInvalidFields)
		w.call("DELETE", "/admin/v1/route-groups/default", nil).refuses(quotad.CodeInUse)
		w.call("POST", "/admin/v1/tiers", `{"name":"t","rate_limit":1,"rate_window":1,"limits":[{"name":"a","route_group":"a","rate_limit":1,"rate_window":1}]}`).is(201)
		w.call("DELETE", "/admin/v1/route-groups/a", nil).refuses(quotad.CodeInUse)
		p := w.call("POST", "/admin/v1/tiers", `{"name":"u","rate_limit":1,"rate_window":0,"limits":[{"name":"a","route_group":"gone","rate_limit":1,"rate_window":1}]}`).
			refuses(quotad.CodeInvalidFields)
		if len(p.Fields) != 2 || !p.Fields.Has("limits[0].route_group") || !p.Fields.Has("rate_window") {
			t.Errorf("got %v", p.Fields)
		}
	})
}
