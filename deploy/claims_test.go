package deploy

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// own are the headers that only quotad and the gateway may say.
var own = []string{"X-Quotad-Tenant", "X-Quotad-Key-Id", "X-Quotad-Tier", "X-Quotad-Route-Group", "X-Quotad-Subject",
	"X-Quotad-Status", "X-Quotad-Problem", "X-Quotad-Degraded", "X-Quotad-Delay-Ms", "X-Forwarded-Method", "X-Forwarded-Uri",
	"X-Original-Method", "X-Original-Uri"}

// claims: what a client says under the names of quotad and of the gateway reaches neither quotad nor the API.
func claims(t *testing.T, g gateway, w *world) {
	// Whose subject is believed is refused.
	w.quotad.tier("claimant", 100, `,"limits":[{"name":"user","route_group":"*","scope":"subject","rate_limit":0,"rate_window":60}]`)
	w.quotad.group("open", "/v1/open", `,"auth":"none"`)
	w.quotad.group("exports", "GET /v1/claims/export", `,"limits":[]`)
	key := w.quotad.key("claimant", "")
	claimed := []string{"X-API-Key: " + key}
	for _, name := range own {
		claimed = append(claimed, name+": victim", strings.ToLower(name)+": victim2")
		if strings.HasPrefix(name, "X-Quotad") { // some APIs read both as one
			claimed = append(claimed, strings.ReplaceAll(name, "-", "_")+": victim")
		}
	}
	got := w.passed(t, w.send(t, call{method: "GET", target: "/v1/things", headers: claimed}))
	for name, want := range map[string]string{"X-Quotad-Tenant": "claimant", "X-Quotad-Tier": "claimant", "X-Quotad-Route-Group": "default"} {
		if values := got.header.Values(name); len(values) != 1 || values[0] != want {
			t.Errorf("the API got %s %q, want %q", name, values, want)
		}
	}
	if id := strings.Split(key, "_")[1]; got.header.Get("X-Quotad-Key-Id") != id {
		t.Errorf("the API got the key id %q, want %q", got.header.Get("X-Quotad-Key-Id"), id)
	}
	noVictims(t, got)
	if len(got.header.Values("X-API-Key")) > 0 {
		t.Errorf("the key itself reached the API: %q", got.header)
	}

	// Nobody vouches for a call without a key, whatever it says.
	got = w.passed(t, w.send(t, call{method: "GET", target: "/v1/open", headers: claimed[1:]}))
	if got.header.Get("X-Quotad-Tenant")+got.header.Get("X-Quotad-Key-Id") != "" {
		t.Errorf("the API got a tenant of a call without a key: %q", got.header)
	}
	noVictims(t, got)

	// A client can't have the gateway drop what it says of the client, as a proxy does with what Connection lists.
	for _, listed := range []string{"close, X-Quotad-Tenant, X-Quotad-Key-Id", "X-Quotad-Tenant", "close, X-Forwarded-For", "X-Forwarded-Uri, X-Forwarded-Method, close"} {
		a := w.get(t, "/v1/things", key, "Connection: "+listed)
		if got, ok := w.api.got(a.id); ok && got.header.Get("X-Quotad-Tenant") != "claimant" {
			t.Errorf("Connection: %s: the API got %q", listed, got.header)
		}
	}
	for _, listed := range []string{"close, X-API-Key", "X-Api-Key", "keep-alive, x-api-key"} {
		a := w.get(t, "/v1/things", key, "Connection: "+listed)
		if got, ok := w.api.got(a.id); a.status != http.StatusUnauthorized && (!ok || got.header.Get("X-Quotad-Tenant") != "claimant") {
			t.Errorf("Connection: %s: got %d, and the API %q", listed, a.status, got.header)
		}
	}
	otherCalls(t, w)
}

func noVictims(t *testing.T, got reached) {
	t.Helper()
	for name, values := range got.header {
		if strings.Contains(strings.Join(values, ","), "victim") {
			t.Errorf("the API got the client's own %s: %q", name, values)
		}
	}
}

