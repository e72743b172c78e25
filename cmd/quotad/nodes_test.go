package main

import (
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
)

// Fifty calls at once on a limit of one: exactly one passes, on one node and over two.
func TestOneOfFifty(t *testing.T) {
	each(t, func(t *testing.T, stores []string) {
		nodes := []*testNode{start(t, stores)}
		if len(stores) > 1 {
			nodes = append(nodes, start(t, stores))
		}
		nodes[0].tier("one", 1, nil)
		nodes[0].tenant("acme", "one")
		for round := range 5 {
			_, key := nodes[0].key("acme")
			var mu sync.Mutex
			got := map[int]int{}
			var all sync.WaitGroup
			for i := range 50 {
				all.Go(func() {
					a := nodes[i%len(nodes)].ping(key)
					mu.Lock()
					defer mu.Unlock()
					got[a.status]++
					if a.header.Get("X-RateLimit-Limit") != "1" || a.header.Get("X-RateLimit-Remaining") != "0" {
						t.Errorf("headers of %d: %v", a.status, a.header)
					}
					if wait := a.header.Get("Retry-After"); (a.status == http.StatusTooManyRequests) != (wait != "") {
						t.Errorf("%d has Retry-After %q", a.status, wait)
					}
				})
			}
			all.Wait()
			if got[http.StatusOK] != 1 || got[http.StatusTooManyRequests] != 49 {
				t.Errorf("round %d: %v, want one 200 and 49 times 429", round, got)
			}
		}
	})
}

func TestEachKeyAndRouteGroupHasItsOwnCounter(t *testing.T) {
	each(t, func(t *testing.T, stores []string) {
		n := start(t, stores)
		n.must(http.MethodPost, "/route-groups", map[string]any{"name": "exports", "match": []string{"POST /v1/exports"}})
		n.must(http.MethodPost, "/route-groups", map[string]any{"name": "search", "match": []string{"GET /v1/search"}, "cost": 2})
		n.tier("two", 2, map[string]any{"limits": []any{
			map[string]any{"name": "exports", "route_group": "exports", "rate_limit": 3, "rate_window": lasting},
		}})
		n.tenant("acme", "two")
		_, a := n.key("acme")
		_, b := n.key("acme")
		for _, key := range []string{a, b} {
			for group, want := range map[string]string{
				"default": "[200 200 429]", "exports": "[200 200 200 429]", "search": "[200 429]", "nowhere": "[400]",
			} {
				var got []int
				for len(got) == 0 || got[len(got)-1] == http.StatusOK {
					got = append(got, n.check(key, group).status)
				}
				if fmt.Sprint(got) != want {
					t.Errorf("group %s: %v, want %s", group, got, want)
				}
			}
		}
		// The same counters, found by method and path, and by what a gateway forwards.
		if got := n.metered(http.MethodPost, "/v1/check", map[string]any{"method": "POST", "path": "//V1/exports/"}, a); got.status != http.StatusTooManyRequests {
			t.Errorf("by path: %d %s", got.status, got.body)
		}
		if got := n.metered(http.MethodPost, "/v1/authorize/v1/exports", nil, a); got.status != http.StatusTooManyRequests {
			t.Errorf("by forward-auth: %d %s", got.status, got.body)
		}
	})
}

