package admin

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quotad/quotad"
)

// events are those that fit a query, the newest first.
func (w *world) events(query string) []quotad.Event {
	w.t.Helper()
	return as[page[quotad.Event]](w.call("GET", "/admin/v1/audit-events?limit=500"+query, nil).is(200)).Items
}

func TestEverySuccessLeavesOneEvent(t *testing.T) {
	each(t, Options{}, func(t *testing.T, w *world) {
		var owner string
		for _, token := range as[page[quotad.AdminToken]](w.call("GET", "/admin/v1/admin-tokens", nil).is(200)).Items {
			if token.Role == quotad.RoleOwner {
				owner = token.ID
			}
		}
		count := len(w.events(""))
		requests := 0
		// writes wants one event of the call; before and after as the API shows the resource.
		writes := func(action, method, path, body string) answer {
			t.Helper()
			requests++
			id := fmt.Sprintf("request-%d", requests)
			var before map[string]any
			if resource, rotates := strings.CutSuffix(path, "/rotate"); rotates || method != "POST" {
				before = fields(t, w.call("GET", resource, nil).is(200).body)
			}
			var content any
			if body != "" {
				content = body
			}
			got := w.call(method, path, content, with{headerRequestID, id})
			if got.status >= 300 {
				t.Fatalf("%s %s: %d %s", method, path, got.status, got.body)
			}
			after := map[string]any(nil)
			if got.status != 204 {
				after = fields(t, got.body)
				if secret, ok := after["secret"].(string); ok {
					w.remembers(secret)
					delete(after, "secret")
				}
			} else if again := w.call("GET", path, nil); again.status == 200 { // revoked, not gone
				after = fields(t, again.body)
			}
			all := w.events("")
			count++
			if len(all) != count {
				t.Fatalf("%s: there are %d events, want %d", action, len(all), count)
			}
			e := all[0]
			want := quotad.Actor{Type: "admin_token", ID: owner, Name: "the owner", RequestID: id, Address: "127.0.0.1"}
			if diff := cmp.Diff(want, e.Actor); diff != "" {
				t.Errorf("%s: %s", action, diff)
			}
			if e.Action != action || !e.At.Equal(w.clock.Now()) || e.Target == "" {
				t.Errorf("%s: got %+v", action, e)
			}
			same(t, action+": before", before, e.Before)
			same(t, action+": after", after, e.After)
			w.clock.Advance(time.Second)
			return got
		}
		writes("tier.created", "POST", "/admin/v1/tiers", `{"name":"pro","rate_limit":null,"rate_window":60,"limits":[{"name":"l","rate_limit":1,"rate_window":1}]}`)
		writes("tier.updated", "PATCH", "/admin/v1/tiers/pro", `{"rate_limit":5}`)
		writes("route_group.created", "POST", "/admin/v1/route-groups", `{"name":"g","match":["/g"]}`)
		writes("route_group.updated", "PATCH", "/admin/v1/route-groups/g", `{"cost":5}`)
		writes("tenant.created", "POST", "/admin/v1/tenants", `{"id":"acme","name":"A","tier":"pro","metadata":{"n":12345678901234567890}}`)
		writes("tenant.updated", "PATCH", "/admin/v1/tenants/acme", `{"status":"suspended"}`)
		key := as[quotad.Key](writes("key.created", "POST", "/admin/v1/tenants/acme/keys", `{"route_groups":["g"]}`))
		path := "/admin/v1/keys/" + key.ID
		writes("key.updated", "PATCH", path, `{"status":"disabled","route_groups":null}`)
		as[quotad.Key](writes("key.rotated", "POST", path+"/rotate", `{"grace_seconds":60}`))
		writes("key.revoked", "DELETE", path, "")
		writes("route_group.deleted", "DELETE", "/admin/v1/route-groups/g", "")
		token := as[quotad.AdminToken](writes("admin_token.created", "POST", "/admin/v1/admin-tokens", `{"name":"x","role":"service"}`))
		writes("admin_token.deleted", "DELETE", "/admin/v1/admin-tokens/"+token.ID, "")

		// What changes nothing, or fails, leaves none.
		for _, c := range []struct {
			method, path, body string
			status             int
		}{
			{"PATCH", "/admin/v1/tiers/pro", `{"rate_limit":5}`, 200},
			{"PATCH", "/admin/v1/tiers/pro", `{"rate_limit":-5}`, 422},
			{"PATCH", "/admin/v1/tiers/none", `{"rate_limit":5}`, 404},
			{"POST", "/admin/v1/tiers", `{"name":"pro","rate_limit":1,"rate_window":1}`, 409},
			{"DELETE", "/admin/v1/tiers/pro", "", 409},
			{"DELETE", path, "", 204},
			{"PATCH", path, `{"name":"x"}`, 409},
			{"POST", path + "/rotate", `{}`, 409},
			{"DELETE", "/admin/v1/admin-tokens/" + owner, "", 409},
			{"POST", "/admin/v1/tenants/none/keys", `{}`, 404},
			{"POST", "/admin/v1/tenants", `{"id":"b","name":"B","tier":"none"}`, 422},
		} {
			var content any
			if c.body != "" {
				content = c.body
			}
			w.call(c.method, c.path, content).is(c.status)
			if got := len(w.events("")); got != count {
				t.Fatalf("%s %s %s left an event", c.method, c.path, c.body)
			}
		}
		writes("tenant.deleted", "DELETE", "/admin/v1/tenants/acme", "")
		writes("tier.deleted", "DELETE", "/admin/v1/tiers/pro", "")
	})
}

