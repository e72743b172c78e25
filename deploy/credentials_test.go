package deploy

import (
	"fmt"
	"strings"
	"testing"
)

// credentials: one call, one key. What holds more is refused and counted to nobody.
func credentials(t *testing.T, g gateway, w *world) {
	w.quotad.tier("alice", 100, "")
	w.quotad.tier("bob", 100, "")
	alice, bob := w.quotad.key("alice", ""), w.quotad.key("bob", "")
	header := "X-API-Key: "
	guesses := []string{header + alice}
	for i := range 20 {
		guesses = append(guesses, fmt.Sprintf("%sqk_guess%d", header, i))
	}
	for what, c := range map[string]call{
		"valid and invalid":         {target: "/v1/things", headers: []string{header + alice, header + "qk_nonsense"}},
		"invalid and valid":         {target: "/v1/things", headers: []string{header + "qk_nonsense", header + alice}},
		"two valid":                 {target: "/v1/things", headers: []string{header + alice, header + bob}},
		"two valid in other case":   {target: "/v1/things", headers: []string{header + alice, "x-api-KEY: " + bob}},
		"the same twice":            {target: "/v1/things", headers: []string{header + alice, header + alice}},
		"a list":                    {target: "/v1/things", headers: []string{header + alice + ", " + bob}},
		"guesses":                   {target: "/v1/things", headers: guesses},
		"another in Authorization":  {target: "/v1/things", headers: []string{header + alice, "Authorization: Bearer " + bob}},
		"another in the query":      {target: "/v1/things?api_key=" + bob, headers: []string{header + alice}},
		"an encoded one beside one": {target: "/v1/things", headers: []string{header + alice, header + strings.ReplaceAll(bob, "_", "%5F")}},
	} {
		c.method = "GET"
		a := w.send(t, c)
		w.refused(t, a)
		if a.status == 401 { // as good: nobody was let in
			continue
		}
		ambiguous.check(t, g, a)
		if code := a.problem(t); code != "ambiguous_credentials" {
			t.Errorf("%s: got %s", what, code)
		}
	}
	for name, key := range map[string]string{"alice": alice, "bob": bob} {
		if left := w.quotad.left(key); left != 100 {
			t.Errorf("%s has %d of 100 left: something was counted", name, left)
		}
	}
	for _, spelling := range []string{"x-api-key: ", "X-Api-Key: ", "X-API-KEY:"} {
		within.check(t, g, w.send(t, call{method: "GET", target: "/v1/things", headers: []string{spelling + alice}}))
	}
	// The API's own credentials are the API's.
	a := w.get(t, "/v1/things?token=abc", alice, "Authorization: Bearer the-apis-own", "Cookie: session=1")
	within.check(t, g, a)
	if got := w.passed(t, a); got.header.Get("Authorization") != "Bearer the-apis-own" || got.header.Get("Cookie") != "session=1" {
		t.Errorf("the API got %q", got.header)
	}
}