// What is changed at one node holds at the other too, with the key warm on both.
func TestChangesReachTheOtherNode(t *testing.T) {
	t.Parallel()
	stores := shared(t)
	here, there := start(t, stores), start(t, stores)
	soon(t, "both listen", func() error {
		for _, n := range []*testNode{here, there} {
			if a, _ := send(testClient, http.MethodGet, n.api+"/readyz", nil); a.body != `{"status":"ready"}`+"\n" {
				return errors.New("it says: " + a.body)
			}
		}
		return nil
	})
	warm := func(key string, want int) {
		t.Helper()
		for _, n := range []*testNode{here, there} {
			if a := n.ping(key); a.status != want {
				t.Fatalf("before the change: %d %s", a.status, a.body)
			}
		}
	}
	atOnce := func(what string, want int, key string) {
		t.Helper()
		if a := here.ping(key); a.status != want {
			t.Errorf("%s: at once, where it was made: %d %s", what, a.status, a.body)
		}
		soon(t, what, status(want, func() answer { return there.ping(key) }))
	}

	id, key := here.customer("revoked", 1000, nil)
	warm(key, http.StatusOK)
	here.must(http.MethodDelete, "/keys/"+id, nil)
	atOnce("revoke", http.StatusUnauthorized, key)

	id, key = here.customer("disabled", 1000, nil)
	warm(key, http.StatusOK)
	here.must(http.MethodPatch, "/keys/"+id, map[string]any{"status": "disabled"})
	atOnce("disable", http.StatusUnauthorized, key)
	here.must(http.MethodPatch, "/keys/"+id, map[string]any{"status": "active"})
	atOnce("enable", http.StatusOK, key)

	_, key = here.customer("suspended", 1000, nil)
	warm(key, http.StatusOK)
	here.must(http.MethodPatch, "/tenants/suspended", map[string]any{"status": "suspended"})
	atOnce("suspend", http.StatusUnauthorized, key)
	here.must(http.MethodPatch, "/tenants/suspended", map[string]any{"status": "active"})
	atOnce("reactivate", http.StatusOK, key)

	_, key = here.customer("lowered", 1000, nil)
	warm(key, http.StatusOK)
	here.must(http.MethodPatch, "/tiers/lowered", map[string]any{"rate_limit": 2})
	atOnce("lower the limit", http.StatusTooManyRequests, key)
	here.must(http.MethodPatch, "/tiers/lowered", map[string]any{"rate_limit": 1000})
	atOnce("raise the limit", http.StatusOK, key)

	_, key = here.customer("moved", 1000, nil)
	here.tier("nothing", 0, nil)
	warm(key, http.StatusOK)
	here.must(http.MethodPatch, "/tenants/moved", map[string]any{"tier": "nothing"})
	atOnce("move to another tier", http.StatusTooManyRequests, key)

	_, key = here.customer("routed", 1000, nil)
	warm(key, http.StatusOK)
	here.must(http.MethodPost, "/route-groups", map[string]any{"name": "pings", "match": []string{"GET /v1/ping"},
		"limits": []any{map[string]any{"name": "none", "scope": "tenant", "rate_limit": 0, "rate_window": 60}}})
	atOnce("make a route group", http.StatusTooManyRequests, key)
}

// A new secret for a key is no fresh allowance, and the old one ends when it was said to.
func TestRotationKeepsUsage(t *testing.T) {
	each(t, func(t *testing.T, stores []string) {
		n := start(t, stores)
		id, first := n.customer("acme", 5, nil)
		for range 3 {
			n.ping(first)
		}
		second := n.must(http.MethodPost, "/keys/"+id+"/rotate", map[string]any{"grace_seconds": 3600})["secret"].(string)
		if a := n.ping(second); a.status != http.StatusOK || a.header.Get("X-RateLimit-Remaining") != "1" {
			t.Errorf("with the new secret: %d, remaining %s, want 200 and 1", a.status, a.header.Get("X-RateLimit-Remaining"))
		}
		if a := n.ping(first); a.status != http.StatusOK || a.header.Get("X-RateLimit-Remaining") != "0" {
			t.Errorf("with the old secret, within its grace: %d, remaining %s, want 200 and 0", a.status, a.header.Get("X-RateLimit-Remaining"))
		}
		third := n.must(http.MethodPost, "/keys/"+id+"/rotate", map[string]any{"grace_seconds": 0})["secret"].(string)
		for name, c := range map[string]struct {
			secret string
			want   int
		}{"first": {first, http.StatusUnauthorized}, "second": {second, http.StatusUnauthorized}, "third": {third, http.StatusTooManyRequests}} {
			if a := n.ping(c.secret); a.status != c.want {
				t.Errorf("the %s secret after a rotation without grace: %d, want %d", name, a.status, c.want)
			}
		}
	})
}