// same holds what an event says of a resource against what the API showed.
func same(t *testing.T, what string, want map[string]any, raw []byte) {
	t.Helper()
	if want == nil {
		if string(raw) != "null" {
			t.Errorf("%s: got %s", what, raw)
		}
		return
	}
	if diff := cmp.Diff(want, fields(t, raw)); diff != "" {
		t.Errorf("%s: %s", what, diff)
	}
}

func TestEventsAreFiltered(t *testing.T) {
	each(t, Options{}, func(t *testing.T, w *world) {
		w.clock.Advance(time.Second)
		w.aTenant("acme")
		w.clock.Advance(1500 * time.Millisecond)
		w.aTenant("other")
		w.clock.Advance(time.Second)
		key := w.aKey("acme")
		w.call("PATCH", "/admin/v1/tiers/tier-of-acme", `{"rate_limit":7}`, w.as(quotad.RoleOperator)).is(200)
		operator := w.events("&resource=tier")[0].Actor.ID
		at := func(d time.Duration) string {
			return url.QueryEscape(time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC).Add(d).Format(time.RFC3339Nano))
		}
		for query, want := range map[string][]string{
			"&resource=tenant":             {"other", "acme"},
			"&resource=tier":               {"tier-of-acme", "tier-of-other", "tier-of-acme"},
			"&tenant=acme":                 {key.ID, "acme"},
			"&tenant=acme&resource=tenant": {"acme"},
			"&target=tier-of-other":        {"tier-of-other"},
			"&action=tier.updated":         {"tier-of-acme"},
			"&actor=" + operator:           {"tier-of-acme"},
			"&resource=tier&until=" + at(2500*time.Millisecond):                           {"tier-of-acme"},
			"&resource=tier&since=" + at(2500*time.Millisecond):                           {"tier-of-acme", "tier-of-other"},
			"&since=" + at(2500*time.Millisecond) + "&until=" + at(3500*time.Millisecond): {"other", "tier-of-other"},
			"&resource=tier&since=" + at(2501*time.Millisecond):                           {"tier-of-acme"},
			"&since=2026-11-30T14:00:03.5%2B02:00":                                        {"tier-of-acme", key.ID},
			"&tenant=none":                                                                nil,
		} {
			var got []string
			for _, e := range w.events(query) {
				got = append(got, e.Target)
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s: got %v, want %v", query, got, want)
			}
		}
		for _, query := range []string{
			"resource=plan", "resource=", "tenant=", "tenant=a%20b", "target=%00", "actor=%F0%9F%98%80", "since=yesterday", "since=", "until=2026-11-30", "since=0000-01-01T00:00:00Z",
		} {
			w.call("GET", "/admin/v1/audit-events?"+query, nil).refuses(quotad.CodeInvalidRequest)
		}
	})
}
