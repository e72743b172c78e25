package admin

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/quotad/quotad"
)

// Names that others have stumbled over: each is stored as it is and can be used,
// or is refused as a fault of its field. None is an error of ours.
func TestOddNames(t *testing.T) {
	names := []string{
		`=HYPERLINK("http://x","y")`, "+1+1", "@SUM(1)", "<img src=x onerror=alert(1)>", `"><script>`, "javascript:alert(1)",
		strings.Repeat("a", 63), strings.Repeat("a", 64), strings.Repeat("a", 255), strings.Repeat("a", 256), strings.Repeat("a", 10_000),
		strings.Repeat("😀", 63), strings.Repeat("😀", 64), "e\u0301", "é", "مرحبا", "\u202eabc", "日本語", "a\x00b", "\x00", " a", "a ", "a\nb", "a\tb", "a\u2028b", "a\u200bb",
		"A", "a", "Ä", "a|b", "a/b", "a__1", "a%3A", "{a}", "a:b", "..", ".a", "a.", "a-b_c.d", "", "*", "base", "default", "null", "\ufffd",
	}
	each(t, Options{}, func(t *testing.T, w *world) {
		w.aTier("ok")
		w.aTenant("acme")
		exists := map[string]bool{}
		for _, name := range names {
			quoted, err := json.Marshal(name)
			if err != nil {
				t.Fatal(err)
			}
			q := string(quoted)
			stored := func(collection, body, field string) {
				t.Helper()
				got := w.call("POST", collection, body)
				switch got.status {
				case http.StatusCreated:
					shown := fields(t, got.body)
					if secret, ok := shown["secret"].(string); ok {
						w.remembers(secret)
					}
					if shown[field] != name {
						t.Errorf("%q is stored as %q", name, shown[field])
					}
					read := fields(t, w.call("GET", got.header.Get("Location"), nil).is(200).body)
					if read[field] != name {
						t.Errorf("%q is read as %q", name, read[field])
					}
				case http.StatusUnprocessableEntity:
					if !got.refuses(quotad.CodeInvalidFields).Fields.Has(field) {
						t.Errorf("%q: got %s", name, got.body)
					}
				case http.StatusConflict:
					if !exists[name] && name != "default" {
						t.Errorf("%q: got %s", name, got.body)
					}
				default:
					t.Errorf("%q: got %d %s", name, got.status, got.body)
				}
			}
			stored("/admin/v1/tiers", `{"name":`+q+`,"rate_limit":1,"rate_window":1}`, "name")
			stored("/admin/v1/tiers", `{"name":"tier","description":`+q+`,"rate_limit":1,"rate_window":1}`, "description")
			w.call("DELETE", "/admin/v1/tiers/tier", nil)
			stored("/admin/v1/tenants", `{"id":`+q+`,"name":"x","tier":"ok"}`, "id")
			stored("/admin/v1/tenants", `{"id":"tenant","name":`+q+`,"tier":"ok"}`, "name")
			w.call("DELETE", "/admin/v1/tenants/tenant", nil)
			stored("/admin/v1/route-groups", `{"name":`+q+`}`, "name")
			stored("/admin/v1/tenants/acme/keys", `{"name":`+q+`}`, "name")
			stored("/admin/v1/admin-tokens", `{"name":`+q+`,"role":"viewer"}`, "name")
			for _, collection := range []string{"tiers", "tenants", "route-groups", "keys", "admin-tokens"} {
				if got := w.call("GET", "/admin/v1/"+collection+"/"+url.PathEscape(name), nil); got.status != 200 && got.status != 404 {
					t.Errorf("%s %q: got %d", collection, name, got.status)
				}
			}
			for _, field := range []string{"tier", "time_zone", "status"} {
				got := w.call("PATCH", "/admin/v1/tenants/acme", `{"`+field+`":`+q+`}`)
				if got.status != 200 && !got.refuses(quotad.CodeInvalidFields).Fields.Has(field) {
					t.Errorf("%s %q: %s", field, name, got.body)
				}
			}
			got := w.call("PATCH", "/admin/v1/tenants/acme", `{"metadata":{"x":`+q+`}}`)
			if got.status == 200 && fields(t, got.body)["metadata"].(map[string]any)["x"] != name {
				t.Errorf("metadata %q: %s", name, got.body)
			} else if got.status != 200 {
				got.refuses(quotad.CodeInvalidFields)
			}
		}
		// A lone surrogate has no UTF-8.
		for collection, body := range map[string]string{
			"tiers": `{"name":"\ud800","rate_limit":1,"rate_window":1}`, "tenants": `{"id":"x","name":"a\udfffb","tier":"ok"}`,
			"admin-tokens": `{"name":"\ud800","role":"viewer"}`,
		} {
			w.call("POST", "/admin/v1/"+collection, body).refuses(quotad.CodeInvalidFields)
		}
		for line := range strings.Lines(w.logs.String()) {
			if !json.Valid([]byte(line)) {
				t.Errorf("a log line is no JSON: %s", line)
			}
		}
	})
}
