package quotad_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/testenv"
)

// unanswered expects what both policies say in place of a quotad at the address.
func unanswered(t *testing.T, url string, change ...func(*quotad.ClientOptions)) {
	t.Helper()
	q := costing(quotad.CheckRequest{APIKey: "qk_a", RouteGroup: "exports"}, 3)
	closed := newClient(t, url, change...)
	var e *quotad.Error
	d, err := closed.Check(t.Context(), q)
	if !errors.Is(err, quotad.ErrLimiterUnavailable) || d.Allowed || !errors.As(err, &e) || e.RetryAfter != time.Second || e.Cause == nil {
		t.Errorf("closed: got %+v, %v", d, err)
	}
	if results, err := closed.CheckAll(t.Context(), []quotad.CheckRequest{q}); !errors.Is(err, quotad.ErrLimiterUnavailable) || results != nil {
		t.Errorf("closed: got %+v, %v", results, err)
	}
	opened := newClient(t, url, append(change, open)...)
	d, err = opened.Check(t.Context(), q)
	if err != nil || !d.Allowed || !d.Degraded || d.DegradedBy != quotad.FailOpen || d.RouteGroup != "exports" || d.Cost != 3 {
		t.Errorf("open: got %+v, %v", d, err)
	}
	results, err := opened.CheckAll(t.Context(), []quotad.CheckRequest{q, q})
	if err != nil || len(results) != 2 || !results[1].Decision.Allowed || !results[1].Decision.Degraded {
		t.Errorf("open: got %+v, %v", results, err)
	}
	for _, c := range []*quotad.Client{closed, opened} {
		if limits, err := c.Limits(t.Context(), quotad.LimitsRequest{APIKey: "qk_a"}); !errors.Is(err, quotad.ErrLimiterUnavailable) {
			t.Errorf("got %+v, %v", limits, err)
		}
	}
}

func TestThePolicyAnswersForAQuotadThatIsAway(t *testing.T) {
	t.Parallel()
	unanswered(t, "http://127.0.0.1:1") // nobody listens there
}

func TestThePolicyAnswersForAQuotadThatHangs(t *testing.T) {
	t.Parallel()
	url, _ := frozen(t)
	unanswered(t, url, within(30*time.Millisecond))
}

// What a broken proxy makes of an answer is no decision, and no admission unless
// the policy says so.
func TestThePolicyAnswersForWhatIsNotAnAnswer(t *testing.T) {
	t.Parallel()
	elsewhere := answering(t, func(w http.ResponseWriter, r *http.Request) {
		t.Errorf("%s %s was sent on, with %v", r.Method, r.URL, r.Header)
	})
	const decision = `{"allowed":true,"tenant":"acme","limits":[]}`
	internal := quotad.ProblemOf(&quotad.Error{Code: quotad.CodeInternal})
	text := func(status int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = w.Write([]byte(body))
		}
	}
	for name, handler := range map[string]http.HandlerFunc{
		"a proxy's page":               text(502, "<html><h1>502 Bad Gateway</h1></html>"),
		"a portal's page":              text(200, "<html>log in here</html>"),
		"nothing":                      text(200, ""),
		"no content":                   text(204, ""),
		"an empty object":              text(200, "{}"),
		"null":                         text(200, "null"),
		"an object of something else":  text(200, `{"status":"ok"}`),
		"an admission that denies":     text(200, strings.Replace(decision, "true", "false", 1)),
		"half a decision":              text(200, decision[:20]),
		"two decisions":                text(200, decision+decision),
		"a decision of another status": text(201, decision),
		"a balancer's word":            text(503, `{"error":"no healthy upstream"}`),
		"an application's word":        text(503, `{"timestamp":"now","status":503,"error":"Service Unavailable","path":"/v1/check"}`),
		"a proxy's own limit":          text(429, "slow down"),
		"a proxy's testenv.Patience":   text(408, ""),
		"a failure of quotad":          text(500, string(internal.AppendJSON(nil))),
		"a huge body":                  text(200, decision[:len(decision)-1]+`,"padding":"`+strings.Repeat("x", 9<<20)+`"}`),
		"a redirect": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, elsewhere, http.StatusTemporaryRedirect)
		},
		"less than was announced": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			_, _ = w.Write([]byte(decision))
		},
		"an end amid chunks": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte(decision[:20]))
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		},
		"another protocol": func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			_, _ = conn.Write([]byte("SSH-2.0-OpenSSH_9.2\r\n"))
			_ = conn.Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewUnstartedServer(handler)
			server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
			server.Start()
			t.Cleanup(server.Close)
			unanswered(t, server.URL)
		})
	}
}

