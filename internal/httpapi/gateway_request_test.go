package httpapi

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/quotad/quotad"
)

// seen is what an upstream answers with: the request as it got it.
func seen(w http.ResponseWriter, r *http.Request) {
	fmt.Fprintf(w, "%s %s\nHost: %s\n", r.Method, r.RequestURI, r.Host)
	for name, values := range r.Header {
		fmt.Fprintf(w, "%s: %s\n", name, strings.Join(values, " | "))
	}
}

func trustingLoopback() Options {
	return Options{TrustedProxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("10.0.0.0/8")}}
}

func TestGatewayTellsTheUpstreamWhoCalls(t *testing.T) {
	t.Parallel()
	claims := []string{
		"X-Quotad-Tenant: victim", "x-quotad-anything: victim", "X_Quotad_Tenant: victim", "X-Quotad_Tier: victim", "X_API_KEY: victim",
		"X_Forwarded_For: victim", "X-Quotad-Subject: victim",
	}
	forged := []string{
		"X-Forwarded-For: 1.2.3.4", "X-Forwarded-Host: victim", "X-Forwarded-Proto: victim", "X-Forwarded-Port: victim",
		"Forwarded: for=victim", "X-Real-IP: victim", "X-Rewrite-URL: victim", "True-Client-IP: victim", "CF-Connecting-IP: victim", "X-Original-URI: victim",
	}
	own := []string{"Authorization: Bearer of-the-upstream", "Cookie: a=b", "X-Forward: mine", "X-Apikey: mine", "Accept: */*"}
	for name, c := range map[string]struct {
		opts    Options
		headers []string
		want    []string
		not     []string
	}{
		"a client":                 {Options{}, nil, []string{"X-Forwarded-For: 127.0.0.1", "X-Forwarded-Host: api.example.com", "X-Forwarded-Proto: http"}, nil},
		"a client that claims":     {Options{}, append(claims, forged...), []string{"X-Forwarded-For: 127.0.0.1", "X-Forwarded-Host: api.example.com", "X-Forwarded-Proto: http"}, []string{"victim", "1.2.3.4"}},
		"what is the client's own": {Options{}, own, []string{"Authorization: Bearer of-the-upstream", "Cookie: a=b", "X-Forward: mine", "X-Apikey: mine", "Accept: */*"}, nil},
		"a trusted proxy": {trustingLoopback(), []string{"X-Forwarded-For: 1.2.3.4, 10.0.0.1", "X-Forwarded-Host: www.example.com", "X-Forwarded-Proto: https", "X-Forwarded-Port: 443", "X-Real-IP: 1.2.3.4", "X-Quotad-Subject: user-7"},
			[]string{"X-Forwarded-For: 1.2.3.4, 10.0.0.1, 127.0.0.1", "X-Forwarded-Host: www.example.com", "X-Forwarded-Proto: https", "X-Forwarded-Port: 443", "X-Real-Ip: 1.2.3.4", "X-Quotad-Subject: user-7"}, nil},
		"hop-by-hop tricks": {Options{}, []string{"Connection: X-API-Key, X-Quotad-Tenant, X-Forwarded-For, X-Forwarded-Proto", "X-Forwarded-For: 1.2.3.4"},
			[]string{"X-Forwarded-For: 127.0.0.1", "X-Forwarded-Proto: http"}, []string{"1.2.3.4", "Connection"}},
		"hop-by-hop tricks past a trusted proxy": {trustingLoopback(), []string{"Connection: X-Forwarded-For", "X-Forwarded-For: 1.2.3.4"},
			[]string{"X-Forwarded-For: 1.2.3.4, 127.0.0.1"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := &answers{decision: admitted()}
			g := gateTo(t, a, c.opts, GatewayOptions{}, seen)
			status, _, body := g.ask("GET /v1/exports", c.headers...)
			if status != http.StatusOK {
				t.Fatalf("got %d %s", status, body)
			}
			for _, line := range append(c.want, "Host: api.example.com", "X-Quotad-Tenant: acme", "X-Quotad-Key-Id: k1", "X-Quotad-Tier: pro", "X-Quotad-Route-Group: exports") {
				if strings.Count(body, "\n"+line+"\n") != 1 {
					t.Errorf("the upstream did not get %q once:\n%s", line, body)
				}
			}
			for _, text := range append(c.not, "qk_test", "X-Api-Key", "User-Agent", "Accept-Encoding") {
				if strings.Contains(body, text) {
					t.Errorf("the upstream got %q:\n%s", text, body)
				}
			}
			if call := a.asked(t); call.APIKey != "qk_test" || call.Door != "gateway" || call.Path != "/v1/exports" {
				t.Errorf("asked %+v", call)
			}
		})
	}
}

