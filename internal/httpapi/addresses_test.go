package httpapi

import (
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/quotad/quotad"
)

func TestTheClientIsThePeerOrTheRightmostUntrustedHop(t *testing.T) {
	t.Parallel()
	s := service(t, &answers{}, Options{TrustedProxies: []netip.Prefix{
		netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8:ffff::/48"), netip.MustParsePrefix("::ffff:192.168.7.0/120"),
		netip.MustParsePrefix("fe80::/10"),
	}})
	for _, c := range []struct {
		peer string
		xff  []string
		want string
	}{
		{"203.0.113.9:1", nil, "203.0.113.9"},
		{"203.0.113.9:1", []string{"198.51.100.1"}, "203.0.113.9"},
		{"127.0.0.1:1", []string{"198.51.100.1"}, "127.0.0.1"},
		{"192.168.1.1:1", []string{"198.51.100.1"}, "192.168.1.1"},
		{"[::1]:1", []string{"198.51.100.1"}, "::1"},
		{"10.0.0.9:1", nil, "10.0.0.9"},
		{"10.0.0.9:1", []string{"198.51.100.1"}, "198.51.100.1"},
		{"10.0.0.9:1", []string{"1.1.1.1, 198.51.100.1"}, "198.51.100.1"},
		{"10.0.0.9:1", []string{"1.1.1.1", "198.51.100.1"}, "198.51.100.1"},
		{"10.0.0.9:1", []string{"1.1.1.1,198.51.100.1 , 10.1.1.1", " 10.2.2.2"}, "198.51.100.1"},
		{"10.0.0.9:1", []string{"10.3.3.3, 10.2.2.2"}, "10.3.3.3"},
		{"10.0.0.9:1", []string{"junk, 198.51.100.1"}, "198.51.100.1"},
		{"10.0.0.9:1", []string{"198.51.100.1, junk"}, "10.0.0.9"},
		{"10.0.0.9:1", []string{""}, "10.0.0.9"},
		{"10.0.0.9:1", []string{"198.51.100.1, "}, "10.0.0.9"},
		{"10.0.0.9:1", []string{"unknown"}, "10.0.0.9"},
		{"10.0.0.9:1", []string{"198.51.100.1:4711"}, "198.51.100.1"},
		{"10.0.0.9:1", []string{"[2001:db8::1]:4711"}, "2001:db8::1"},
		{"10.0.0.9:1", []string{"[2001:db8::1]"}, "2001:db8::1"},
		{"10.0.0.9:1", []string{"::ffff:198.51.100.1"}, "198.51.100.1"},
		{"[::ffff:10.0.0.9]:1", []string{"198.51.100.1"}, "198.51.100.1"},
		{"[::ffff:203.0.113.9]:1", nil, "203.0.113.9"},
		{"192.168.7.1:1", []string{"198.51.100.1"}, "198.51.100.1"},
		{"[2001:db8:ffff::1]:1", []string{"2001:db8::9"}, "2001:db8::9"},
		{"[fe80::1%eth0]:1", []string{"2001:db8::9"}, "2001:db8::9"},
		{"@", []string{"198.51.100.1"}, "invalid IP"},
		{"", nil, "invalid IP"},
	} {
		r := request("GET", "/v1/ping", "", "X-Real-IP: 9.9.9.9", "True-Client-IP: 9.9.9.9", "CF-Connecting-IP: 9.9.9.9", "Forwarded: for=9.9.9.9")
		r.RemoteAddr = c.peer
		for _, line := range c.xff {
			r.Header.Add("X-Forwarded-For", line)
		}
		if got := s.client(r).String(); got != c.want {
			t.Errorf("peer %s, %q: got %s, want %s", c.peer, c.xff, got, c.want)
		}
	}
}

func TestEveryDoorPassesTheClientsAddressOn(t *testing.T) {
	t.Parallel()
	for _, door := range []string{"GET /v1/ping", "GET /v1/limits", "GET /v1/authorize", "POST /v1/check"} {
		a := &answers{decision: admitted()}
		s := service(t, a, trusting())
		switch door {
		case "POST /v1/check":
			checkBody(s, check, "X-Forwarded-For: 1.1.1.1, 198.51.100.1")
		default:
			get(s, door[len("GET "):], "X-Forwarded-For: 1.1.1.1, 198.51.100.1")
		}
		if got := a.asked(t).Address; got != netip.MustParseAddr("198.51.100.1") {
			t.Errorf("%s: got %s", door, got)
		}
	}
}

