package main

import (
	"fmt"
	"net/http"
	"testing"
)

// Ten tries from one address and for one group of paths, at whichever node and with whichever key: what
// keeps guesses off a login has to hold across the nodes.
func TestTriesToLogInAreCountedAcrossNodes(t *testing.T) {
	t.Parallel()
	stores := shared(t)
	nodes := []*testNode{start(t, stores, "--trusted-proxies=127.0.0.1"), start(t, stores, "--trusted-proxies=127.0.0.1")}
	for _, name := range []string{"login", "otp"} {
		nodes[0].must(http.MethodPost, "/route-groups", map[string]any{"name": name, "match": []string{"POST /" + name, "POST /" + name + "/{step}"}, "auth": "none",
			"limits": []any{map[string]any{"name": "tries", "scope": "ip", "rate_limit": 10, "rate_window": lasting}}})
	}
	_, key := nodes[0].customer("acme", 100, nil)
	soon(t, "the other node knows the groups", func() error {
		return status(http.StatusOK, func() answer { return nodes[1].metered(http.MethodPost, "/v1/authorize/otp/known", nil, "") })()
	})
	try := func(i int, path, address string) answer {
		header := []string{"X-Forwarded-For", fmt.Sprintf("198.51.100.%d, %s", i, address)} // the left one is the client's claim
		if i%3 == 0 {
			header = append(header, "X-API-Key", key)
		}
		a, err := send(testClient, http.MethodPost, nodes[i%2].api+"/v1/authorize"+path, nil, header...)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	passed := map[string]int{}
	for i := range 30 {
		path := []string{"/login", "/login/2", "/LOGIN/"}[i%3]
		for _, address := range []string{"203.0.113.7", fmt.Sprintf("2001:db8:1:1::%x", i+1)} {
			a := try(i, path, address)
			if a.status == http.StatusOK {
				passed[address[:4]]++
				if a.header.Get("X-Quotad-Tenant")+a.header.Get("X-Quotad-Key-Id") != "" {
					t.Errorf("a tenant of a call that nobody authenticated: %v", a.header)
				}
			} else if a.status != http.StatusTooManyRequests || a.header.Get("Retry-After") == "" {
				t.Errorf("%d %s", a.status, a.body)
			}
		}
	}
	if passed["203."] != 10 || passed["2001"] != 10 {
		t.Errorf("%v tries passed, want 10 of each", passed)
	}
	if a := try(0, "/otp", "203.0.113.7"); a.status != http.StatusOK {
		t.Errorf("another group of paths: %d %s", a.status, a.body)
	}
	if a := nodes[1].ping(key); a.header.Get("X-RateLimit-Remaining") != "99" {
		t.Errorf("the key was charged: %v", a.header)
	}
}