func TestGatewayJudgesByTheClientsAddress(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		opts Options
		want string
	}{{Options{}, "127.0.0.1"}, {trustingLoopback(), "1.2.3.4"}} {
		a := &answers{decision: admitted()}
		g := gateTo(t, a, c.opts, GatewayOptions{}, seen)
		g.ask("GET /", "X-Forwarded-For: 9.9.9.9, 1.2.3.4, 10.0.0.1", "X-Quotad-Subject: user-7", "X-Real-IP: 8.8.8.8", "Connection: X-Forwarded-For")
		call := a.asked(t)
		if call.Address.String() != c.want {
			t.Errorf("asked by %s, want %s", call.Address, c.want)
		}
		if trusted := c.want == "1.2.3.4"; (call.Subject == "user-7") != trusted || (call.Subject == "") == trusted {
			t.Errorf("trusted %v: asked for subject %q", trusted, call.Subject)
		}
	}
}

// What is judged is what the upstream gets, byte for byte; only bytes that may not
// stand in a URL are encoded.
func TestGatewayPassesThePathOnAsItWasJudged(t *testing.T) {
	t.Parallel()
	for target, c := range map[string]struct{ judged, sent string }{
		"/":                                   {"/", "/"},
		"/v1/a?b=c&d":                         {"/v1/a", "/v1/a?b=c&d"},
		"/v1/a?":                              {"/v1/a", "/v1/a?"},
		"/v1/a?x=%zz;y=1&a=%":                 {"/v1/a", "/v1/a?x=%zz;y=1&a=%"},
		"//v1//a/./b/":                        {"//v1//a/./b/", "//v1//a/./b/"},
		"/v1/../a":                            {"/v1/../a", "/v1/../a"}, // for the checker to refuse
		"/a%2Fb%2fc%20":                       {"/a%2Fb%2fc%20", "/a%2Fb%2fc%20"},
		"/%61%41~%7e":                         {"/%61%41~%7e", "/%61%41~%7e"},
		"/a%2Fb|c\"<>^`{}":                    {"/a%2Fb|c\"<>^`{}", "/a%2Fb%7Cc%22%3C%3E%5E%60%7B%7D"},
		"/é":                                  {"/é", "/%C3%A9"},
		"/a;b=c/d!$&'()*+,=:@[]":              {"/a;b=c/d!$&'()*+,=:@[]", "/a;b=c/d!$&'()*+,=:@[]"},
		"http://other.example.com//v1/a%2F?q": {"//v1/a%2F", "//v1/a%2F?q"},
	} {
		a := &answers{decision: admitted()}
		g := gateTo(t, a, Options{}, GatewayOptions{}, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.RequestURI) })
		status, _, body := g.ask("GET " + target)
		if status != http.StatusOK || body != c.sent {
			t.Errorf("%s: the upstream got %d %q, want %q", target, status, body, c.sent)
		}
		if call := a.asked(t); call.Path != c.judged {
			t.Errorf("%s: judged %q, want %q", target, call.Path, c.judged)
		}
	}
}

func TestGatewayRefusesBeforeTheUpstream(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		line    string
		headers []string
		want    quotad.Code
		asked   bool
	}{
		"two keys":              {"GET /", []string{"X-API-Key: qk_other"}, quotad.CodeAmbiguousCredentials, false},
		"the same key twice":    {"GET /", []string{"x-api-KEY: qk_test"}, quotad.CodeAmbiguousCredentials, false},
		"a token beside it":     {"GET /", []string{"Authorization: Bearer qa_other"}, quotad.CodeAmbiguousCredentials, false},
		"a key in the query":    {"GET /?key=qk_other", nil, quotad.CodeAmbiguousCredentials, false},
		"CONNECT to a host":     {"CONNECT db.internal:5432", nil, quotad.CodeMethodNotAllowed, false},
		"CONNECT to a path":     {"CONNECT /x", nil, quotad.CodeMethodNotAllowed, false},
		"an unreadable upgrade": {"GET /", []string{"Connection: Upgrade", "Upgrade: \xff"}, quotad.CodeInvalidRequest, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := &answers{decision: admitted()}
			g := gateTo(t, a, Options{}, GatewayOptions{}, seen)
			status, _, body := g.ask(c.line, c.headers...)
			if status != c.want.Status() || !strings.Contains(body, `"error":"`+string(c.want)+`"`) {
				t.Errorf("got %d %s, want %s", status, body, c.want)
			}
			a.neverAsked(t)
			if g.reached.Load() != 0 {
				t.Error("the upstream was reached")
			}
		})
	}
	for name, a := range map[string]*answers{
		"a limit":    {decision: refused()},
		"a path":     {err: &quotad.Error{Code: quotad.CodeInvalidPath}},
		"no key":     {err: &quotad.Error{Code: quotad.CodeAPIKeyRequired}},
		"a group":    {err: &quotad.Error{Code: quotad.CodeRouteNotAllowed}},
		"the store":  {err: &quotad.Error{Code: quotad.CodeLimiterUnavailable}},
		"a bad call": {err: fmt.Errorf("text that is nobody's business")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := gateTo(t, a, Options{}, GatewayOptions{}, seen)
			status, header, body := g.ask("GET /")
			want := http.StatusTooManyRequests
			if a.err != nil {
				want = quotad.ProblemOf(a.err).Status
			} else if header.Get("Retry-After") != "30" || header.Get("X-RateLimit-Remaining") != "0" || !strings.Contains(body, `"violated-policies":["exports"]`) {
				t.Errorf("got %v %s", header, body)
			}
			if status != want || header.Get("Cache-Control") != "no-store" || strings.Contains(body, "business") || g.reached.Load() != 0 {
				t.Errorf("got %d %v %s; the upstream was reached %d times", status, header, body, g.reached.Load())
			}
		})
	}
}

