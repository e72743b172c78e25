package quotad_test

import (
	"math/rand/v2"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/testenv"
)

// asks is how many questions reach quotad while f runs.
func (w *world) asks(f func()) int64 {
	before := w.asked.Load()
	f()
	return w.asked.Load() - before
}

func TestACallerWhoHammersCostsNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c, key := w.metered(), w.key("acme")
	allow(t, c, costing(exports(key), 10))
	first := deny(t, c, exports(key))
	n := w.asks(func() {
		for range 1000 {
			d := deny(t, c, exports(key))
			if diff := cmp.Diff(first, d); diff != "" {
				t.Fatal(diff)
			}
			if d.Limits[0].Remaining++; first.Limits[0].Remaining != 0 {
				t.Fatal("callers share what they are told")
			}
		}
		w.clock.Advance(time.Second - 1)
		deny(t, c, exports(key))
	})
	if n != 0 {
		t.Errorf("quotad was asked %d times", n)
	}
	w.clock.Advance(1)
	if n := w.asks(func() { deny(t, c, exports(key)); deny(t, c, exports(key)) }); n != 1 {
		t.Errorf("a second later quotad was asked %d times, want once", n)
	}
}

// A raised limit is seen a second later at the latest.
func TestARefusalIsForgottenInASecond(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c, key := w.metered(), w.key("acme")
	allow(t, c, costing(exports(key), 10))
	deny(t, c, exports(key))
	w.editTier("pro", func(s *quotad.TierSpec) { s.RateLimit = quotad.Units(20) })
	w.clock.Advance(time.Second)
	allow(t, c, exports(key))
}

// What is admitted elsewhere meanwhile is not refused here any more.
func TestARefusalIsForgottenWhenTheQuestionIsAdmitted(t *testing.T) {
	t.Parallel()
	denied := quotad.ProblemOf(&quotad.Error{Code: quotad.CodeRateLimitExceeded})
	denied.RetryAfter = 60
	admitted := quotad.Decision{Allowed: true}
	hold, first := make(chan struct{}), make(chan struct{})
	var asked atomic.Int64
	c := newClient(t, answering(t, func(w http.ResponseWriter, _ *http.Request) {
		if asked.Add(1) == 1 { // judged last, after an edit
			close(first)
			<-hold
			_, _ = w.Write(admitted.AppendJSON(nil))
			return
		}
		w.WriteHeader(http.StatusTooManyRequests)
		_, _ = w.Write(denied.AppendJSON(nil))
	}), func(o *quotad.ClientOptions) { o.Now = testenv.NewClock().Now })
	done := make(chan struct{})
	go func() {
		defer close(done)
		allow(t, c, exports("qk_a"))
	}()
	<-first
	deny(t, c, exports("qk_a"))
	close(hold)
	<-done
	deny(t, c, exports("qk_a"))
	if asked.Load() != 3 {
		t.Errorf("quotad was asked %d times, want 3", asked.Load())
	}
}

func TestARefusalSpeaksOfOneQuestion(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.group(quotad.RouteGroupSpec{Name: "imports", Match: []string{"POST /v1/imports"}})
	w.editTier("pro", func(s *quotad.TierSpec) {
		s.Limits = []quotad.Limit{
			{Name: "person", RouteGroup: "*", Scope: quotad.ScopeSubject, Algorithm: quotad.FixedWindow, RateLimit: quotad.Units(10), RateWindow: 60},
			{Name: "place", RouteGroup: "*", Scope: quotad.ScopeIP, Algorithm: quotad.FixedWindow, RateLimit: quotad.Units(10), RateWindow: 60},
		}
		s.RateLimit = quotad.Units(1000)
	})
	w.tenant(quotad.TenantSpec{ID: "a", Tier: "pro"})
	w.tenant(quotad.TenantSpec{ID: "a.b", Tier: "pro"})
	c, key := w.metered(byToken(w.token())), w.key("acme")
	q := quotad.CheckRequest{APIKey: key, RouteGroup: "exports", Subject: "b", IP: "192.0.2.1"}
	allow(t, c, costing(q, 10))
	deny(t, c, q)
	for name, other := range map[string]quotad.CheckRequest{
		"another subject and address": {APIKey: key, RouteGroup: "exports", Subject: "c", IP: "192.0.2.2"},
		"another key's tenant":        {APIKey: w.key("a"), RouteGroup: "exports", Subject: "b", IP: "192.0.2.1"},
		"a token's tenant":            {Tenant: "a.b", RouteGroup: "exports", Subject: "b", IP: "192.0.2.1"},
		"no subject":                  {APIKey: key, RouteGroup: "imports", IP: "192.0.2.3"},
	} {
		if n := w.asks(func() { allow(t, c, other) }); n != 1 {
			t.Errorf("%s: quotad was not asked", name)
		}
	}
	for name, other := range map[string]quotad.CheckRequest{
		"another cost": costing(q, 2), "no cost, but a peek": costing(q, 0), "another way to say it": {APIKey: key, Method: "POST", Path: "/v1/exports", Subject: "b", IP: "192.0.2.1"},
	} {
		if n := w.asks(func() { _, _ = c.Check(t.Context(), other) }); n != 1 {
			t.Errorf("%s: quotad was not asked", name)
		}
	}
	// Names joined without care look alike.
	for _, pair := range [][2]quotad.CheckRequest{
		{{Tenant: "a", RouteGroup: "exports", Subject: "b.c"}, {Tenant: "a.b", RouteGroup: "exports", Subject: "c"}},
		{{Tenant: "a", RouteGroup: "exports", Subject: "x|y"}, {Tenant: "a", RouteGroup: "exports", Subject: "x"}},
		{{Tenant: "a", Method: "POST", Path: "/v1/x", Subject: "s"}, {Tenant: "a", Method: "POST", Path: "/v1/xs"}},
	} {
		allow(t, c, costing(pair[0], 10))
		deny(t, c, pair[0])
		allow(t, c, pair[1])
	}
}