// What a proxy says of the request is no sign that quotad is away: a caller could
// make it say so, and be admitted.
func TestNoPolicyAdmitsWhatAProxyRefuses(t *testing.T) {
	t.Parallel()
	for _, status := range []int{400, 401, 403, 404, 405, 413, 414, 431} {
		for _, body := range []string{"", "<html>blocked</html>", `{"error":"blocked"}`} {
			url := answering(t, func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(status)
				_, _ = w.Write([]byte(body))
			})
			c := newClient(t, url, open)
			for range 10 { // more than begin a pause
				d, err := c.Check(t.Context(), exports("qk_a"))
				if !errors.Is(err, &quotad.Error{Code: quotad.CodeInternal}) || d.Allowed || !strings.Contains(err.Error(), fmt.Sprint(status)) {
					t.Fatalf("%d %s: got %+v, %v", status, body, d, err)
				}
			}
			if _, err := c.CheckAll(t.Context(), []quotad.CheckRequest{exports("qk_a")}); err == nil {
				t.Errorf("%d: no error", status)
			}
			if _, err := c.Limits(t.Context(), quotad.LimitsRequest{}); err == nil {
				t.Errorf("%d: no error", status)
			}
		}
	}
}

// A quotad that knows no such resource is asked at a wrong base URL. That is not for
// callers to be told, and for no policy to admit.
func TestAWrongBaseURLIsAFault(t *testing.T) {
	t.Parallel()
	for _, code := range []quotad.Code{quotad.CodeNotFound, quotad.CodeMethodNotAllowed} {
		p := quotad.ProblemOf(&quotad.Error{Code: code})
		url := answering(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(p.Status)
			_, _ = w.Write(p.AppendJSON(nil))
		})
		c := newClient(t, url, open)
		d, err := c.Check(t.Context(), exports("qk_a"))
		if !errors.Is(err, &quotad.Error{Code: quotad.CodeInternal}) || d.Allowed || !strings.Contains(err.Error(), "base URL") {
			t.Errorf("%s: got %+v, %v", code, d, err)
		}
		if _, err := c.CheckAll(t.Context(), []quotad.CheckRequest{exports("qk_a")}); !errors.Is(err, &quotad.Error{Code: quotad.CodeInternal}) {
			t.Errorf("%s: got %v", code, err)
		}
	}
}

// A credential that no header can carry, or no server would read, is nobody's. It
// must not look like a quotad that is away.
func TestNoPolicyAdmitsACredentialThatCantBeSent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.client(open)
	for _, key := range []string{
		"k", "a\nb", "a\x00b", "a\x7fb", "a\tb", "\x80\xff", strings.Repeat("k", 8<<10), strings.Repeat("k", 1<<20),
	} {
		if d, err := c.Check(t.Context(), exports(quotad.Credential(key))); !errors.Is(err, quotad.ErrInvalidAPIKey) || d.Allowed {
			t.Errorf("%d bytes: got %+v, %v", len(key), d, err)
		}
	}
	list := quotad.Credential(strings.Repeat(string(w.key("acme"))+",", 100))
	if d, err := c.Check(t.Context(), exports(list)); !errors.Is(err, &quotad.Error{Code: quotad.CodeAmbiguousCredentials}) || d.Allowed {
		t.Errorf("a list: got %+v, %v", d, err)
	}
	if w.asked.Load() != 9 {
		t.Errorf("quotad was asked %d times: it counts failures", w.asked.Load())
	}
}

