package quota

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/ratelimit"
)

// together is a request of calls that have to end without an error.
func (n *node) together(calls ...Call) []quotad.Decision {
	n.t.Helper()
	var list []quotad.Decision
	for i, r := range n.CheckTogether(context.Background(), calls) {
		if r.Err != nil {
			n.t.Fatalf("call %d: %v", i, r.Err)
		}
		list = append(list, r.Decision)
	}
	return list
}

// in is the call in another group.
func in(call Call, group string) Call {
	call.RouteGroup = group
	return call
}

func (n *node) wantLeft(call Call, want int64) {
	n.t.Helper()
	if left := n.remaining(call)["base"]; left != want {
		n.t.Errorf("%s: %d left, want %d", call.RouteGroup, left, want)
	}
}

func TestARequestOfSeveralCallsIsChargedWholeOrNotAtAll(t *testing.T) {
	world(t, func(t *testing.T, n *node) {
		key, other := by(n.mustKey("acme")), by(n.mustKey("acme"))
		n.mustTenant("umbrella", "pro")
		foreign := by(n.mustKey("umbrella"))
		for name, c := range map[string]struct{ first, second Call }{
			"two groups":       {in(key, "exports"), in(key, "default")},
			"two keys":         {in(other, "exports"), in(other, "default")},
			"two tenants":      {in(foreign, "exports"), in(by(n.mustKey("acme")), "exports")},
			"different costs":  {in(by(n.mustKey("acme")), "exports"), costing(in(by(n.mustKey("acme")), "default"), 2)},
			"refused is first": {costing(in(by(n.mustKey("acme")), "exports"), 2), in(by(n.mustKey("acme")), "default")},
		} {
			units := func(call Call) int64 {
				if call.Cost == nil {
					return 1
				}
				return *call.Cost
			}
			for _, d := range n.together(c.first, c.second) {
				if !d.Allowed {
					t.Errorf("%s: refused: %+v", name, d)
				}
			}
			n.wantLeft(c.first, 10-units(c.first))
			n.wantLeft(c.second, 10-units(c.second))

			n.allow(costing(c.second, 10-units(c.second)))
			for _, order := range [][]Call{{c.first, c.second}, {c.second, c.first}} {
				got := n.together(order...)
				first, second := got[0], got[1]
				if order[0].APIKey != c.first.APIKey || order[0].RouteGroup != c.first.RouteGroup {
					first, second = second, first
				}
				if second.Allowed || second.RetryAfter != 60 || second.Limits[0].Remaining != 0 {
					t.Errorf("%s: what is used up is told as %+v", name, second)
				}
				if !first.Allowed || first.RetryAfter != 0 || first.Cost != 0 || first.Limits[0].Remaining != 10-units(c.first) {
					t.Errorf("%s: what was not charged is told as %+v", name, first)
				}
			}
			n.wantLeft(c.first, 10-units(c.first))
			n.wantLeft(c.second, 0)
		}
	})
}

func TestACounterThatCallsOfARequestShareIsChargedOnce(t *testing.T) {
	world(t, func(t *testing.T, n *node) {
		n.editTier("pro", func(s *quotad.TierSpec) {
			s.Limits = []quotad.Limit{rate("all", "*", quotad.ScopeTenant, 100, 60)}
		})
		key := by(n.mustKey("acme"))
		got := n.together(key, in(key, "default"), key)
		for i, d := range got {
			if len(d.Limits) != 2 || d.Limits[0].Remaining != 9 || d.Limits[1].Remaining != 99 {
				t.Errorf("call %d: %+v", i, d.Limits)
			}
		}
		n.wantLeft(key, 9)
		if left := n.remaining(key)["all"]; left != 99 {
			t.Errorf("one request took %d of the tenant's", 100-left)
		}
	})
}

func TestACounterThatCallsOfDifferentCostsShareIsChargedTheMost(t *testing.T) {
	world(t, func(t *testing.T, n *node) {
		n.editTier("pro", func(s *quotad.TierSpec) {
			s.Limits = []quotad.Limit{rate("all", "*", quotad.ScopeTenant, 20, 60)}
		})
		key := by(n.mustKey("acme"))
		for i, d := range n.together(key, costing(in(key, "default"), 7), costing(key, 0)) {
			if cost := []int64{1, 7, 0}[i]; d.Cost != cost || len(d.Limits) != 2 || d.Limits[1].Remaining != 13 {
				t.Errorf("call %d: %+v", i, d)
			}
		}
		n.wantLeft(key, 9)
		n.wantLeft(in(key, "default"), 3)
		if left := n.remaining(key)["all"]; left != 13 {
			t.Errorf("one request of 1, 7 and 0 took %d of the tenant's", 20-left)
		}
	})
}

