package quotad_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/testenv"
)

// service is a Go service with the middleware before its handler.
type service struct {
	t      testing.TB
	url    string
	served atomic.Int64
}

// newService answers what is admitted with its tenant.
func newService(t testing.TB, c *quotad.Client, o quotad.MiddlewareOptions) *service {
	t.Helper()
	return serving(t, c, o, func(w http.ResponseWriter, r *http.Request) {
		d, _ := quotad.DecisionFrom(r.Context())
		_, _ = io.WriteString(w, "for "+d.Tenant)
	})
}

func serving(t testing.TB, c *quotad.Client, o quotad.MiddlewareOptions, handler http.HandlerFunc) *service {
	t.Helper()
	s := &service{t: t}
	s.url = answering(t, c.Middleware(o)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.served.Add(1)
		handler(w, r)
	})).ServeHTTP)
	return s
}

// reply is what a caller of the service got.
type reply struct {
	status int
	header http.Header
	body   string
}

func (s *service) call(method, path string, key quotad.Credential, header ...string) reply {
	s.t.Helper()
	r, err := http.NewRequest(method, s.url+path, nil)
	must(s.t, r, err)
	if key != "" {
		r.Header.Set("X-API-Key", string(key))
	}
	for _, line := range header {
		name, value, _ := strings.Cut(line, ": ")
		r.Header.Add(name, value)
	}
	res, err := http.DefaultClient.Do(r)
	must(s.t, res, err)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	must(s.t, body, err)
	return reply{status: res.StatusCode, header: res.Header, body: string(body)}
}

// problem is the body of a refusal, of which all that refusals have in common holds.
func (a reply) problem(t testing.TB, want quotad.Code) quotad.Problem {
	t.Helper()
	var p quotad.Problem
	if err := json.Unmarshal([]byte(a.body), &p); err != nil || p.Error != want || p.Status != a.status || a.status != want.Status() {
		t.Fatalf("got %d %s, want %s", a.status, a.body, want)
	}
	a.carries(t, "Cache-Control: no-store", "X-Content-Type-Options: nosniff", "Vary: Accept, Accept-Language")
	if p.RetryAfter > 0 {
		a.carries(t, "Retry-After: "+strconv.FormatInt(p.RetryAfter, 10))
	}
	return p
}

func (a reply) carries(t testing.TB, lines ...string) {
	t.Helper()
	for _, line := range lines {
		name, want, _ := strings.Cut(line, ": ")
		if got := strings.Join(a.header.Values(name), " | "); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
}

func TestAnAdmittedRequestIsServedWithItsRates(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s, key := newService(t, w.metered(), quotad.MiddlewareOptions{}), w.key("acme")
	for left := 9; left >= 7; left-- {
		a := s.call("GET", "/v1/exports/7?format=csv", key)
		if a.status != 200 || a.body != "for acme" {
			t.Fatalf("got %+v", a)
		}
		n := strconv.Itoa(left)
		a.carries(t, "X-RateLimit-Limit: 10", "X-RateLimit-Remaining: "+n, "X-RateLimit-Reset: 1796040060",
			`RateLimit-Policy: "base";q=10;w=60`, `RateLimit: "base";r=`+n+`;t=60`, "Cache-Control: private", "Retry-After: ", "X-Quotad-Degraded: ")
	}
}

func TestARefusalReachesTheCallerWhole(t *testing.T) {
	t.Parallel()
	for name, build := range map[string]func(testing.TB) *world{"memory": newWorld, "redis": redisWorld} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := build(t)
			w.tier(quotad.TierSpec{Name: "few", RateLimit: quotad.Units(4), RateWindow: quotad.MaxWindow})
			w.tenant(quotad.TenantSpec{ID: "few", Tier: "few"})
			s, key := newService(t, w.metered(), quotad.MiddlewareOptions{}), w.key("few")
			methods := []string{"GET", "HEAD", "POST", "OPTIONS"}
			for i, method := range methods {
				if a := s.call(method, "/v1/things", key); a.status != 200 || a.header.Get("X-RateLimit-Remaining") != strconv.Itoa(3-i) {
					t.Errorf("%s: got %+v", method, a)
				}
			}
			for _, method := range methods {
				for range 2 { // from quotad, and from memory
					begun := time.Now()
					a := s.call(method, "/v1/things", key)
					if took := time.Since(begun); took > time.Minute {
						t.Errorf("%s took %v", method, took)
					}
					if method == "HEAD" {
						if a.body != "" || a.status != 429 {
							t.Errorf("HEAD: got %+v", a)
						}
					} else if p := a.problem(t, quotad.CodeRateLimitExceeded); !slices.Equal(p.ViolatedPolicies, []string{"base"}) || p.Limits != nil || p.RetryAfter < 2 {
						t.Errorf("%s: got %+v", method, p)
					}
					a.carries(t, "X-RateLimit-Limit: 4", "X-RateLimit-Remaining: 0", "Content-Type: application/json", "Content-Language: en")
					if a.header.Get("Retry-After") == "" || a.header.Get("RateLimit") == "" || a.header.Get("Content-Length") == "" {
						t.Errorf("%s: got %v", method, a.header)
					}
					unknown := s.call(method, "/v1/things", "qk_unknown")
					if method != "HEAD" {
						unknown.problem(t, quotad.CodeInvalidAPIKey)
					}
					unknown.carries(t, `WWW-Authenticate: ApiKey realm="quotad"`)
				}
			}
			if s.served.Load() != 4 {
				t.Errorf("%d requests were served, want 4", s.served.Load())
			}
		})
	}
}

