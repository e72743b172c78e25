package main

import (
	"net/http"
	"regexp"
	"strings"
	"testing"
)

// curl is the printed call.
var curl = regexp.MustCompile(`(?m)^curl -i -H 'X-API-Key: (qk_\w+)' (http://\S+)$`)

// paste makes the printed call.
func paste(t *testing.T, n *testNode) (key string, a answer) {
	t.Helper()
	line := curl.FindStringSubmatch(n.stdout.String())
	if line == nil {
		t.Fatalf("no call is printed:\n%s", n.stdout)
	}
	a, err := send(testClient, http.MethodGet, line[2], nil, "X-API-Key", line[1])
	if err != nil {
		t.Fatal(err)
	}
	return line[1], a
}

func TestDemo(t *testing.T) {
	each(t, func(t *testing.T, stores []string) {
		stores = append(stores, "QUOTAD_ADMIN_TOKEN=")
		first := start(t, stores, "--demo")
		old, a := paste(t, first)
		if a.status != http.StatusOK || a.header.Get("X-RateLimit-Limit") != "10" || a.header.Get("X-RateLimit-Remaining") != "9" {
			t.Errorf("the printed call: %d %v %s", a.status, a.header, a.body)
		}
		token := regexp.MustCompile(`admin token +(qa_\w+)`).FindStringSubmatch(first.stdout.String())
		if token == nil {
			t.Fatalf("no admin token is printed:\n%s", first.stdout)
		}
		list, err := send(testClient, http.MethodGet, first.admin+"/admin/v1/tenants/demo/keys", nil, "Authorization", "Bearer "+token[1])
		if err != nil || list.status != http.StatusOK {
			t.Errorf("with the printed admin token: %d %s %v", list.status, list.body, err)
		}
		if !strings.Contains(first.stdout.String(), "the demo tier admits 10 calls in 60 seconds:") {
			t.Errorf("the first start says:\n%s", first.stdout)
		}
		change, err := send(testClient, http.MethodPatch, first.admin+"/admin/v1/tiers/demo", map[string]any{"rate_limit": 25, "rate_window": 30},
			"Authorization", "Bearer "+token[1])
		if err != nil || change.status != http.StatusOK {
			t.Errorf("an edit of the demo tier: %d %s %v", change.status, change.body, err)
		}
		first.stop()

		// Again on the same store: what it prints works too, on the same key.
		second := start(t, stores, "--demo")
		if _, a := paste(t, second); a.status != http.StatusOK {
			t.Errorf("the call printed by the second start: %d %s", a.status, a.body)
		}
		if !strings.Contains(second.stdout.String(), "the one that an earlier start printed has ended") || strings.Contains(second.stdout.String(), "qa_") {
			t.Errorf("the second start says:\n%s", second.stdout)
		}
		if !strings.Contains(second.stdout.String(), "the demo tier admits 25 calls in 30 seconds:") {
			t.Errorf("the second start does not say what the tier is now:\n%s", second.stdout)
		}
		if a := second.ping(old); a.status != http.StatusUnauthorized {
			t.Errorf("the secret printed by the first start: %d", a.status)
		}
		list, err = send(testClient, http.MethodGet, second.admin+"/admin/v1/tenants/demo/keys", nil, "Authorization", "Bearer "+token[1])
		if keys := list.object(t)["items"].([]any); err != nil || len(keys) != 1 {
			t.Errorf("%d keys, want the one of before: %v", len(keys), err)
		}
	})
}

// Somebody else's store is left alone.
func TestDemoOnAStoreInUse(t *testing.T) {
	each(t, func(t *testing.T, stores []string) {
		first := start(t, stores)
		first.customer("acme", 5, nil)
		first.stop()
		second := start(t, stores, "--demo")
		if printed := second.stdout.String(); !strings.Contains(printed, "Nothing was changed") || !strings.Contains(printed, "quotad keys create") || curl.MatchString(printed) {
			t.Errorf("it says:\n%s", printed)
		}
		if tiers := second.must(http.MethodGet, "/tiers", nil)["items"].([]any); len(tiers) != 1 {
			t.Errorf("%d tiers, want the one of before", len(tiers))
		}
	})
}