// What differs in cost is one step, too: where the second of two calls is refused, the
// first is not charged, whoever asks at the same time.
func TestRequestsOfDifferentCostsAtOnce(t *testing.T) {
	world(t, func(t *testing.T, n *node) {
		key := by(n.mustKey("acme"))
		n.Checker.limiter = &unhurried{n.Checker.limiter}
		var passed atomic.Int64
		var all sync.WaitGroup
		for range 40 {
			all.Go(func() {
				got := n.CheckTogether(context.Background(), []Call{key, costing(in(key, "default"), 3)})
				if got[0].Err != nil || got[1].Err != nil {
					t.Errorf("%+v", got)
				} else if got[0].Decision.Allowed && got[1].Decision.Allowed {
					passed.Add(1)
				}
			})
		}
		all.Wait()
		if passed.Load() != 3 {
			t.Errorf("%d requests passed, want 3 of 3 units each", passed.Load())
		}
		n.wantLeft(key, 7)
		n.wantLeft(in(key, "default"), 1)
	})
}

func TestARequestWithACallThatCannotBeIsNotCharged(t *testing.T) {
	world(t, func(t *testing.T, n *node) {
		key := by(n.mustKey("acme"))
		bad := key
		bad.APIKey = "qk_junk"
		for name, c := range map[string]struct {
			call Call
			code quotad.Code
		}{
			"a key that is none": {bad, quotad.CodeInvalidAPIKey},
			"no such group":      {in(key, "nowhere"), quotad.CodeInvalidRequest},
			"too much":           {costing(in(key, "default"), 11), quotad.CodeCostExceedsLimit},
			"far too much":       {costing(in(key, "default"), quotad.MaxUnits+1), quotad.CodeInvalidCost},
			"a fault":            {Call{Fault: quotad.NewError(quotad.CodeAmbiguousCredentials, ""), Door: "ratelimit"}, quotad.CodeAmbiguousCredentials},
		} {
			for _, at := range []int{0, 1} {
				calls := []Call{key, key}
				calls[at] = c.call
				got := n.CheckTogether(context.Background(), calls)
				if codeOf(got[at].Err) != c.code {
					t.Errorf("%s: %+v", name, got[at])
				}
				if good := got[1-at]; good.Err != nil || !good.Decision.Allowed || good.Decision.Cost != 0 || good.Decision.Limits[0].Remaining != 10 {
					t.Errorf("%s: what is right is told as %+v", name, good)
				}
			}
			n.wantLeft(key, 10)
		}
		// Of two in one step the guilty one is told, with where it stands.
		small := n.mustKey("acme", func(k *quotad.KeySpec) { k.RateLimit, k.RateWindow = quotad.Units(3), quotad.Units(60) })
		got := n.CheckTogether(context.Background(), []Call{costing(key, 5), costing(by(small), 5)})
		if got[0].Err != nil || codeOf(got[1].Err) != quotad.CodeCostExceedsLimit || got[1].Decision.Limits[0].Remaining != 3 {
			t.Errorf("got %+v", got)
		}
		n.wantLeft(key, 10)
	})
}

func TestARequestWithAPeek(t *testing.T) {
	world(t, func(t *testing.T, n *node) {
		key := by(n.mustKey("acme"))
		got := n.together(costing(key, 0), in(key, "default"))
		if !got[0].Allowed || got[0].Limits[0].Remaining != 10 || got[1].Limits[0].Remaining != 9 {
			t.Errorf("got %+v", got)
		}
		n.wantLeft(key, 10)
		n.wantLeft(in(key, "default"), 9)
	})
}

func TestARequestIsCountedByItsCallsThatWereDecided(t *testing.T) {
	t.Parallel()
	n, _, registry := watched(t)
	key := by(n.mustKey("acme"))
	key.Door = "ratelimit"
	n.together(key, in(key, "default"))
	n.allow(costing(key, 9))
	n.together(key, in(key, "default")) // the second could have passed
	if d, err := n.Peek(t.Context(), key); err != nil || d.Limits[0].Remaining != 0 {
		t.Errorf("a peek: %+v, %v", d, err)
	}
	values, _ := series(t, registry)
	for name, want := range map[string]float64{
		"quotad_decisions_total door=ratelimit reason= result=allow":                   3,
		"quotad_decisions_total door=ratelimit reason=rate_limit_exceeded result=deny": 1,
	} {
		if values[name] != want {
			t.Errorf("%s is %v, want %v", name, values[name], want)
		}
	}
}

// unhurried is a Limiter that lets others come between any two questions.
type unhurried struct{ Limiter }

