package admin

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quotad/quotad"
)

// aKey creates a key of a tenant and remembers its secret.
func (w *world) aKey(tenant string) quotad.Key {
	w.t.Helper()
	key := as[quotad.Key](w.call("POST", "/admin/v1/tenants/"+tenant+"/keys", `{}`).is(201))
	w.remembers(key.Secret)
	key.Secret = ""
	return key
}

func TestKeys(t *testing.T) {
	each(t, Options{}, func(t *testing.T, w *world) {
		w.aTenant("acme")
		w.call("POST", "/admin/v1/route-groups", `{"name":"exports"}`).is(201)
		lifecycle{
			collection: "/admin/v1/tenants/acme/keys",
			path:       "/admin/v1/keys",
			id:         func(shown map[string]any) string { return shown["id"].(string) },
			full: `{"name":"+1+1 <b>","rate_limit":0,"rate_window":60,"route_groups":["exports","default"],
				"allowed_cidrs":["10.0.0.0/8","2001:db8::/32"],"expires_at":"2027-01-31T12:00:00+02:00","status":"disabled"}`,
			shown:    map[string]any{"expires_at": "2027-01-31T10:00:00Z"},
			readOnly: []string{"id", "tenant", "hint", "secret", "version", "created_at", "updated_at", "last_used_at"},
			patches: []step{
				{`{"name":"ci"}`, map[string]any{"name": "ci"}},
				{`{"status":"active"}`, map[string]any{"status": "active"}},
				{`{"rate_limit":5}`, map[string]any{"rate_limit": n("5")}},
				{`{"rate_limit":null,"rate_window":null}`, map[string]any{"rate_limit": nil, "rate_window": nil}},
				{`{"route_groups":[]}`, map[string]any{"route_groups": []any{}}},
				{`{"route_groups":null}`, map[string]any{"route_groups": nil}},
				{`{"allowed_cidrs":null}`, map[string]any{"allowed_cidrs": []any{}}},
				{`{"expires_at":null}`, map[string]any{"expires_at": nil}},
				{`{"status":"disabled"}`, map[string]any{"status": "disabled"}},
				{`{"name":null}`, map[string]any{"name": ""}},
			},
		}.run(t, w)
	})
}

func TestAKeyShowsItsSecretOnce(t *testing.T) {
	each(t, Options{}, func(t *testing.T, w *world) {
		w.aTenant("acme")
		key := as[quotad.Key](w.call("POST", "/admin/v1/tenants/acme/keys", `{"name":"ci"}`).is(201))
		if !strings.HasPrefix(key.Secret, "qk_"+key.ID+"_") {
			t.Errorf("the secret does not look like one")
		}
		if want := "qk_…" + key.Secret[len(key.Secret)-4:]; key.Hint != want {
			t.Errorf("the hint is %q, want %q", key.Hint, want)
		}
		if key.Status != quotad.KeyActive || key.Tenant != "acme" || key.RouteGroups != nil || key.LastUsedAt != nil {
			t.Errorf("got %+v", key)
		}
		w.remembers(key.Secret)

		rotated := as[quotad.Key](w.call("POST", "/admin/v1/keys/"+key.ID+"/rotate", `{"grace_seconds":3600}`).is(200))
		if rotated.ID != key.ID || rotated.Secret == key.Secret || rotated.Version != key.Version+1 {
			t.Errorf("got %+v", rotated)
		}
		w.remembers(rotated.Secret)
		stored, err := w.stores.Keys.Find(t.Context(), []string{key.ID})
		if err != nil {
			t.Fatal(err)
		}
		found := stored[key.ID]
		for secret, until := range map[string]time.Duration{key.Secret: time.Hour, rotated.Secret: 1000 * time.Hour} {
			if !found.Admits(secret, w.clock.Now().Add(until-time.Second)) {
				t.Error("a secret does not work for as long as it should")
			}
			if until == time.Hour && found.Admits(secret, w.clock.Now().Add(until)) {
				t.Error("the old secret works for longer than the grace")
			}
		}
		got := w.call("GET", "/admin/v1/keys/"+key.ID, nil).is(200)
		if shown := as[quotad.Key](got); shown.Hint != rotated.Hint {
			t.Errorf("the hint is %q, want the new one's", shown.Hint)
		}
		w.call("GET", "/admin/v1/tenants/acme/keys", nil).is(200)
		w.call("PATCH", "/admin/v1/keys/"+key.ID, `{"name":"x"}`).is(200)
		w.call("GET", "/admin/v1/audit-events", nil).is(200)
		if logs := w.logs.String(); strings.Contains(logs, key.Secret) || strings.Contains(logs, rotated.Secret) || strings.Contains(logs, w.tokens[quotad.RoleOwner]) {
			t.Error("a secret is in the log")
		}
	})
}

