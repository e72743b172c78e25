package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quotad/quotad"
)

var identity = []string{"X-Quotad-Tenant: acme", "X-Quotad-Key-Id: k1", "X-Quotad-Tier: pro", "X-Quotad-Route-Group: exports"}

func TestAuthorizeAdmitsWith200AndNoBody(t *testing.T) {
	t.Parallel()
	s := service(t, &answers{decision: admitted()}, Options{})
	for _, method := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND", "REPORT", "PURGE", "M-SEARCH"} {
		for _, target := range []string{"/v1/authorize", "/v1/authorize/", "/v1/authorize/v1/exports", "/v1/authorize//"} {
			w := do(s, request(method, target, "", withKey))
			if w.Code != 200 || w.Body.Len() != 0 {
				t.Errorf("%s %s: got %d %q", method, target, w.Code, w.Body)
			}
			wantHeaders(t, w, identity...)
			wantHeaders(t, w, "Content-Type:", "X-RateLimit-Limit: 20", "Cache-Control: no-store", "X-Quotad-Status:")
		}
	}
}

func TestAuthorizeOverwritesWhatAClientClaims(t *testing.T) {
	t.Parallel()
	d := quotad.Decision{Allowed: true, RouteGroup: "login"}
	w := do(service(t, &answers{decision: d}, Options{}), request("POST", "/v1/authorize/login", "", "X-Quotad-Tenant: victim"))
	wantStatus(t, w, 200)
	wantHeaders(t, w, "X-Quotad-Tenant: ", "X-Quotad-Key-Id: ", "X-Quotad-Tier: ", "X-Quotad-Route-Group: login")
}

func TestAuthorizeAsksForItsOwnPathTail(t *testing.T) {
	t.Parallel()
	for target, path := range map[string]string{
		"/v1/authorize":                              "/",
		"/v1/authorize/":                             "/",
		"/v1/authorize?deny_status=403":              "/",
		"/v1/authorize/v1/exports":                   "/v1/exports",
		"/v1/authorize/v1/exports?a=b?c":             "/v1/exports",
		"/v1/authorize//v1//reports/./export/":       "//v1//reports/./export/",
		"/v1/authorize/v1/x/../reports":              "/v1/x/../reports",
		"/v1/authorize/v1/reports%2Fexport":          "/v1/reports%2Fexport",
		"/v1/authorize/V1/%52eports%00":              "/V1/%52eports%00",
		"/v1/authorize/v1/authorize/v1/authorize":    "/v1/authorize/v1/authorize",
		"http://example.com/v1/authorize/v1/e%20x?q": "/v1/e%20x",
		"http://example.com/v1/authorize":            "/",
	} {
		a := &answers{decision: admitted()}
		r := request("DELETE", "/", "", withKey)
		*r = *request("DELETE", target, "", withKey)
		wantStatus(t, do(service(t, a, Options{}), r), 200)
		if call := a.asked(t); call.Path != path || call.Method != "DELETE" || call.RouteGroup != "" || call.Door != "authorize" {
			t.Errorf("%s: asked %+v", target, call)
		}
	}
}

func TestAuthorizeBelievesTrustedProxies(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		target       string
		headers      []string
		method, path string
	}{
		{"/v1/authorize", []string{"X-Forwarded-Method: POST", "X-Forwarded-Uri: /v1/exports?x=1"}, "POST", "/v1/exports"},
		{"/v1/authorize", []string{"X-Original-Method: POST", "X-Original-URI: /v1/exports?x=1"}, "POST", "/v1/exports"},
		{"/v1/authorize?of=caddy", []string{"X-Forwarded-Method: PUT", "X-Forwarded-Uri: /a%2Fb/../c"}, "PUT", "/a%2Fb/../c"},
		{"/v1/authorize", []string{"X-Forwarded-Method: POST", "X-Original-Method: POST", "X-Forwarded-Uri: /a", "X-Original-URI: /a"}, "POST", "/a"},
		{"/v1/authorize", []string{"X-Forwarded-Method: post", "X-Original-URI: /a"}, "POST", "/a"},
		{"/v1/authorize", []string{"X-Forwarded-Uri: https://api.example.com/v1/a?b"}, "GET", "/v1/a"},
		{"/v1/authorize", []string{"X-Forwarded-Uri: https://api.example.com"}, "GET", "/"},
		{"/v1/authorize", []string{"X-Forwarded-Uri: https://api.example.com?a/b"}, "GET", "/"},
		{"/v1/authorize", []string{"X-Forwarded-Uri: v1/a"}, "GET", "v1/a"}, // for the matcher to refuse
		{"/v1/authorize/tail", []string{"X-Forwarded-Method: POST"}, "POST", "/tail"},
		{"/v1/authorize/tail", []string{"X-Forwarded-Uri: "}, "GET", "/tail"},
		{"/v1/authorize", []string{"X-Forwarded-Method: PURGE", "X-Forwarded-Uri: /"}, "PURGE", "/"},
	} {
		a := &answers{decision: admitted()}
		w := get(service(t, a, trusting()), c.target, c.headers...)
		wantStatus(t, w, 200)
		if call := a.asked(t); call.Path != c.path || call.Method != c.method {
			t.Errorf("%s %q: asked %s %s", c.target, c.headers, call.Method, call.Path)
		}
	}
}

