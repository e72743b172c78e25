package admin

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/testenv"
)

// atOnce makes calls at the same time and returns their statuses.
func (w *world) atOnce(calls ...func() (answer, error)) []answer {
	w.t.Helper()
	got := make([]answer, len(calls))
	fs := make([]func() error, len(calls))
	for i, call := range calls {
		fs[i] = func() (err error) {
			got[i], err = call()
			return err
		}
	}
	for _, err := range testenv.Together(fs...) {
		if err != nil {
			w.t.Error(err)
		}
	}
	return got
}

func (w *world) later(method, path string, body any, headers ...with) func() (answer, error) {
	return func() (answer, error) { return w.try(method, path, body, headers...) }
}

// Two edits at once: both are in the outcome, or one of them is told otherwise.
func TestConcurrentEditsLoseNothing(t *testing.T) {
	const trials = 50
	each(t, Options{}, func(t *testing.T, w *world) {
		w.aTenant("acme")
		w.aTier("other")
		key := w.aKey("acme")
		w.call("PATCH", "/admin/v1/keys/"+key.ID, `{"rate_limit":1,"rate_window":1}`).is(200)
		w.call("POST", "/admin/v1/route-groups", `{"name":"g"}`).is(201)
		for _, r := range []struct {
			path   string
			bodies [2]func(i int) (body string, field string, want string)
		}{
			{"/admin/v1/tiers/other", [2]func(int) (string, string, string){number("rate_limit"), number("rate_window")}},
			{"/admin/v1/tenants/acme", [2]func(int) (string, string, string){text("name"), text("time_zone")}},
			{"/admin/v1/keys/" + key.ID, [2]func(int) (string, string, string){number("rate_limit"), text("name")}},
			{"/admin/v1/route-groups/g", [2]func(int) (string, string, string){number("cost"), text("auth")}},
		} {
			events := len(w.events(""))
			for i := range trials {
				var calls []func() (answer, error)
				for _, body := range r.bodies {
					patch, _, _ := body(i)
					calls = append(calls, w.later("PATCH", r.path, patch))
				}
				answers := w.atOnce(calls...)
				shown := fields(t, w.call("GET", r.path, nil).is(200).body)
				for j, got := range answers {
					_, field, want := r.bodies[j](i)
					switch got.status {
					case http.StatusOK:
						if value := fmt.Sprint(shown[field]); value != want {
							t.Fatalf("trial %d of %s: %s is %s, and was set to %s", i, r.path, field, value, want)
						}
					case http.StatusConflict, http.StatusPreconditionFailed:
					default:
						t.Fatalf("trial %d of %s: %d %s", i, r.path, got.status, got.body)
					}
				}
			}
			if wrote := len(w.events("")) - events; wrote != 2*trials {
				t.Errorf("%s: %d events of %d writes", r.path, wrote, 2*trials)
			}
		}
	})
}

// Values that change with each trial.
func number(field string) func(int) (string, string, string) {
	return func(i int) (string, string, string) {
		return fmt.Sprintf(`{%q:%d}`, field, 100+i), field, fmt.Sprint(100 + i)
	}
}

func text(field string) func(int) (string, string, string) {
	values := map[string][]string{"time_zone": {"Europe/Berlin", "UTC"}, "auth": {"none", "key"}}[field]
	return func(i int) (string, string, string) {
		value := fmt.Sprint("x", i)
		if values != nil {
			value = values[i%2]
		}
		return fmt.Sprintf(`{%q:%q}`, field, value), field, value
	}
}

