package admin

import (
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quotad/quotad"
)

func TestAdminTokens(t *testing.T) {
	each(t, Options{FailedLogins: 1000}, func(t *testing.T, w *world) {
		made := w.call("POST", "/admin/v1/admin-tokens", `{"name":"ci","role":"viewer","expires_at":"2026-11-30T13:00:00.5Z"}`).is(201)
		token := as[quotad.AdminToken](made)
		w.remembers(token.Secret)
		path := "/admin/v1/admin-tokens/" + token.ID
		if made.header.Get("Location") != path {
			t.Errorf("Location is %q", made.header.Get("Location"))
		}
		read := w.call("GET", path, nil).is(200)
		shown := fields(t, read.body)
		want := fields(t, made.body)
		delete(want, "secret")
		if diff := cmp.Diff(want, shown); diff != "" {
			t.Error(diff)
		}
		if shown["name"] != "ci" || shown["role"] != "viewer" || shown["expires_at"] != "2026-11-30T13:00:00.5Z" || shown["hint"] == "" {
			t.Errorf("got %v", shown)
		}
		w.call("GET", path, nil, with{"If-None-Match", read.header.Get("ETag")}).is(304)
		lists := 0
		for _, item := range as[page[map[string]any]](w.call("GET", "/admin/v1/admin-tokens", nil).is(200)).Items {
			if item["id"] == token.ID {
				lists++
				if diff := cmp.Diff(shown, item); diff != "" {
					t.Error(diff)
				}
			}
		}
		if lists != 1 {
			t.Errorf("it is listed %d times", lists)
		}
		bearer := with{"Authorization", "Bearer " + token.Secret}
		w.call("GET", "/admin/v1/tiers", nil, bearer).is(200)
		w.clock.Advance(time.Hour + 500*time.Millisecond)
		w.call("GET", "/admin/v1/tiers", nil, bearer).refuses(quotad.CodeUnauthorized) // expired
		w.call("DELETE", path, nil, with{"If-Match", `"other"`}).refuses(quotad.CodePreconditionFailed)
		w.call("DELETE", path, nil, with{"If-Match", read.header.Get("ETag")}).is(http.StatusNoContent)
		w.call("GET", path, nil).refuses(quotad.CodeNotFound)
		w.call("DELETE", path, nil).refuses(quotad.CodeNotFound)
		w.call("PATCH", path, `{}`).refuses(quotad.CodeMethodNotAllowed)

		p := w.call("POST", "/admin/v1/admin-tokens", `{"role":"root","hint":"x","expires_at":1}`).refuses(quotad.CodeInvalidFields)
		if diff := cmp.Diff(quotad.Faults{
			"name": "is required", "role": "must be one of owner, operator, viewer, service", "hint": "is read-only",
			"expires_at": "must be a time in RFC 3339, such as 2030-01-31T12:00:00Z",
		}, p.Fields); diff != "" {
			t.Error(diff)
		}
	})
}

func TestADeletedTokenIsAtOnceNobodys(t *testing.T) {
	each(t, Options{}, func(t *testing.T, w *world) {
		token := as[quotad.AdminToken](w.call("POST", "/admin/v1/admin-tokens", `{"name":"second","role":"owner"}`).is(201))
		bearer := with{"Authorization", "Bearer " + w.remembers(token.Secret)}
		w.call("GET", "/admin/v1/admin-tokens", nil, bearer).is(200)
		w.call("DELETE", "/admin/v1/admin-tokens/"+token.ID, nil, bearer).is(204)
		w.call("GET", "/admin/v1/admin-tokens", nil, bearer).refuses(quotad.CodeUnauthorized)
	})
}

func TestTheLastOwnerStays(t *testing.T) {
	each(t, Options{}, func(t *testing.T, w *world) {
		var ids []string
		for _, token := range as[page[quotad.AdminToken]](w.call("GET", "/admin/v1/admin-tokens", nil).is(200)).Items {
			if token.Role == quotad.RoleOwner {
				ids = append(ids, token.ID)
			}
		}
		if len(ids) != 1 {
			t.Fatalf("there are %d owners", len(ids))
		}
		w.call("DELETE", "/admin/v1/admin-tokens/"+ids[0], nil).refuses(quotad.CodeInUse)
		second := as[quotad.AdminToken](w.call("POST", "/admin/v1/admin-tokens", `{"name":"second","role":"owner"}`).is(201))
		w.remembers(second.Secret)
		// Two owners who delete each other: one of them stays.
		statuses := make([]int, 2)
		var wg sync.WaitGroup
		for i, call := range []func() (answer, error){
			func() (answer, error) { return w.try("DELETE", "/admin/v1/admin-tokens/"+second.ID, nil) },
			func() (answer, error) {
				return w.try("DELETE", "/admin/v1/admin-tokens/"+ids[0], nil, with{"Authorization", "Bearer " + second.Secret})
			},
		} {
			wg.Go(func() {
				got, err := call()
				if err != nil {
					t.Error(err)
				}
				statuses[i] = got.status
			})
		}
		wg.Wait()
		deleted := 0
		for _, status := range statuses {
			switch status {
			case http.StatusNoContent:
				deleted++
			case http.StatusConflict, http.StatusUnauthorized:
			default:
				t.Errorf("got status %d", status)
			}
		}
		if deleted != 1 {
			t.Errorf("%d owners are deleted", deleted)
		}
	})
}