// A wait is rounded up, so in its last second a question may pass, and is asked.
func TestNothingIsRememberedOfTheLastSecond(t *testing.T) {
	t.Parallel()
	for wait, remembered := range map[int64]time.Duration{1: 0, 2: time.Second, 3: time.Second, 86400: time.Second, 0: time.Second} {
		clock := testenv.NewClock()
		denied := quotad.ProblemOf(&quotad.Error{Code: quotad.CodeRateLimitExceeded})
		denied.RetryAfter = wait
		var asked atomic.Int64
		c := newClient(t, answering(t, func(w http.ResponseWriter, _ *http.Request) {
			asked.Add(1)
			w.WriteHeader(http.StatusTooManyRequests)
			_, _ = w.Write(denied.AppendJSON(nil))
		}), func(o *quotad.ClientOptions) { o.Now = clock.Now })
		deny(t, c, exports("qk_a"))
		if remembered > 0 {
			clock.Advance(remembered - 1)
			if d := deny(t, c, exports("qk_a")); asked.Load() != 1 || d.RetryAfter != wait {
				t.Errorf("wait of %d s: got %+v, asked %d times", wait, d, asked.Load())
			}
			clock.Advance(1)
		}
		if deny(t, c, exports("qk_a")); asked.Load() != 2 {
			t.Errorf("wait of %d s: asked %d times, want twice", wait, asked.Load())
		}
	}
}

// A refusal from one node's own memory is not that of the next node.
func TestADegradedRefusalIsNotRemembered(t *testing.T) {
	t.Parallel()
	denied := quotad.ProblemOf(&quotad.Error{Code: quotad.CodeRateLimitExceeded})
	denied.RetryAfter = 60
	var asked atomic.Int64
	c := newClient(t, answering(t, func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.Header().Set("X-Quotad-Degraded", "local")
		w.WriteHeader(http.StatusTooManyRequests)
		_, _ = w.Write(denied.AppendJSON(nil))
	}))
	for range 3 {
		if d := deny(t, c, exports("qk_a")); !d.Degraded || d.DegradedBy != quotad.FailLocal {
			t.Errorf("got %+v", d)
		}
	}
	if asked.Load() != 3 {
		t.Errorf("quotad was asked %d times, want 3", asked.Load())
	}
}

// Whatever is remembered, a caller gets what one gets who always asks.
func TestRememberingChangesNoDecision(t *testing.T) {
	t.Parallel()
	for _, algorithm := range quotad.Algorithms {
		t.Run(string(algorithm), func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(1, uint64(len(algorithm))))
			var worlds [2]*world
			var keys [2]quotad.Credential
			for i := range worlds {
				worlds[i] = newWorld(t)
				worlds[i].tier(quotad.TierSpec{Name: "t", RateLimit: quotad.Units(7), RateWindow: 5, Algorithm: algorithm})
				worlds[i].tenant(quotad.TenantSpec{ID: "t", Tier: "t"})
				keys[i] = worlds[i].key("t")
			}
			remembers, always := worlds[0].metered(), worlds[1]
			for range 600 {
				step := time.Duration(random.IntN(400)) * time.Millisecond
				cost := random.Int64N(4)
				worlds[0].clock.Advance(step)
				worlds[1].clock.Advance(step)
				got, err := remembers.Check(t.Context(), costing(exports(keys[0]), cost))
				must(t, got, err)
				want, err := always.metered().Check(t.Context(), costing(exports(keys[1]), cost))
				must(t, want, err)
				// A wait that is told again may be a second too long; it is too short only
				// where other calls were charged meanwhile.
				if got.Allowed != want.Allowed || got.RetryAfter > want.RetryAfter+1 {
					t.Fatalf("got %+v, want %+v", got, want)
				}
			}
			if saved := worlds[1].asked.Load() - worlds[0].asked.Load(); saved <= 0 {
				t.Error("nothing was ever remembered")
			}
		})
	}
}