func TestAuthorizeBelievesNobodyElse(t *testing.T) {
	t.Parallel()
	for _, opts := range []Options{{}, {TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("127.0.0.1/32")}}} {
		a := &answers{decision: admitted()}
		w := get(service(t, a, opts), "/v1/authorize/v1/exports",
			"X-Forwarded-Method: OPTIONS", "X-Forwarded-Uri: /v1/free", "X-Original-Method: G T", "X-Original-URI: /v1/other",
			"Origin: https://x.example", "Access-Control-Request-Method: POST")
		wantStatus(t, w, 200)
		if call := a.asked(t); call.Path != "/v1/exports" || call.Method != "GET" {
			t.Errorf("asked %s %s", call.Method, call.Path)
		}
	}
}

func TestABareCallOfAGatewayThatIsNotTrustedIsRefused(t *testing.T) {
	t.Parallel()
	for _, headers := range [][]string{
		{"X-Forwarded-Uri: /v1/exports"}, {"X-Original-URI: /v1/exports", "X-Original-Method: POST"}, {"X-Forwarded-Uri: /a", "X-Original-URI: /b"},
	} {
		for _, target := range []string{"/v1/authorize", "/v1/authorize?a=b"} {
			a := &answers{decision: admitted()}
			w := get(service(t, a, Options{}), target, headers...)
			wantRefusal(t, w, quotad.CodeInvalidRequest)
			if !strings.Contains(w.Body.String(), "--trusted-proxies") {
				t.Errorf("%s %q: got %s", target, headers, w.Body)
			}
			a.neverAsked(t)
		}
	}
	// Without a URI nothing is missed, and a path of "/" is one: the headers may be the end user's.
	for target, header := range map[string]string{"/v1/authorize": "X-Forwarded-Method: GET, PUT", "/v1/authorize/": "X-Forwarded-Uri: /a"} {
		a := &answers{decision: admitted()}
		wantStatus(t, get(service(t, a, Options{}), target, header), 200)
		if call := a.asked(t); call.Path != "/" || call.Method != "GET" {
			t.Errorf("%s: asked %+v", target, call)
		}
	}
}

func TestAnIgnoredGatewayIsLoggedOnceAMinute(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	s := service(t, &answers{decision: admitted()}, Options{Logger: slog.New(slog.NewJSONHandler(&log, nil))})
	at := now
	s.now = func() time.Time { return at }
	for range 5 {
		get(s, "/v1/authorize", "X-Forwarded-Uri: /v1/free?secret=1")
	}
	get(s, "/v1/authorize/tail", "X-Forwarded-Uri: /v1/free")
	if got := strings.Count(log.String(), "\n"); got != 1 || !strings.Contains(log.String(), "not a trusted proxy") ||
		strings.Contains(log.String(), "secret") {
		t.Errorf("got %s", log.String())
	}
	at = at.Add(time.Minute)
	get(s, "/v1/authorize", "X-Forwarded-Uri: /v1/free")
	if !strings.Contains(log.String(), `"muted":4`) {
		t.Errorf("got %s", log.String())
	}
}

func TestForwardedHeadersThatDisagreeAreRefused(t *testing.T) {
	t.Parallel()
	for _, headers := range [][]string{
		{"X-Forwarded-Uri: /a", "X-Original-URI: /b"},
		{"X-Forwarded-Method: GET", "X-Original-Method: POST"},
		{"X-Forwarded-Uri: /a", "X-Forwarded-Uri: /b"},
		{"X-Original-Method: GET", "X-Original-Method: POST"},
		{"X-Forwarded-Method: G T"}, {"X-Forwarded-Method: GET, POST"}, {"X-Forwarded-Method: " + strings.Repeat("A", 65)},
	} {
		a := &answers{decision: admitted()}
		wantRefusal(t, get(service(t, a, trusting()), "/v1/authorize", headers...), quotad.CodeInvalidRequest)
		a.neverAsked(t)
	}
}