func TestARefusalSpeaksItsCallersLanguage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s, key := newService(t, w.metered(), quotad.MiddlewareOptions{}), w.key("acme", func(k *quotad.KeySpec) {
		k.RateLimit, k.RateWindow = quotad.Units(0), quotad.Units(60)
	})
	english := s.call("GET", "/", key)
	arabic := s.call("GET", "/", key, "Accept-Language: ar", "Accept: application/problem+json")
	arabic.carries(t, "Content-Language: ar", "Content-Type: application/problem+json")
	if p := arabic.problem(t, quotad.CodeRateLimitExceeded); !strings.Contains(p.Message, "طلبات") {
		t.Errorf("got %q", p.Message)
	}
	if again := s.call("GET", "/", key); again.body != english.body || again.header.Get("Content-Language") != "en" {
		t.Errorf("got %+v", again)
	}
	huge := s.call("GET", "/", key, "Accept-Language: "+strings.Repeat("ar,", 30_000))
	huge.carries(t, "Content-Language: en")
	huge.problem(t, quotad.CodeRateLimitExceeded)
}

func TestWhatQuotadDoesNotAnswerThePolicyDoes(t *testing.T) {
	t.Parallel()
	url, _ := frozen(t)
	var told atomic.Int64
	o := quotad.MiddlewareOptions{OnError: func(r *http.Request, err error) {
		if told.Add(1); r.URL.Path != "/v1/things" || err == nil {
			t.Errorf("told of %s: %v", r.URL, err)
		}
	}}
	closed := newService(t, newClient(t, url, within(30*time.Millisecond)), o)
	opened := newService(t, newClient(t, url, within(30*time.Millisecond), open), o)
	for range 10 {
		for _, method := range []string{"GET", "POST", "OPTIONS"} {
			a := closed.call(method, "/v1/things", "qk_a")
			if p := a.problem(t, quotad.CodeLimiterUnavailable); p.RetryAfter != 1 {
				t.Errorf("got %+v", p)
			}
			a = opened.call(method, "/v1/things", "qk_a")
			if a.status != 200 {
				t.Errorf("got %+v", a)
			}
			a.carries(t, "X-Quotad-Degraded: open", "X-RateLimit-Limit: ")
		}
	}
	if closed.served.Load() != 0 || opened.served.Load() != 30 || told.Load() != 60 {
		t.Errorf("closed served %d, open %d, and %d were told", closed.served.Load(), opened.served.Load(), told.Load())
	}
}