// otherCalls: a client can't have its call judged as another one.
func otherCalls(t *testing.T, w *world) {
	w.quotad.tier("shifty", 100, `,"limits":[{"name":"exports","route_group":"exports","scope":"key","rate_limit":1,"rate_window":86400}]`)
	key := w.quotad.key("shifty", "")
	if a := w.get(t, "/v1/claims/export", key); a.status != 200 {
		t.Fatalf("the first export: %d %s", a.status, a.body)
	}
	var headers []string
	for _, prefix := range []string{"X-Forwarded-", "X-Original-", "x-forwarded-", "x-original-", "X_Forwarded_", "X_Original_"} {
		headers = append(headers, prefix+"Uri: /v1/things", prefix+"URI: /v1/things", prefix+"URL: /v1/things", prefix+"Path: /v1/things",
			prefix+"Method: POST", prefix+"Prefix: /v1")
	}
	headers = append(headers, "X-Rewrite-URL: /v1/things", "X-HTTP-Method-Override: POST", "Forwarded: for=9.9.9.9;host=x;proto=https",
		"X-Quotad-Route-Group: default", "X-Quotad-Tenant: claimant", "X-Request-Id: mine")
	for _, header := range headers {
		a := w.get(t, "/v1/claims/export", key, header)
		w.refused(t, a)
		if a.status != http.StatusTooManyRequests && a.status != http.StatusBadRequest {
			t.Errorf("%s: got %d %s", header, a.status, a.body)
		}
	}
	// A preflight needs no key, so a call must not pass for one.
	for _, headers := range [][]string{
		{"Origin: " + pageOrigin, "Access-Control-Request-Method: POST"},
		{"Origin: " + pageOrigin, "Access-Control-Request-Method: POST", "X-Forwarded-Method: OPTIONS"},
		{"Origin: " + pageOrigin, "Access-Control-Request-Method: POST", "X-Original-Method: OPTIONS"},
	} {
		a := w.send(t, call{method: "GET", target: "/v1/things", headers: headers})
		w.refused(t, a)
		if a.status != http.StatusUnauthorized && a.status != http.StatusBadRequest {
			t.Errorf("%q: got %d", headers, a.status)
		}
	}
}

// addresses: quotad counts by the address that the gateway sees, never by one that the client names.
func addresses(t *testing.T, g gateway, w *world) {
	w.quotad.tier("located", 100, "")
	here := w.quotad.key("located", fmt.Sprintf(`,"allowed_cidrs":["%s/32"]`, client))
	there := w.quotad.key("located", `,"allowed_cidrs":["9.9.9.9/32"]`)
	away := w.quotad.key("located", `,"allowed_cidrs":["9.9.9.9/32","127.0.0.1/32"]`)
	w.quotad.group("guesses", "/v1/guesses", `,"auth":"none","limits":[{"name":"guesses","scope":"ip","rate_limit":3,"rate_window":86400}]`)
	passed := 0
	for i, header := range []string{"X-Forwarded-For: 9.9.9.9", "X-Real-IP: 9.9.9.9", "True-Client-IP: 9.9.9.9", "CF-Connecting-IP: 9.9.9.9",
		"Forwarded: for=9.9.9.9", "x-forwarded-for: 9.9.9.9, 127.0.0.1", "X-Client-IP: 9.9.9.9", "X_Forwarded_For: 9.9.9.9"} {
		if a := w.get(t, "/v1/things", here, header); a.status != 200 {
			t.Errorf("%s: a key for the client's own address: %d %s", header, a.status, a.body)
		}
		if a := w.get(t, "/v1/things", away, header); a.status != 401 {
			t.Errorf("%s: a key for another address: %d %s", header, a.status, a.body)
		}
		a := w.send(t, call{method: "POST", target: "/v1/guesses", headers: []string{strings.ReplaceAll(header, "9.9.9.9", fmt.Sprintf("9.9.9.%d", i))}})
		if a.status == 200 {
			passed++
		}
		if got, ok := w.api.got(a.id); ok && strings.Contains(got.header.Get("X-Forwarded-For"), "9.9.9") {
			t.Errorf("%s: the API got X-Forwarded-For %q", header, got.header.Get("X-Forwarded-For"))
		}
	}
	// Nor does it where the client's own address is one that quotad would believe.
	for _, header := range []string{"X-Forwarded-For: 9.9.9.9", "X-Real-IP: 9.9.9.9", "Forwarded: for=9.9.9.9"} {
		c := call{method: "GET", target: "/v1/things", headers: []string{"X-API-Key: " + there, header}, from: gatewaysAddress}
		if a := w.send(t, c); a.status != 401 {
			t.Errorf("%s from a trusted address: a key for another address: %d %s", header, a.status, a.body)
		}
	}
	if passed != 3 {
		t.Errorf("%d guesses passed from one address, want 3", passed)
	}
}