func TestDenyStatusIsForNginx(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a      *answers
		status int
		meant  string
		retry  string
	}{
		{&answers{decision: refused()}, 403, "429", "30"},
		{&answers{err: &quotad.Error{Code: quotad.CodeLimiterUnavailable}}, 403, "503", "1"},
		{&answers{err: &quotad.Error{Code: quotad.CodeStoreUnavailable}}, 403, "503", "1"},
		{&answers{err: &quotad.Error{Code: quotad.CodeInvalidPath}}, 403, "400", ""},
		{&answers{err: &quotad.Error{Code: quotad.CodeRouteNotAllowed}}, 403, "403", ""},
		{&answers{err: &quotad.Error{Code: quotad.CodeInvalidAPIKey}}, 401, "401", ""},
		{&answers{err: &quotad.Error{Code: quotad.CodeInternal}}, 500, "500", ""},
	} {
		for _, target := range []string{"/v1/authorize?deny_status=403", "/v1/authorize?a=b&deny_status=403"} {
			w := get(service(t, c.a, Options{}), target)
			wantStatus(t, w, c.status)
			wantHeaders(t, w, "X-Quotad-Status: "+c.meant, "Cache-Control: no-store")
			if header(w, "Retry-After") != c.retry || !strings.Contains(w.Body.String(), `"status":`+c.meant+`,`) {
				t.Errorf("want %s: got %s %s", c.meant, header(w, "Retry-After"), w.Body)
			}
			wantHeaders(t, w, "X-Quotad-Problem: "+w.Body.String())
		}
		w := get(service(t, c.a, Options{}), "/v1/authorize")
		wantHeaders(t, w, "X-Quotad-Status:", "X-Quotad-Problem:")
	}
	s := service(t, &answers{decision: refused()}, Options{})
	w := get(s, "/v1/authorize?deny_status=403")
	wantHeaders(t, w, "X-RateLimit-Remaining: 0", `RateLimit: "base";r=900;t=12, "exports";r=0;t=30`)
	w = get(service(t, &answers{decision: admitted()}, Options{}), "/v1/authorize?deny_status=403")
	wantStatus(t, w, 200)
	wantHeaders(t, w, "X-Quotad-Status:")
}

func TestTheProblemIsAHeaderThatNginxCanPassOn(t *testing.T) {
	t.Parallel()
	s := service(t, &answers{decision: refused()}, Options{})
	w := get(s, "/v1/authorize?deny_status=403", "Accept-Language: ar")
	wantStatus(t, w, 403)
	sent := header(w, "X-Quotad-Problem")
	if strings.ContainsFunc(sent, func(r rune) bool { return r < ' ' || r > '~' }) {
		t.Errorf("not printable ASCII: %q", sent)
	}
	var got, want map[string]any
	if err := errors.Join(json.Unmarshal([]byte(sent), &got), json.Unmarshal(w.Body.Bytes(), &want)); err != nil {
		t.Fatalf("%v: %q, %s", err, sent, w.Body)
	}
	if diff := cmp.Diff(want, got); diff != "" || !strings.Contains(sent, `\u0`) {
		t.Errorf("header and body differ (-body +header):\n%s", diff)
	}
	if got := string(appendASCII(nil, []byte("{\"a\": \"é😀\"}"))); got != `{"a": "\u00e9\ud83d\ude00"}` {
		t.Errorf("got %s", got)
	}
}

func TestOtherDenyStatusesAreRefused(t *testing.T) {
	t.Parallel()
	a := &answers{decision: refused()}
	s := service(t, a, Options{})
	for _, query := range []string{"deny_status=429", "deny_status=", "deny_status", "deny_status=403&deny_status=403"} {
		wantRefusal(t, get(s, "/v1/authorize?"+query), quotad.CodeInvalidRequest)
	}
	wantStatus(t, get(s, "/v1/authorize?x_deny_status=403"), 429)
}

// Behind a path the query is the client's, who does not choose what its refusal is.
func TestAClientsOwnDenyStatusIsNone(t *testing.T) {
	t.Parallel()
	s := service(t, &answers{decision: refused()}, Options{})
	for _, path := range []string{"/", "/v1/x", "//", "/v1/authorize"} {
		for _, query := range []string{"deny_status=403", "a=b&deny_status=403", "deny_status=429"} {
			w := get(s, "/v1/authorize"+path+"?"+query)
			wantStatus(t, w, 429)
			wantHeaders(t, w, "X-Quotad-Status:", "X-Quotad-Problem:")
		}
	}
}