func TestErrorsThatAreNobodysFaultHere(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	key := w.key("acme")
	var told []error
	o := quotad.MiddlewareOptions{OnError: func(_ *http.Request, err error) { told = append(told, err) }}
	s := newService(t, w.metered(), o)
	s.call("GET", "/", "").problem(t, quotad.CodeAPIKeyRequired)
	s.call("GET", "/a/../b", key).problem(t, quotad.CodeInvalidPath)
	s.call("GET", "/"+strings.Repeat("a", 40_000), key).problem(t, quotad.CodeInvalidPath)
	if told != nil {
		t.Errorf("told of %v", told)
	}
	broken := errors.New("no session")
	o.Question = func(*http.Request) (quotad.CheckRequest, error) { return quotad.CheckRequest{}, broken }
	p := newService(t, w.metered(), o).call("GET", "/", key).problem(t, quotad.CodeInternal)
	if len(told) != 1 || !errors.Is(told[0], broken) || strings.Contains(p.Detail, "session") {
		t.Errorf("told of %v, and the caller of %+v", told, p)
	}
	wrong := newService(t, newClient(t, w.url+"/base", open), quotad.MiddlewareOptions{OnError: o.OnError})
	wrong.call("GET", "/", key).problem(t, quotad.CodeInternal)
	if len(told) != 2 || !strings.Contains(told[1].Error(), "base URL") {
		t.Errorf("told of %v", told)
	}
	o.Question = func(*http.Request) (quotad.CheckRequest, error) {
		return quotad.CheckRequest{}, quotad.NewError(quotad.CodeForbidden, "not from here")
	}
	newService(t, w.metered(), o).call("GET", "/", key).problem(t, quotad.CodeForbidden)
}

// A service's own key, and its costs, are never the end user's to spend or to choose.
func TestARequestBringsItsOwnCredentialAndNoCost(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	own, key := w.key("acme"), w.key("acme")
	s := newService(t, w.metered(byToken(w.token()), func(o *quotad.ClientOptions) { o.APIKey = own }), quotad.MiddlewareOptions{})
	s.call("GET", "/", "").problem(t, quotad.CodeAPIKeyRequired)
	if a := s.call("GET", "/?cost=0", key); a.header.Get("X-RateLimit-Remaining") != "9" {
		t.Errorf("got %+v", a)
	}
	if a := s.call("GET", "/?cost=5", key); a.header.Get("X-RateLimit-Remaining") != "8" {
		t.Errorf("got %+v", a)
	}
}

// costed is a question whose cost a service takes from its request.
func costed(r *http.Request) (quotad.CheckRequest, error) {
	q := quotad.QuestionOf(r)
	if text := r.Header.Get("X-Units"); text != "" {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return q, quotad.NewError(quotad.CodeInvalidCost, "X-Units must be a number.")
		}
		q.Cost = &n
	}
	return q, nil
}

func TestOddCostsHandOutNothing(t *testing.T) {
	t.Parallel()
	for _, algorithm := range quotad.Algorithms {
		t.Run(string(algorithm), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.tier(quotad.TierSpec{Name: "t", RateLimit: quotad.Units(10), Algorithm: algorithm})
			w.tenant(quotad.TenantSpec{ID: "t", Tier: "t"})
			s, key := newService(t, w.metered(), quotad.MiddlewareOptions{Question: costed}), w.key("t")
			for _, cost := range []string{"-1", "-9223372036854775808", "9007199254740992", "9223372036854775807", "0.5", "1e3", "NaN", "+-3"} {
				s.call("GET", "/", key, "X-Units: "+cost).problem(t, quotad.CodeInvalidCost)
			}
			s.call("GET", "/", key, "X-Units: 11").problem(t, quotad.CodeCostExceedsLimit)
			for range 100 {
				if a := s.call("GET", "/", key, "X-Units: 0"); a.status != 200 || a.header.Get("X-RateLimit-Remaining") != "10" {
					t.Fatalf("a peek: got %+v", a)
				}
			}
			if a := s.call("GET", "/", key, "X-Units: 10"); a.status != 200 || a.header.Get("X-RateLimit-Remaining") != "0" {
				t.Errorf("got %+v", a)
			}
			for _, cost := range []string{"1", "-1", "1", "0", "1"} {
				want := map[string]int{"1": 429, "-1": 400, "0": 429}[cost]
				if a := s.call("GET", "/", key, "X-Units: "+cost); a.status != want && cost != "0" {
					t.Errorf("%s: got %+v", cost, a)
				}
			}
		})
	}
}

