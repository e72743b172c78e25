package admin

import (
	"net/http"
	"testing"

	"github.com/quotad/quotad"
)

// aTier creates a tier that tenants can be in.
func (w *world) aTier(name string) {
	w.t.Helper()
	w.call("POST", "/admin/v1/tiers", `{"name":"`+name+`","rate_limit":10,"rate_window":60}`).is(201)
}

// aTenant creates a tenant in a tier of its own.
func (w *world) aTenant(id string) {
	w.t.Helper()
	w.aTier("tier-of-" + id)
	w.call("POST", "/admin/v1/tenants", `{"id":"`+id+`","name":"`+id+`","tier":"tier-of-`+id+`"}`).is(201)
}

func TestTenants(t *testing.T) {
	each(t, Options{}, func(t *testing.T, w *world) {
		w.aTier("pro")
		w.aTier("free")
		lifecycle{
			collection: "/admin/v1/tenants",
			id:         func(shown map[string]any) string { return shown["id"].(string) },
			full: `{"id":"acme","name":"=HYPERLINK(\"http://x\",\"y\") <img src=x>","tier":"pro","status":"suspended","time_zone":"Asia/Shanghai",
				"billing_anchor_day":31,"metadata":{"n":12345678901234567890,"list":[null,{"a":null},1.50],"s":"<é>"}}`,
			readOnly: []string{"version", "created_at", "updated_at"},
			patches: []step{
				{`{"name":"Acme"}`, map[string]any{"name": "Acme"}},
				{`{"tier":"free"}`, map[string]any{"tier": "free"}},
				{`{"status":"active"}`, map[string]any{"status": "active"}},
				{`{"status":"suspended"}`, map[string]any{"status": "suspended"}},
				{`{"status":null}`, map[string]any{"status": "active"}},
				{`{"time_zone":null}`, map[string]any{"time_zone": "UTC"}},
				{`{"billing_anchor_day":15}`, map[string]any{"billing_anchor_day": n("15")}},
				{`{"billing_anchor_day":null}`, map[string]any{"billing_anchor_day": n("1")}},
				{`{"metadata":{"n":null,"m":{"x":1}}}`, map[string]any{"metadata": map[string]any{
					"list": []any{nil, map[string]any{"a": nil}, n("1.50")}, "s": "<é>", "m": map[string]any{"x": n("1")},
				}}},
				{`{"metadata":null}`, map[string]any{"metadata": map[string]any{}}},
			},
		}.run(t, w)

		w.call("PATCH", "/admin/v1/tenants/acme", `{"id":"acme","tier":"pro"}`).is(200)
		p := w.call("PATCH", "/admin/v1/tenants/acme", `{"id":"other","tier":"gone"}`).refuses(quotad.CodeInvalidFields)
		if len(p.Fields) != 2 || !p.Fields.Has("id") || !p.Fields.Has("tier") {
			t.Errorf("got %v", p.Fields)
		}
		w.call("DELETE", "/admin/v1/tenants/acme", nil).is(http.StatusNoContent)
		w.call("DELETE", "/admin/v1/tenants/acme", nil).refuses(quotad.CodeNotFound)
	})
}

func TestATenantWithKeysStays(t *testing.T) {
	each(t, Options{}, func(t *testing.T, w *world) {
		w.aTenant("acme")
		key := w.aKey("acme")
		w.call("DELETE", "/admin/v1/tenants/acme", nil).refuses(quotad.CodeInUse)
		w.call("DELETE", "/admin/v1/keys/"+key.ID, nil).is(http.StatusNoContent)
		w.call("DELETE", "/admin/v1/tenants/acme", nil).is(http.StatusNoContent)
		w.call("GET", "/admin/v1/keys/"+key.ID, nil).refuses(quotad.CodeNotFound)
	})
}