func TestWhatADoorRefusesIsToldWithItsAddressAndItsOneKey(t *testing.T) {
	t.Parallel()
	kept := quotad.Decision{Cost: 1, RetryAfter: 30, Limits: []quotad.LimitStatus{{
		Policy: "address", Scope: quotad.ScopeIP, Limit: 5, Window: 60, RetryAfter: 30, ResetAfter: 30, ResetAt: now.Add(30 * time.Second),
	}}}
	twice := []string{withKey, withKey}
	for _, c := range []struct {
		method, target, body string
		headers              []string
		code                 quotad.Code
	}{
		{"GET", "/v1/ping", "", twice, quotad.CodeAmbiguousCredentials},
		{"GET", "/v1/ping?cost=-1", "", []string{withKey}, quotad.CodeInvalidCost},
		{"GET", "/v1/limits", "", twice, quotad.CodeAmbiguousCredentials},
		{"GET", "/v1/limits?x=y", "", []string{withKey}, quotad.CodeInvalidRequest},
		{"POST", "/v1/check", check, append(twice, "Content-Type: application/json"), quotad.CodeAmbiguousCredentials},
		{"POST", "/v1/check", "{", []string{withKey, "Content-Type: application/json"}, quotad.CodeInvalidRequest},
		{"POST", "/v1/check", "{}", []string{withKey}, quotad.CodeUnsupportedMedia},
		{"GET", "/v1/authorize/x", "", twice, quotad.CodeAmbiguousCredentials},
		{"PUT", "/v1/authorize?deny_status=1", "", []string{withKey}, quotad.CodeInvalidRequest},
	} {
		a := &answers{decision: admitted()}
		ask := func() *httptest.ResponseRecorder {
			return do(service(t, a, trusting()), request(c.method, c.target, c.body, append(c.headers, "X-Forwarded-For: 198.51.100.7")...))
		}
		wantRefusal(t, ask(), c.code)
		a.neverAsked(t)
		door, _, _ := strings.Cut(strings.TrimPrefix(c.target, "/v1/"), "?")
		door = strings.TrimSuffix(door, "/x")
		key := "qk_test"
		if c.code == quotad.CodeAmbiguousCredentials {
			key = ""
		}
		if len(a.faults) != 1 || a.faults[0].Door != door || a.faults[0].Address.String() != "198.51.100.7" || a.faults[0].APIKey != key {
			t.Errorf("%s: told %+v", c.target, a.faults)
		}
		a.keptOut = &kept
		w := ask()
		wantRefusal(t, w, quotad.CodeRateLimitExceeded)
		wantHeaders(t, w, "Retry-After: 30", "X-RateLimit-Limit: 5", "X-RateLimit-Remaining: 0", `RateLimit: "address";r=0;t=30`, `RateLimit-Policy: "address";q=5;w=60`)
		if !strings.Contains(w.Body.String(), `"violated-policies":["address"]`) {
			t.Errorf("%s: %s", c.target, w.Body)
		}
	}
	a := &answers{keptOut: &kept}
	w := do(service(t, a, Options{}), request("GET", "/v1/authorize?deny_status=403", "", twice...))
	wantStatus(t, w, 403)
	wantHeaders(t, w, "X-Quotad-Status: 429", "Retry-After: 30")
}

func TestWhoAsksForLimitsMayBeKeptOutByItsAddress(t *testing.T) {
	t.Parallel()
	kept := refused()
	kept.RouteGroup, kept.Limits = "", kept.Limits[1:2]
	a := &answers{decisions: []quotad.Decision{kept}}
	w := get(service(t, a, Options{}), "/v1/limits")
	wantRefusal(t, w, quotad.CodeRateLimitExceeded)
	wantHeaders(t, w, "Retry-After: 30", "X-RateLimit-Remaining: 0")
}

func TestHealthPreflightsAndWhatHasNoRouteAreNotCountedByAddress(t *testing.T) {
	t.Parallel()
	a := &answers{decision: admitted()}
	s := service(t, a, Options{})
	preflight := []string{"Origin: https://x.example", "Access-Control-Request-Method: POST", withKey, withKey}
	for _, target := range []string{"GET /healthz?x=y", "GET /readyz", "GET /nowhere", "DELETE /v1/check", "OPTIONS /v1/ping", "OPTIONS /v1/check", "OPTIONS /v1/limits", "OPTIONS /v1/authorize/x"} {
		method, path, _ := strings.Cut(target, " ")
		do(s, request(method, path, "", preflight...))
	}
	a.neverAsked(t)
	if len(a.faults) != 0 {
		t.Errorf("told %+v", a.faults)
	}
}