func TestGroupsAndTenantsShareNoCounter(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.group(quotad.RouteGroupSpec{Name: "b", Match: []string{"GET /b"}})
	w.group(quotad.RouteGroupSpec{Name: "b.c", Match: []string{"GET /bc"}})
	for _, id := range []string{"a", "a.b", "a-b", "a_b"} {
		w.tenant(quotad.TenantSpec{ID: id, Tier: "pro"})
	}
	byTenant := quotad.MiddlewareOptions{Question: func(r *http.Request) (quotad.CheckRequest, error) {
		q := quotad.QuestionOf(r)
		q.Tenant, q.Subject = r.Header.Get("X-Tenant"), r.Header.Get("X-User")
		return q, nil
	}}
	s := newService(t, w.metered(byToken(w.token())), byTenant)
	for range 10 {
		s.call("GET", "/bc", "", "X-Tenant: a", "X-User: u")
	}
	s.call("GET", "/bc", "", "X-Tenant: a", "X-User: u").problem(t, quotad.CodeRateLimitExceeded)
	for _, other := range [][]string{
		{"/b", "X-Tenant: a", "X-User: u"}, {"/bc", "X-Tenant: a", "X-User: U"}, {"/bc", "X-Tenant: a"}, {"/b", "X-Tenant: a.b", "X-User: u"},
		{"/bc", "X-Tenant: a.b", "X-User: u"}, {"/bc", "X-Tenant: a-b", "X-User: u"}, {"/bc", "X-Tenant: a_b", "X-User: u"}, {"/bc", "X-Tenant: a", "X-User: u|{}:%3A"},
	} {
		if a := s.call("GET", other[0], "", other[1:]...); a.status != 200 || a.header.Get("X-RateLimit-Remaining") != "9" {
			t.Errorf("%v: got %+v", other, a)
		}
	}
}

func TestADayEndsAtItsTenantsMidnight(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.tier(quotad.TierSpec{Name: "daily", Quotas: []quotad.Quota{
		{Name: "daily", RouteGroup: "*", Scope: quotad.ScopeTenant, Quota: quotad.Units(2), Period: quotad.Day},
	}})
	w.tenant(quotad.TenantSpec{ID: "sh", Tier: "daily", TimeZone: "Asia/Shanghai"})
	s, key := newService(t, w.metered(), quotad.MiddlewareOptions{}), w.key("sh")
	w.clock.Set(time.Date(2026, 11, 30, 15, 59, 57, 0, time.UTC))
	for range 2 {
		if a := s.call("GET", "/", key); a.status != 200 {
			t.Fatalf("got %+v", a)
		}
	}
	if p := s.call("GET", "/", key).problem(t, quotad.CodeQuotaExceeded); p.RetryAfter != 3 {
		t.Errorf("got %+v", p)
	}
	w.clock.Set(time.Date(2026, 11, 30, 15, 59, 59, 0, time.UTC))
	s.call("GET", "/", key).problem(t, quotad.CodeQuotaExceeded)
	w.clock.Set(time.Date(2026, 11, 30, 16, 0, 0, 0, time.UTC))
	if a := s.call("GET", "/", key); a.status != 200 || a.header.Get("X-RateLimit-Remaining") != "1" {
		t.Errorf("got %+v", a)
	}
}

func TestPreflightsAreFreeAndRefusalsReadable(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.tier(quotad.TierSpec{Name: "two", RateLimit: quotad.Units(2)})
	w.tenant(quotad.TenantSpec{ID: "two", Tier: "two"})
	key := w.key("two")
	metered := w.metered().Middleware(quotad.MiddlewareOptions{})(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	s := &service{t: t, url: answering(t, func(w http.ResponseWriter, r *http.Request) { // the CORS middleware around it
		w.Header().Set("Access-Control-Allow-Origin", "https://app.example.com")
		w.Header().Set("Access-Control-Expose-Headers", "Retry-After, X-RateLimit-Remaining")
		metered.ServeHTTP(w, r)
	})}
	n := w.asks(func() {
		for range 10 {
			a := s.call("OPTIONS", "/v1/things", "", "Origin: https://app.example.com", "Access-Control-Request-Method: GET")
			if a.status != 200 {
				t.Errorf("got %+v", a)
			}
		}
	})
	if n != 0 {
		t.Errorf("quotad was asked %d times about preflights", n)
	}
	for _, want := range []int{200, 200, 429, 429} {
		a := s.call("GET", "/v1/things", key, "Origin: https://app.example.com")
		if a.status != want {
			t.Errorf("got %+v, want %d", a, want)
		}
		a.carries(t, "Access-Control-Allow-Origin: https://app.example.com", "Access-Control-Expose-Headers: Retry-After, X-RateLimit-Remaining")
	}
}

func TestSkippedRequestsAreNotAsked(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := newService(t, w.metered(), quotad.MiddlewareOptions{Skip: func(r *http.Request) bool { return r.URL.Path == "/healthz" }})
	if n := w.asks(func() {
		if a := s.call("GET", "/healthz", ""); a.status != 200 || a.body != "for " {
			t.Errorf("got %+v", a)
		}
	}); n != 0 {
		t.Error("quotad was asked")
	}
	s.call("GET", "/", "").problem(t, quotad.CodeAPIKeyRequired)
}

func TestOddKeysAreRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := newService(t, w.client(open), quotad.MiddlewareOptions{})
	for _, key := range []string{"k", "a\tb", "\x80\xff", "日本語", strings.Repeat("k", 8<<10), strings.Repeat("k", 500_000)} {
		s.call("GET", "/", quotad.Credential(key)).problem(t, quotad.CodeInvalidAPIKey)
	}
	if a := s.call("GET", "/", quotad.Credential(strings.Repeat("k", 2<<20))); a.status != 431 {
		t.Errorf("got %d", a.status)
	}
	if s.served.Load() != 0 {
		t.Error("one was admitted")
	}
}