// Of two edits that were made for one version, one is written.
func TestOfTwoEditsWithOneTagOneIsWritten(t *testing.T) {
	each(t, Options{}, func(t *testing.T, w *world) {
		w.aTenant("acme")
		key := w.aKey("acme")
		for i := range 25 {
			for _, path := range []string{"/admin/v1/tiers/tier-of-acme", "/admin/v1/tenants/acme", "/admin/v1/keys/" + key.ID} {
				tag := with{"If-Match", w.call("GET", path, nil).is(200).header.Get("ETag")}
				field := map[bool]string{true: "description", false: "name"}[path == "/admin/v1/tiers/tier-of-acme"]
				got := w.atOnce(
					w.later("PATCH", path, fmt.Sprintf(`{%q:"a%d"}`, field, i), tag),
					w.later("PATCH", path, fmt.Sprintf(`{%q:"b%d"}`, field, i), tag),
				)
				if s := got[0].status + got[1].status; s != http.StatusOK+http.StatusPreconditionFailed {
					t.Fatalf("%s: got %d and %d", path, got[0].status, got[1].status)
				}
			}
			tag := with{"If-Match", w.call("GET", "/admin/v1/keys/"+key.ID, nil).is(200).header.Get("ETag")}
			rotate := w.later("POST", "/admin/v1/keys/"+key.ID+"/rotate", `{"grace_seconds":0}`, tag)
			if got := w.atOnce(rotate, rotate); got[0].status+got[1].status != http.StatusOK+http.StatusPreconditionFailed {
				t.Fatalf("rotations: got %d and %d", got[0].status, got[1].status)
			}
		}
	})
}

func TestAnEditBesideADeletion(t *testing.T) {
	each(t, Options{}, func(t *testing.T, w *world) {
		for i := range 25 {
			path := fmt.Sprintf("/admin/v1/tiers/t%d", i)
			w.aTier(fmt.Sprintf("t%d", i))
			got := w.atOnce(w.later("PATCH", path, `{"rate_limit":1}`), w.later("DELETE", path, nil))
			if got[1].status != http.StatusNoContent || (got[0].status != http.StatusOK && got[0].status != http.StatusNotFound) {
				t.Fatalf("got %d and %d", got[0].status, got[1].status)
			}
			w.call("GET", path, nil).refuses(quotad.CodeNotFound)
			want := map[int]int{http.StatusOK: 3, http.StatusNotFound: 2}[got[0].status]
			if events := w.events(fmt.Sprintf("&target=t%d", i)); len(events) != want {
				t.Errorf("%d events, want %d", len(events), want)
			}
		}
	})
}

func TestOfTwoCreationsOneSucceeds(t *testing.T) {
	each(t, Options{}, func(t *testing.T, w *world) {
		w.aTier("pro")
		for i := range 25 {
			for collection, body := range map[string]string{
				"/admin/v1/tiers":        fmt.Sprintf(`{"name":"t%d","rate_limit":1,"rate_window":1}`, i),
				"/admin/v1/tenants":      fmt.Sprintf(`{"id":"t%d","name":"T","tier":"pro"}`, i),
				"/admin/v1/route-groups": fmt.Sprintf(`{"name":"t%d","match":["/t%d"]}`, i, i),
			} {
				got := w.atOnce(w.later("POST", collection, body), w.later("POST", collection, body))
				if got[0].status+got[1].status != http.StatusCreated+http.StatusConflict {
					t.Fatalf("%s: got %d %s and %d %s", collection, got[0].status, got[0].body, got[1].status, got[1].body)
				}
			}
			// Patterns of two groups that would conflict, and a tier that goes while a tenant comes.
			pattern := func(name string) string {
				return fmt.Sprintf(`{"name":"%s%d","match":["GET /p%d/{x}"]}`, name, i, i)
			}
			got := w.atOnce(w.later("POST", "/admin/v1/route-groups", pattern("a")), w.later("POST", "/admin/v1/route-groups", pattern("b")))
			if got[0].status+got[1].status != http.StatusCreated+http.StatusUnprocessableEntity {
				t.Fatalf("patterns: got %d and %d", got[0].status, got[1].status)
			}
			w.aTier(fmt.Sprintf("g%d", i))
			got = w.atOnce(
				w.later("POST", "/admin/v1/tenants", fmt.Sprintf(`{"id":"g%d","name":"G","tier":"g%d"}`, i, i)),
				w.later("DELETE", fmt.Sprintf("/admin/v1/tiers/g%d", i), nil),
			)
			if s := [2]int{got[0].status, got[1].status}; s != [2]int{201, 409} && s != [2]int{422, 204} {
				t.Fatalf("tenant and tier: got %v: %s %s", s, got[0].body, got[1].body)
			}
		}
	})
}