func TestPreflightsPassUncountedWithoutAKey(t *testing.T) {
	t.Parallel()
	preflight := []string{"Origin: https://x.example", "Access-Control-Request-Method: POST"}
	a := &answers{err: &quotad.Error{Code: quotad.CodeAPIKeyRequired}}
	s := service(t, a, trusting())
	for _, r := range []struct {
		method, target string
		headers        []string
	}{
		{"OPTIONS", "/v1/authorize/v1/exports", preflight},
		{"GET", "/v1/authorize", append(preflight, "X-Forwarded-Method: OPTIONS", "X-Forwarded-Uri: /v1/exports")},
		{"GET", "/v1/authorize?deny_status=403", append(preflight, "X-Original-Method: OPTIONS", "X-Original-URI: /v1/exports")},
	} {
		w := do(s, request(r.method, r.target, "", r.headers...))
		wantStatus(t, w, 200)
		wantHeaders(t, w, "X-Quotad-Tenant: ", "X-Quotad-Key-Id: ", "X-Quotad-Tier: ", "X-Quotad-Route-Group: ", "X-RateLimit-Limit:")
		if w.Body.Len() != 0 {
			t.Errorf("got %q", w.Body)
		}
	}
	a.neverAsked(t)
	for _, headers := range [][]string{{}, preflight[:1], preflight[1:], append(preflight, "X-Forwarded-Method: POST")} {
		wantRefusal(t, do(s, request("OPTIONS", "/v1/authorize/v1/exports", "", headers...)), quotad.CodeAPIKeyRequired)
	}
}

func TestLimitsListsWhatIsLeftByRouteGroup(t *testing.T) {
	t.Parallel()
	other := admitted()
	other.RouteGroup, other.Limits, other.Degraded = "default", nil, true
	a := &answers{decisions: []quotad.Decision{admitted(), other}}
	a.decisions[0].Limits = a.decisions[0].Limits[1:2]
	w := get(service(t, a, Options{}), "/v1/limits?route_group=exports&subject=u%201")
	wantStatus(t, w, 200)
	wantHeaders(t, w, "Content-Type: application/json", "Cache-Control: no-store")
	const want = `{"tenant":"acme","key_id":"k1","tier":"pro","degraded":true,"route_groups":[` +
		`{"route_group":"exports","limits":[{"policy":"exports","scope":"key","algorithm":"token_bucket","limit":20,"remaining":19,` +
		`"window":300,"reset_after":15,"retry_after":0,"allowed":true,"shadow":false}]},{"route_group":"default","limits":[]}]}`
	if diff := cmp.Diff(want, w.Body.String()); diff != "" {
		t.Error(diff)
	}
	if call := a.asked(t); call.RouteGroup != "exports" || call.Subject != "u 1" || call.Door != "limits" || call.APIKey != "qk_test" {
		t.Errorf("asked %+v", call)
	}
	a = &answers{}
	s := service(t, a, Options{})
	if got := get(s, "/v1/limits").Body.String(); got != `{"tenant":"","key_id":"","tier":"","degraded":false,"route_groups":[]}` {
		t.Errorf("got %s", got)
	}
	a = &answers{}
	s = service(t, a, Options{})
	wantFields(t, get(s, "/v1/limits?route_group=&subject=%00"),
		`{"route_group":"must be the name of a route group","subject":"`+badSubject+`"}`)
	wantRefusal(t, get(s, "/v1/limits?subject=%ff"), quotad.CodeInvalidRequest)
	a.neverAsked(t)
}

func TestASubjectIsBelievedFromTrustedProxiesOnly(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		opts    Options
		headers []string
		want    string
	}{
		{trusting(), []string{"X-Quotad-Subject: u 1"}, "u 1"},
		{trusting(), []string{"x-quotad-subject: 日本語"}, "日本語"},
		{trusting(), []string{"X-Quotad-Subject: "}, ""},
		{trusting(), nil, ""},
		{Options{}, []string{"X-Quotad-Subject: u1"}, ""},
		{Options{}, []string{"X-Quotad-Subject: u1", "X-Quotad-Subject: a\tb"}, ""},
	} {
		a := &answers{decision: admitted()}
		wantStatus(t, get(service(t, a, c.opts), "/v1/authorize/v1/exports", c.headers...), 200)
		if got := a.asked(t).Subject; got != c.want {
			t.Errorf("%q: asked for %q, want %q", c.headers, got, c.want)
		}
	}
	for headers, fault := range map[string]string{
		"X-Quotad-Subject: a\tb": badSubject, "X-Quotad-Subject: \xff": badSubject, "X-Quotad-Subject: " + strings.Repeat("x", 256): badSubject,
		"X-Quotad-Subject: a|X-Quotad-Subject: a": "is given more than once", "X-Quotad-Subject: a|X-Quotad-Subject: ": "is given more than once",
	} {
		a := &answers{decision: admitted()}
		w := get(service(t, a, trusting()), "/v1/authorize/v1/exports", strings.Split(headers, "|")...)
		wantRefusal(t, w, quotad.CodeInvalidRequest)
		wantFields(t, w, `{"X-Quotad-Subject":"`+fault+`"}`)
		a.neverAsked(t)
	}
	// No other door has a subject in a header.
	a := &answers{decision: admitted()}
	get(service(t, a, trusting()), "/v1/ping", "X-Quotad-Subject: u1")
	if got := a.asked(t).Subject; got != "" {
		t.Errorf("ping asked for %q", got)
	}
}