func (u *unhurried) TakeOr(ctx context.Context, call ratelimit.Call, status []ratelimit.Status, policy quotad.FailurePolicy) (ratelimit.Outcome, error) {
	time.Sleep(2 * time.Millisecond)
	return u.Limiter.TakeOr(ctx, call, status, policy)
}

// away is a Limiter whose store does not answer from the nth question on.
type away struct {
	Limiter
	after int
}

func (a *away) TakeOr(ctx context.Context, call ratelimit.Call, status []ratelimit.Status, policy quotad.FailurePolicy) (ratelimit.Outcome, error) {
	if a.after--; a.after < 0 {
		return ratelimit.Outcome{}, quotad.ErrLimiterUnavailable
	}
	return a.Limiter.TakeOr(ctx, call, status, policy)
}

func TestARequestEndsWhereTheCountersAreAway(t *testing.T) {
	world(t, func(t *testing.T, n *node) {
		key := by(n.mustKey("acme"))
		n.mustTenant("umbrella", "pro")
		foreign := by(n.mustKey("umbrella"))
		limiter := n.Checker.limiter
		for after := range 3 {
			n.Checker.limiter = &away{Limiter: limiter, after: after}
			got := n.CheckTogether(context.Background(), []Call{key, foreign})
			if !errors.Is(got[0].Err, quotad.ErrLimiterUnavailable) && !errors.Is(got[1].Err, quotad.ErrLimiterUnavailable) {
				t.Errorf("away after %d questions: %+v", after, got)
			}
		}
		n.Checker.limiter = limiter
		n.wantLeft(key, 10)
		n.wantLeft(foreign, 10)
	})
}

func TestADoorMayVouchForATenant(t *testing.T) {
	world(t, func(t *testing.T, n *node) {
		n.mustGroup(quotad.RouteGroupSpec{
			Name: "login", Auth: quotad.AuthNone, Match: []string{"POST /login"},
			Limits: []quotad.Limit{{Name: "login", RouteGroup: "login", Scope: quotad.ScopeIP, RateLimit: quotad.Units(2), RateWindow: 60}},
		})
		call := Call{Vouched: true, Tenant: "acme", RouteGroup: "exports", Door: "ratelimit"}
		if d := n.allow(call); d.Tenant != "acme" || d.KeyID != "" || d.Limits[0].Remaining != 9 {
			t.Errorf("got %+v", d)
		}
		call.Vouched = false
		n.fail(call, quotad.CodeAPIKeyRequired)
		n.fail(Call{Vouched: true, Tenant: "nobody", RouteGroup: "exports"}, quotad.CodeInvalidRequest)
		open := Call{Vouched: true, Tenant: "acme", RouteGroup: "login", IP: address("192.0.2.1"), Address: address("10.0.0.1")}
		n.allow(open)
		n.allow(open)
		n.deny(open)
		open.Address = address("10.0.0.2")
		n.deny(open)
		service, viewer := n.mustToken(quotad.RoleService, nil), n.mustToken(quotad.RoleViewer, nil)
		for token, works := range map[string]bool{service.Secret: true, viewer.Secret: false, "qa_junk": false, "": false} {
			if err := n.CheckServiceToken(context.Background(), token); (err == nil) != works || err != nil && !errors.Is(err, quotad.ErrInvalidAPIKey) {
				t.Errorf("%.5s: %v", token, err)
			}
		}
	})
}

func TestARequestCountsOnceByItsAddress(t *testing.T) {
	t.Parallel()
	n, _, _ := watched(t, func(o *Options) {
		o.IPLimit, o.FailedKeyLimit = Rate{3, time.Minute}, Rate{1, time.Minute}
	})
	key := by(n.mustKey("acme"))
	key.Address = address("192.0.2.1")
	n.together(key, in(key, "default"))
	n.together(key, in(key, "default"), key)
	bad := key
	bad.APIKey = "qk_junk"
	for i, r := range n.CheckTogether(t.Context(), []Call{bad, bad}) {
		if codeOf(r.Err) != quotad.CodeInvalidAPIKey {
			t.Errorf("call %d: %+v", i, r)
		}
	}
	got := n.CheckTogether(t.Context(), []Call{key, in(key, "default")})
	if got[0].Err != nil || got[0].Decision.Allowed || got[0].Decision.Limits[0].Policy != policyAddress || got[1].Decision.Allowed {
		t.Errorf("the fourth request: %+v", got)
	}
	bad.Address = address("192.0.2.2")
	n.CheckTogether(t.Context(), []Call{bad, bad})
	if got := n.CheckTogether(t.Context(), []Call{bad, key}); got[0].Err != nil || got[0].Decision.Limits[0].Policy != policyFailedKeys {
		t.Errorf("the second failed key: %+v", got)
	}
	key.Address = netip.Addr{}
	n.wantLeft(key, 8)
}