// raw is the status of a request whose line is sent as it is.
func (s *service) raw(line string, key quotad.Credential) string {
	s.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	must(s.t, conn, err)
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(testenv.Patience))
	_, _ = io.WriteString(conn, line+" HTTP/1.1\r\nHost: s\r\nConnection: close\r\nX-API-Key: "+string(key)+"\r\n\r\n")
	text, _ := io.ReadAll(conn)
	_, status, _ := strings.Cut(string(text), " ")
	return status[:min(3, len(status))]
}

// The path is asked about as it stands on the request line, whatever a router in
// between made of r.URL.
func TestOtherSpellingsOfAPathEscapeNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.group(quotad.RouteGroupSpec{Name: "report", Match: []string{"GET /v1/reports/export"}})
	w.editTier("pro", func(s *quotad.TierSpec) {
		s.Limits = []quotad.Limit{{Name: "report", RouteGroup: "report", Scope: quotad.ScopeKey, Algorithm: quotad.FixedWindow, RateLimit: quotad.Units(2), RateWindow: 60}}
	})
	key := w.key("acme")
	metered := w.metered().Middleware(quotad.MiddlewareOptions{})(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	s := &service{t: t, url: answering(t, http.StripPrefix("/v1", metered).ServeHTTP)}
	for _, want := range []string{"200", "200", "429"} {
		if got := s.raw("GET /v1/reports/export?a=b", key); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	for _, path := range []string{
		"/v1//reports/export", "/v1/./reports/export", "/v1/x/../reports/export", "/v1/reports/export/", "/v1/Reports/Export", "/v1/reports%2Fexport",
		"/v1/reports/export%00", "/v1/reports/export;x", "http://s/v1/reports/export", "/v1/%2e%2e/v1/reports/export", "/v1/reports%5Cexport", "/v1/reports/export?",
		"/v1/reports/exp\xefrt", "/v1/reports/export%FF",
	} {
		got := s.raw("GET "+path, key)
		if got != "429" && got != "400" && got != "404" {
			t.Errorf("%q: got %s", path, got)
		}
	}
	if left := remaining(t, w.metered(), key); left != 10 {
		t.Errorf("another group was charged: %d units are left", left)
	}
}

func TestALeakyBucketsDelayIsWaited(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.tier(quotad.TierSpec{Name: "queue", RateLimit: quotad.Units(2), RateWindow: 1, Burst: quotad.Units(1), MaxDelayMS: 30_000, Algorithm: quotad.LeakyBucket})
	w.tenant(quotad.TenantSpec{ID: "q", Tier: "queue"})
	s, key := newService(t, w.metered(), quotad.MiddlewareOptions{}), w.key("q")
	s.call("GET", "/", key)
	begun := time.Now()
	if a := s.call("GET", "/", key); a.status != 200 || time.Since(begun) < 400*time.Millisecond {
		t.Errorf("served after %v: %+v", time.Since(begun), a)
	} else if a.header.Get("X-Quotad-Delay-Ms") != "" {
		t.Error("its caller is told to wait again")
	}
	// Two callers are on their way; the next waits for some seconds, and hangs up.
	for range 6 {
		allow(t, w.metered(), quotad.CheckRequest{APIKey: key, Method: "GET", Path: "/"})
	}
	before := s.served.Load()
	client := &http.Client{Timeout: 100 * time.Millisecond}
	r, _ := http.NewRequest("GET", s.url, nil)
	r.Header.Set("X-API-Key", string(key))
	if res, err := client.Do(r); err == nil {
		t.Errorf("got %d", res.StatusCode)
	}
	if s.served.Load() != before {
		t.Error("who hung up was served")
	}
}

func TestParallelRequestsGetExactlyTheLimit(t *testing.T) {
	t.Parallel()
	for name, build := range map[string]func(testing.TB) *world{"memory": newWorld, "redis": redisWorld} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := build(t)
			w.tier(quotad.TierSpec{Name: "large", RateLimit: quotad.Units(300), RateWindow: quotad.MaxWindow})
			w.tenant(quotad.TenantSpec{ID: "big", Tier: "large"})
			key := w.key("big")
			// Two services, each with what it remembers.
			services := []*service{newService(t, w.client(), quotad.MiddlewareOptions{}), newService(t, w.client(), quotad.MiddlewareOptions{})}
			transport := &http.Transport{MaxIdleConnsPerHost: 200}
			t.Cleanup(transport.CloseIdleConnections)
			client := &http.Client{Transport: transport}
			var wg sync.WaitGroup
			for i := range 200 {
				wg.Go(func() {
					for range 4 {
						r, _ := http.NewRequest("GET", services[i%2].url, nil)
						r.Header.Set("X-API-Key", string(key))
						res, err := client.Do(r)
						if err != nil {
							t.Error(err)
							return
						}
						_, _ = io.Copy(io.Discard, res.Body)
						_ = res.Body.Close()
						if res.StatusCode != 200 && res.StatusCode != 429 {
							t.Errorf("got %d", res.StatusCode)
						}
					}
				})
			}
			wg.Wait()
			if got := services[0].served.Load() + services[1].served.Load(); got != 300 {
				t.Errorf("%d of 300 were served", got)
			}
		})
	}
}