// quotad's own 503 is its tier's policy, or a key that it can't look up: an answer.
func TestQuotadsOwnRefusalToAnswerStands(t *testing.T) {
	t.Parallel()
	for _, want := range []*quotad.Error{quotad.ErrLimiterUnavailable, quotad.ErrStoreUnavailable} {
		p := quotad.ProblemOf(want)
		url := answering(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(p.Status)
			_, _ = w.Write(p.AppendJSON(nil))
		})
		c := newClient(t, url, open)
		for range 10 {
			var e *quotad.Error
			_, err := c.Check(t.Context(), exports("qk_a"))
			if !errors.Is(err, want) || !errors.As(err, &e) || e.RetryAfter != 7*time.Second {
				t.Fatalf("got %v, want %v", err, want)
			}
		}
	}
}

func TestADeadQuotadCostsATimeoutNowAndThen(t *testing.T) {
	t.Parallel()
	clock := testenv.NewClock()
	url, _ := frozen(t)
	sent := &sending{RoundTripper: &http.Transport{}}
	c := newClient(t, url, open, within(50*time.Millisecond), func(o *quotad.ClientOptions) {
		o.Now, o.HTTPClient = clock.Now, &http.Client{Transport: sent}
	})
	ask := func() {
		if d, err := c.Check(t.Context(), exports("qk_a")); err != nil || !d.Degraded {
			t.Errorf("got %+v, %v", d, err)
		}
	}
	for range 1000 {
		ask()
	}
	if sent.Load() != 5 {
		t.Errorf("%d calls were sent before the pause, want 5", sent.Load())
	}
	for n := int64(6); n < 9; n++ {
		clock.Advance(time.Second)
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(ask)
		}
		wg.Wait()
		ask()
		if sent.Load() != n {
			t.Errorf("%d calls were sent, want one more than before, %d", sent.Load(), n)
		}
	}
}

// sending counts the calls that are sent.
type sending struct {
	http.RoundTripper
	atomic.Int64
}

func (s *sending) RoundTrip(r *http.Request) (*http.Response, error) {
	s.Add(1)
	return s.RoundTripper.RoundTrip(r)
}

// switchable is a server that can be made to hang, or to hang up, and counts what it was asked.
type switchable struct {
	url            string
	hangs, hangsUp atomic.Bool
	asked          atomic.Int64
}

func newSwitchable(t *testing.T) *switchable {
	s := &switchable{}
	d := quotad.Decision{Allowed: true}
	s.url = answering(t, func(w http.ResponseWriter, r *http.Request) {
		s.asked.Add(1)
		if s.hangsUp.Load() {
			panic(http.ErrAbortHandler)
		}
		if s.hangs.Load() {
			_, _ = io.Copy(io.Discard, r.Body) // before that, net/http does not see who hangs up
			<-r.Context().Done()
			return
		}
		_, _ = w.Write(d.AppendJSON(nil))
	})
	return s
}

func TestAQuotadThatComesBackIsAskedAgainByAll(t *testing.T) {
	t.Parallel()
	clock, s := testenv.NewClock(), newSwitchable(t)
	var log bytes.Buffer
	c := newClient(t, s.url, func(o *quotad.ClientOptions) {
		o.Now, o.Logger = clock.Now, slog.New(slog.NewTextHandler(&log, nil))
	})
	allow(t, c, exports("qk_a"))
	s.hangsUp.Store(true)
	for range 20 {
		if _, err := c.Check(t.Context(), exports("qk_a")); !errors.Is(err, quotad.ErrLimiterUnavailable) {
			t.Fatalf("got %v", err)
		}
	}
	s.hangsUp.Store(false)
	if _, err := c.Check(t.Context(), exports("qk_a")); !errors.Is(err, quotad.ErrLimiterUnavailable) {
		t.Errorf("it was asked during the pause: %v", err)
	}
	clock.Advance(time.Second)
	before := s.asked.Load()
	for range 20 {
		allow(t, c, exports("qk_a"))
	}
	if got := s.asked.Load() - before; got != 20 {
		t.Errorf("it was asked %d times, want 20", got)
	}
	if strings.Count(log.String(), "quotad does not answer") != 1 || strings.Count(log.String(), "quotad answers again") != 1 {
		t.Errorf("log:\n%s", log.String())
	}
}