func TestGatewayPassesPreflightsOnUncounted(t *testing.T) {
	t.Parallel()
	preflight := []string{"Origin: https://app.example.com", "Access-Control-Request-Method: POST"}
	a := &answers{err: &quotad.Error{Code: quotad.CodeAPIKeyRequired}}
	g := gateTo(t, a, Options{CORSOrigins: []string{"https://app.example.com"}}, GatewayOptions{}, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Access-Control-Allow-Origin", "of-the-upstream")
		w.WriteHeader(http.StatusNoContent)
	})
	for range 10 {
		if status, header, _ := g.ask("OPTIONS /v1/exports", preflight...); status != http.StatusNoContent ||
			strings.Join(header["Access-Control-Allow-Origin"], "|") != "of-the-upstream" {
			t.Errorf("got %d %v", status, header)
		}
	}
	a.neverAsked(t)
	if g.reached.Load() != 10 {
		t.Errorf("the upstream got %d", g.reached.Load())
	}
	for _, more := range []string{"Content-Length: 4\r\n\r\nbody", "Transfer-Encoding: chunked\r\n\r\n0", "Connection: Upgrade\r\nUpgrade: websocket"} {
		if status, _, _ := g.ask("OPTIONS /v1/exports", append(preflight, more)...); status != http.StatusUnauthorized || g.reached.Load() != 10 {
			t.Errorf("a preflight that brings %q: got %d", more, status)
		}
	}
	if status, _, body := g.ask("OPTIONS /a/../b", preflight...); status != http.StatusBadRequest || g.reached.Load() != 10 {
		t.Errorf("an ambiguous path: got %d %s", status, body)
	}
	status, header, _ := g.ask("GET /", "Origin: https://app.example.com")
	if status != http.StatusUnauthorized || header.Get("Access-Control-Allow-Origin") != "https://app.example.com" ||
		!strings.Contains(header.Get("Access-Control-Expose-Headers"), "Retry-After") {
		t.Errorf("a refusal is not for the page to read: %d %v", status, header)
	}
}

func TestGatewayChoosesTheUpstreamByRouteGroup(t *testing.T) {
	t.Parallel()
	u, err := ParseUpstreams("exports=http://10.0.0.7:3000, http://10.0.0.5:3000,search=https://[2001:db8::1]")
	if err != nil {
		t.Fatal(err)
	}
	for group, want := range map[string]string{"exports": "http://10.0.0.7:3000", "search": "https://[2001:db8::1]", "default": "http://10.0.0.5:3000", "": "http://10.0.0.5:3000"} {
		if got := u.of(group).name; got != want {
			t.Errorf("%s goes to %s, want %s", group, got, want)
		}
	}
	for _, text := range []string{
		"", "10.0.0.5:3000", "ftp://a", "http://", "http://a/path", "http://a?b", "http://u:p@a", "http://a,http://b", "x=http://a",
		"x=http://a,x=http://b,http://c", "X Y=http://a,http://b", "http://a,", "http://a#b",
		"http://a:99999", "http://a:0", "http://a:", "http://a?", "http://a#", "x=http://a:65536,http://b",
	} {
		if _, err := ParseUpstreams(text); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
	for _, text := range []string{"http://a/", "http://a:65535", "https://[2001:db8::1]:443"} {
		if _, err := ParseUpstreams(text); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}
