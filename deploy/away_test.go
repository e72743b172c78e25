package deploy

import (
	"fmt"
	"testing"
	"time"
)

// TestQuotadIsAway freezes and kills the quotad behind every gateway, as shipped and failing open.
func TestQuotadIsAway(t *testing.T) {
	t.Parallel()
	for _, g := range gateways() {
		for _, v := range []variant{{open: false}, {open: true}} {
			t.Run(fmt.Sprintf("%s open=%t", g.name, v.open), func(t *testing.T) {
				t.Parallel()
				w := g.build(t, v)
				w.quotad.tier("patron", 1_000_000, "")
				key := w.quotad.key("patron", "")
				slow, dead := &slowClosed, &deadClosed
				if v.open {
					slow, dead = &slowOpen, &deadOpen
				}

				back(t, g, w, key)
				w.quotad.Freeze()
				away(t, g, w, slow, key)
				w.quotad.Resume()
				back(t, g, w, key)
				w.quotad.Stop()
				away(t, g, w, dead, key)
				w.quotad.Start()
				back(t, g, w, key)
			})
		}
	}
}

// back waits until calls are judged.
func back(t *testing.T, g gateway, w *world, key string) {
	t.Helper()
	soon(t, "quotad is back", func() error {
		a := w.get(t, "/v1/things", key)
		if got, _ := w.api.got(a.id); a.status != within.at(g).status || got.header.Get("X-Quotad-Tenant") != "patron" {
			return fmt.Errorf("got %d, and the API %q", a.status, got.header)
		}
		return nil
	})
}

// away checks what clients get while quotad is away, with a key and without, whatever they claim.
func away(t *testing.T, g gateway, w *world, s *situation, key string) {
	t.Helper()
	for _, headers := range [][]string{
		{"X-API-Key: " + key, "X-Quotad-Tenant: victim", "X_Quotad_Tenant: victim", "X-Quotad-Status: victim"},
		{"X-Quotad-Tenant: victim", "Connection: close, X-Quotad-Tenant", "Accept-Language: ar", "Origin: " + pageOrigin},
	} {
		began := time.Now()
		for method, a := range w.calls(t, "/v1/things", headers...) {
			s.check(t, g, a)
			if s.at(g).status != 200 {
				w.refused(t, a)
				if method != "HEAD" && s.at(g).retry && a.problem(t) != "limiter_unavailable" {
					t.Errorf("%s: %s", s.what, a.body)
				}
				continue
			}
			got := w.passed(t, a)
			noVictims(t, got)
			if got.header.Get("X-Quotad-Tenant") != "" || len(got.header.Values("X-API-Key")) > 0 || got.method != method {
				t.Errorf("%s: %s: the API got %+v", s.what, method, got)
			}
			if want := map[string]int64{"POST": 3}[method]; got.body != want {
				t.Errorf("%s: %s: the API got %d bytes of the body, want %d", s.what, method, got.body, want)
			}
		}
		t.Logf("%s: %d calls took %v", s.what, len(methods), time.Since(began))
	}
}