// What a caller who hangs up leaves behind is a whole charge, and a quotad that is
// not taken for one that is away.
func TestCallersWhoHangUpHarmNobody(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var dialled atomic.Int64
	c := w.client(func(o *quotad.ClientOptions) {
		o.HTTPClient = &http.Client{Transport: &http.Transport{DialContext: counting(&dialled), MaxIdleConnsPerHost: 64}}
	})
	key := w.key("acme")
	handler := c.Middleware(quotad.MiddlewareOptions{})(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for range 200 {
		ctx, cancel := context.WithCancel(t.Context())
		r := httptest.NewRequestWithContext(ctx, "GET", "/", nil)
		r.Header.Set("X-API-Key", string(key))
		cancel()
		handler.ServeHTTP(httptest.NewRecorder(), r)
	}
	if dialled.Load() != 1 {
		t.Errorf("%d connections were made", dialled.Load())
	}
	if left := remaining(t, c, key); left != 0 {
		t.Errorf("%d units are left", left)
	}
}

// Whoever calls the service is where its connection comes from, whatever it says.
func TestNoHeaderMakesACallerAnotherOne(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	perAddress := []quotad.Limit{{Name: "logins", RouteGroup: "login", Scope: quotad.ScopeIP, Algorithm: quotad.FixedWindow, RateLimit: quotad.Units(5), RateWindow: 60}}
	w.group(quotad.RouteGroupSpec{Name: "login", Match: []string{"POST /login"}, Auth: quotad.AuthNone, Limits: perAddress})
	s := newService(t, w.metered(), quotad.MiddlewareOptions{})
	admitted := 0
	for i := range 20 {
		claimed := "203.0.113." + strconv.Itoa(i)
		a := s.call("POST", "/login", "", "X-Forwarded-For: "+claimed, "X-Real-IP: "+claimed, "True-Client-IP: "+claimed, "CF-Connecting-IP: "+claimed,
			"Forwarded: for="+claimed, "X-Quotad-Subject: user"+strconv.Itoa(i))
		if a.status == 200 {
			admitted++
		} else {
			a.problem(t, quotad.CodeRateLimitExceeded)
		}
	}
	if admitted != 5 {
		t.Errorf("%d of 5 were admitted", admitted)
	}
	if a := s.call("POST", "/login", "", "Connection: X-Forwarded-For"); a.status != 429 {
		t.Errorf("got %+v", a)
	}
}