func TestRotationsThatCanNotBe(t *testing.T) {
	each(t, Options{}, func(t *testing.T, w *world) {
		w.aTenant("acme")
		key := w.aKey("acme")
		path := "/admin/v1/keys/" + key.ID + "/rotate"
		for body, fault := range map[string]string{
			`{"grace_seconds":-1}`:               "must be at least 0",
			`{"grace_seconds":2592001}`:          "must be at most 2592000",
			`{"grace_seconds":9007199254740991}`: "must be at most 2592000",
			`{"grace_seconds":18446744074}`:      "must be at most 2592000", // wraps to a small one in nanoseconds
			`{"grace_seconds":1.5}`:              "must be a whole number",
			`{"grace_seconds":"1"}`:              "must be a whole number",
		} {
			p := w.call("POST", path, body).refuses(quotad.CodeInvalidFields)
			if diff := cmp.Diff(quotad.Faults{"grace_seconds": fault}, p.Fields); diff != "" {
				t.Errorf("%s: %s", body, diff)
			}
		}
		w.call("POST", path, `{"grace":1}`).refuses(quotad.CodeInvalidFields)
		w.call("POST", path, `{}`, with{"If-Match", `"old-1"`}).refuses(quotad.CodePreconditionFailed)
		w.remembers(as[quotad.Key](w.call("POST", path, `{}`).is(200)).Secret)
		w.remembers(as[quotad.Key](w.call("POST", path, nil).is(200)).Secret)
		w.remembers(as[quotad.Key](w.call("POST", path, `{"grace_seconds":0}`).is(200)).Secret)
		w.call("DELETE", "/admin/v1/keys/"+key.ID, nil).is(204)
		w.call("POST", path, `{"grace_seconds":0}`).refuses(quotad.CodeConflict)
	})
}

func TestARevokeIsFinal(t *testing.T) {
	each(t, Options{}, func(t *testing.T, w *world) {
		w.aTenant("acme")
		key := w.aKey("acme")
		path := "/admin/v1/keys/" + key.ID
		w.call("DELETE", path, nil).is(http.StatusNoContent)
		w.call("DELETE", path, nil).is(http.StatusNoContent)
		if got := as[quotad.Key](w.call("GET", path, nil).is(200)); got.Status != quotad.KeyRevoked || got.Version != key.Version+1 {
			t.Errorf("got %+v", got)
		}
		w.call("PATCH", path, `{"status":"active"}`).refuses(quotad.CodeConflict)
		p := w.call("PATCH", "/admin/v1/keys/"+w.aKey("acme").ID, `{"status":"revoked"}`).refuses(quotad.CodeInvalidFields)
		if !p.Fields.Has("status") {
			t.Errorf("got %v", p.Fields)
		}
	})
}

func TestAnExpiredKeyShowsAsSuch(t *testing.T) {
	each(t, Options{}, func(t *testing.T, w *world) {
		w.aTenant("acme")
		made := as[quotad.Key](w.call("POST", "/admin/v1/tenants/acme/keys", `{"expires_at":"2026-11-30T13:00:00Z"}`).is(201))
		w.remembers(made.Secret)
		path := "/admin/v1/keys/" + made.ID
		w.clock.Advance(time.Hour - time.Second)
		before := w.call("GET", path, nil).is(200)
		if got := as[quotad.Key](before); got.Status != quotad.KeyActive {
			t.Errorf("a second before: %s", got.Status)
		}
		w.clock.Advance(time.Second)
		after := w.call("GET", path, nil, with{"If-None-Match", before.header.Get("ETag")}).is(200)
		if got := as[quotad.Key](after); got.Status != quotad.KeyExpired {
			t.Errorf("then: %s", got.Status)
		}
		for _, at := range []string{"2026-11-30T13:00:00Z", "0000-01-01T00:00:00Z", "9999-12-31T23:59:59-01:00"} {
			p := w.call("POST", "/admin/v1/tenants/acme/keys", `{"expires_at":"`+at+`"}`).refuses(quotad.CodeInvalidFields)
			if !p.Fields.Has("expires_at") {
				t.Errorf("%s: %v", at, p.Fields)
			}
		}
	})
}

func TestTheTagOfAKeyFollowsItsLastUse(t *testing.T) {
	each(t, Options{}, func(t *testing.T, w *world) {
		w.aTenant("acme")
		key := w.aKey("acme")
		path := "/admin/v1/keys/" + key.ID
		before := w.call("GET", path, nil).is(200).header.Get("ETag")
		if err := w.stores.Keys.Touch(t.Context(), map[string]time.Time{key.ID: w.clock.Now()}); err != nil {
			t.Fatal(err)
		}
		got := w.call("GET", path, nil, with{"If-None-Match", before}).is(200)
		if as[quotad.Key](got).LastUsedAt == nil {
			t.Error("no last_used_at")
		}
		w.call("GET", path, nil, with{"If-None-Match", got.header.Get("ETag")}).is(304)
		w.call("PATCH", path, `{"name":"x"}`, with{"If-Match", before}).is(200) // a use is no edit
	})
}

func TestKeysOfNobody(t *testing.T) {
	each(t, Options{}, func(t *testing.T, w *world) {
		w.call("POST", "/admin/v1/tenants/none/keys", `{}`).refuses(quotad.CodeNotFound)
		w.call("GET", "/admin/v1/tenants/none/keys", nil).refuses(quotad.CodeNotFound)
		w.aTenant("acme")
		p := w.call("POST", "/admin/v1/tenants/acme/keys", `{"route_groups":["gone"],"rate_limit":1,"allowed_cidrs":["::ffff:10.0.0.0/104"]}`).
			refuses(quotad.CodeInvalidFields)
		for _, field := range []string{"route_groups[0]", "rate_window", "allowed_cidrs[0]"} {
			if !p.Fields.Has(field) {
				t.Errorf("no fault of %s in %v", field, p.Fields)
			}
		}
	})
}