func TestAProbeWhoseCallerGivesUpLeavesItToTheNext(t *testing.T) {
	t.Parallel()
	clock, s := testenv.NewClock(), newSwitchable(t)
	s.hangsUp.Store(true)
	c := newClient(t, s.url, func(o *quotad.ClientOptions) { o.Now = clock.Now })
	for range 6 {
		_, _ = c.Check(t.Context(), exports("qk_a"))
	}
	s.hangsUp.Store(false)
	s.hangs.Store(true)
	clock.Advance(time.Second)
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := c.Check(ctx, exports("qk_a")); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("got %v", err)
	}
	s.hangs.Store(false)
	allow(t, c, exports("qk_a"))
}

// Callers that hang up say nothing of quotad.
func TestCallersWhoGiveUpBeginNoPause(t *testing.T) {
	t.Parallel()
	s := newSwitchable(t)
	s.hangs.Store(true)
	c := newClient(t, s.url)
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Millisecond)
			defer cancel()
			if _, err := c.Check(ctx, exports("qk_a")); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v", err)
			}
		})
	}
	wg.Wait()
	s.hangs.Store(false)
	allow(t, c, exports("qk_a"))
}

// A call whose answer is lost may have been charged, so it is sent once, also on a
// connection that was good before.
func TestAChargeIsNeverSentTwice(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	d := quotad.Decision{Allowed: true}
	url := answering(t, func(w http.ResponseWriter, _ *http.Request) {
		if asked.Add(1)%2 == 1 {
			_, _ = w.Write(d.AppendJSON(nil))
			return
		}
		panic(http.ErrAbortHandler) // charged, and the connection is gone
	})
	c := newClient(t, url)
	for n := range int64(20) {
		_, err := c.Check(t.Context(), exports("qk_a"))
		if lost := n%2 == 1; lost != errors.Is(err, quotad.ErrLimiterUnavailable) {
			t.Errorf("call %d: got %v", n+1, err)
		}
		if asked.Load() != n+1 {
			t.Fatalf("after %d calls it was asked %d times", n+1, asked.Load())
		}
	}
}

func TestManyCallersOfADeadQuotadLeaveNothingBehind(t *testing.T) {
	before := runtime.NumGoroutine()
	url, _ := frozen(t)
	c := newClient(t, url, within(300*time.Millisecond))
	var wg sync.WaitGroup
	for range 1000 {
		wg.Go(func() {
			if _, err := c.Check(t.Context(), exports("qk_a")); !errors.Is(err, quotad.ErrLimiterUnavailable) {
				t.Errorf("got %v", err)
			}
		})
	}
	wg.Wait()
	// A connection that was ready too late is kept for the next call.
	testenv.Eventually(t, "all goroutines are gone", func() bool {
		c.CloseIdleConnections()
		return runtime.NumGoroutine() <= before+5
	})
}

func TestADeadQuotadIsSentNoMoreConnectionsThanItsBound(t *testing.T) {
	t.Parallel()
	url, accepted := frozen(t)
	c := newClient(t, url)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 1000 {
		wg.Go(func() {
			if _, err := c.Check(ctx, exports("qk_a")); !errors.Is(err, context.Canceled) {
				t.Errorf("got %v", err)
			}
		})
	}
	testenv.Eventually(t, "all connections are open", func() bool { return accepted.Load() >= 256 })
	time.Sleep(20 * time.Millisecond) // for those that are one too many
	if n := accepted.Load(); n != 256 {
		t.Errorf("%d connections are open, want 256", n)
	}
	cancel()
	wg.Wait()
}
