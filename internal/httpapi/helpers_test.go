package httpapi

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/quota"
)

// now is the time in these tests.
var now = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// answers is a Checker that gives what a test wants on the wire, and remembers
// what it was asked.
type answers struct {
	decision  quotad.Decision
	decisions []quotad.Decision
	results   []quota.Result // of a list; decision or err of each where it is nil
	err       error
	before    func()

	// keptOut is the answer to calls that a door refuses; their own fault by default.
	keptOut *quotad.Decision

	mu     sync.Mutex
	calls  []quota.Call
	faults []quota.Call // those that a door refuses
}

func (a *answers) Check(_ context.Context, call quota.Call) (quotad.Decision, error) {
	if call.Fault != nil {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.faults = append(a.faults, call)
		if a.keptOut != nil {
			return *a.keptOut, nil
		}
		return quotad.Decision{}, call.Fault
	}
	if call.Queue != nil {
		call.Queue.Enter(a.decision.Tenant)
	}
	a.note(call)
	if a.before != nil {
		a.before()
	}
	return a.decision, a.err
}

func (a *answers) CheckAll(_ context.Context, calls []quota.Call) ([]quota.Result, quotad.Decision, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.calls = append(a.calls, calls...)
	switch {
	case a.results != nil:
		return a.results, quotad.Decision{}, nil
	case errors.Is(a.err, quotad.ErrInvalidAPIKey), errors.Is(a.err, quotad.ErrStoreUnavailable): // the credential's
		return nil, quotad.Decision{}, a.err
	case a.err == nil && !a.decision.Allowed: // kept out by its address
		return nil, a.decision, nil
	}
	var results []quota.Result
	for _, call := range calls {
		r := quota.Result{Decision: a.decision, Err: a.err}
		if call.Fault != nil {
			r = quota.Result{Err: call.Fault}
		}
		results = append(results, r)
	}
	return results, quotad.Decision{}, nil
}

func (a *answers) Limits(_ context.Context, call quota.Call) ([]quotad.Decision, error) {
	a.note(call)
	return a.decisions, a.err
}

func (a *answers) note(call quota.Call) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.calls = append(a.calls, call)
}

// asked is the one call that the checker got.
func (a *answers) asked(t *testing.T) quota.Call {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.calls) != 1 {
		t.Fatalf("the checker was asked %d times, want once", len(a.calls))
	}
	return a.calls[0]
}

func (a *answers) neverAsked(t *testing.T) {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.calls) != 0 {
		t.Errorf("the checker was asked: %+v", a.calls)
	}
}

// admitted is a decision of two limits and a shadow.
func admitted() quotad.Decision {
	return quotad.Decision{
		Allowed: true, Tenant: "acme", KeyID: "k1", Tier: "pro", RouteGroup: "exports", Cost: 1,
		Limits: []quotad.LimitStatus{
			status("base", 1000, 900, 60, 12),
			status("exports", 20, 19, 300, 15),
			{Policy: "trial", Limit: 5, Remaining: 0, Window: 60, RetryAfter: 60, Shadow: true, ResetAt: now},
		},
	}
}

func status(policy string, limit, remaining, window, reset int64) quotad.LimitStatus {
	return quotad.LimitStatus{
		Policy: policy, Scope: quotad.ScopeKey, Algorithm: quotad.TokenBucket, Limit: limit, Remaining: remaining,
		Window: window, ResetAfter: reset, Allowed: true, ResetAt: now.Add(time.Duration(reset)*time.Second - time.Millisecond),
	}
}

// refused is a decision that the limit "exports" refuses for 30 seconds.
func refused() quotad.Decision {
	d := admitted()
	d.Allowed, d.RetryAfter = false, 30
	l := &d.Limits[1]
	l.Allowed, l.Remaining, l.RetryAfter, l.ResetAfter = false, 0, 30, 30
	l.ResetAt = now.Add(30 * time.Second)
	return d
}

// service is a server over the answers. Its peer, 192.0.2.1, is no proxy.
func service(t *testing.T, a *answers, opts Options) *Server {
	t.Helper()
	opts.Now = func() time.Time { return now }
	return New(a, opts)
}

// trusting are the options that trust the peer of httptest's requests.
func trusting() Options {
	return Options{TrustedProxies: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}}
}

// request is a request with the headers given as "Name: value".
func request(method, target, body string, headers ...string) *http.Request {
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	if body == "" {
		r = httptest.NewRequest(method, target, nil)
	}
	for _, line := range headers {
		name, value, _ := strings.Cut(line, ": ")
		r.Header.Add(name, value)
	}
	return r
}

const withKey = "X-API-Key: qk_test"

// get answers a GET with a key and the headers.
func get(s *Server, target string, headers ...string) *httptest.ResponseRecorder {
	return do(s, request("GET", target, "", append(headers, withKey)...))
}

// checkBody answers a check with a key, the body and the headers.
func checkBody(s *Server, body string, headers ...string) *httptest.ResponseRecorder {
	return do(s, request("POST", "/v1/check", body, append(headers, withKey, "Content-Type: application/json")...))
}

func do(s *Server, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, r)
	return w
}

// header is a header by its exact name.
func header(w *httptest.ResponseRecorder, name string) string {
	return strings.Join(w.Result().Header[name], " | ")
}

// wantHeaders compares headers given as "Name: value"; "Name:" means absent.
func wantHeaders(t *testing.T, w *httptest.ResponseRecorder, lines ...string) {
	t.Helper()
	for _, line := range lines {
		name, want, present := strings.Cut(line, ": ")
		name = strings.TrimSuffix(name, ":")
		_, is := w.Result().Header[name]
		if got := header(w, name); got != want || is != present {
			t.Errorf("%s: got %q (present %v), want %q", name, got, is, want)
		}
	}
}

func wantStatus(t *testing.T, w *httptest.ResponseRecorder, want int) {
	t.Helper()
	if w.Code != want {
		t.Errorf("got %d, want %d: %s", w.Code, want, w.Body)
	}
}

// wantRefusal expects a status and an error code, and an answer that is not stored.
func wantRefusal(t *testing.T, w *httptest.ResponseRecorder, code quotad.Code) {
	t.Helper()
	wantStatus(t, w, code.Status())
	wantHeaders(t, w, "Cache-Control: no-store")
	if !strings.HasPrefix(w.Body.String(), `{"error":"`+string(code)+`",`) {
		t.Errorf("want %s, got %s", code, w.Body)
	}
}
