package quota

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/database/databasetest"
	"github.com/quotad/quotad/internal/ratelimit"
	"github.com/quotad/quotad/internal/testenv"
)

func TestDecisionSaysWhoAndWhat(t *testing.T) {
	world(t, func(t *testing.T, n *node) {
		key := n.mustKey("acme")
		want := quotad.Decision{
			Allowed: true, Tenant: "acme", KeyID: key.ID, Tier: "pro", RouteGroup: "exports", Cost: 4,
			Limits: []quotad.LimitStatus{{
				Policy: "base", Scope: quotad.ScopeKey, Algorithm: quotad.FixedWindow, Limit: 10, Remaining: 6, Window: 60,
				ResetAfter: 60, Allowed: true, ResetAt: n.Now().Add(time.Minute),
			}},
		}
		if diff := cmp.Diff(want, n.allow(costing(by(key), 4))); diff != "" {
			t.Error(diff)
		}
		n.Advance(500 * time.Millisecond)
		want.Allowed, want.RetryAfter, want.Cost = false, 60, 7
		want.Limits[0].Allowed, want.Limits[0].RetryAfter = false, 60
		if diff := cmp.Diff(want, n.deny(costing(by(key), 7))); diff != "" {
			t.Error(diff)
		}
		n.Advance(60 * time.Second)
		n.allow(costing(by(key), 7))
	})
}

func TestRouteGroupOfACall(t *testing.T) {
	world(t, func(t *testing.T, n *node) {
		key := n.mustKey("acme", func(k *quotad.KeySpec) { k.RateLimit, k.RateWindow = quotad.Units(1000), quotad.Units(60) })
		group := func(call Call) string { call.APIKey = key.Secret; return n.allow(call).RouteGroup }
		for _, c := range []struct{ method, path, want string }{
			{"POST", "/v1/exports", "exports"},
			{"post", "//V1//Exports/", "exports"},
			{"GET", "/v1/exports/17", "exports"},
			{"HEAD", "/v1/exports/17", "exports"},
			{"DELETE", "/v1/exports/17", "default"},
			{"GET", "/", "default"},
		} {
			if got := group(Call{Method: c.method, Path: c.path}); got != c.want {
				t.Errorf("%s %s is of group %s, want %s", c.method, c.path, got, c.want)
			}
		}
		if got := group(Call{RouteGroup: "default", Method: "POST", Path: "/v1/exports"}); got != "default" {
			t.Errorf("a named group gives way to the path: %s", got)
		}
		for _, path := range []string{"", "/v1/x/../exports", "/v1/exports%00"} {
			d, _ := n.fail(Call{APIKey: key.Secret, Method: "GET", Path: path}, quotad.CodeInvalidPath)
			if d.Tenant != "acme" || d.KeyID != key.ID {
				t.Errorf("path %q: the decision does not name the caller: %+v", path, d)
			}
		}
		for _, name := range []string{"nothing", "Exports", "\x00", "*"} {
			n.fail(Call{APIKey: key.Secret, RouteGroup: name}, quotad.CodeInvalidRequest)
			n.fail(Call{RouteGroup: name}, quotad.CodeAPIKeyRequired) // tells nothing of the groups
		}
		n.fail(Call{Method: "GET", Path: "/v1/x/../exports"}, quotad.CodeAPIKeyRequired)

		n.editGroup("exports", func(g *quotad.RouteGroupSpec) { g.Match = []string{"DELETE /v1/exports/{id}"} })
		if got := group(Call{Method: "DELETE", Path: "/v1/exports/17"}); got != "exports" {
			t.Errorf("an edit of the group is not seen: %s", got)
		}
		if got := group(Call{Method: "POST", Path: "/v1/exports"}); got != "default" {
			t.Errorf("an edit of the group is not seen: %s", got)
		}
		n.mustGroup(quotad.RouteGroupSpec{Name: "uploads", Match: []string{"POST /v1/uploads"}})
		if got := group(Call{Method: "POST", Path: "/v1/uploads"}); got != "uploads" {
			t.Errorf("a new group is not seen: %s", got)
		}
	})
}

func TestRouteNotAllowedIsToldAfterAuthentication(t *testing.T) {
	world(t, func(t *testing.T, n *node) {
		key := n.mustKey("acme", func(k *quotad.KeySpec) { k.RouteGroups = []string{"default"} })
		d, _ := n.fail(by(key), quotad.CodeRouteNotAllowed)
		if d.Tenant != "acme" || d.KeyID != key.ID || d.Tier != "pro" || d.RouteGroup != "exports" {
			t.Errorf("the decision does not name the caller: %+v", d)
		}
		n.fail(Call{RouteGroup: "exports"}, quotad.CodeAPIKeyRequired)
		n.allow(Call{APIKey: key.Secret, RouteGroup: "default"})

		none := n.mustKey("acme", func(k *quotad.KeySpec) { k.RouteGroups = []string{} })
		n.fail(Call{APIKey: none.Secret, RouteGroup: "default"}, quotad.CodeRouteNotAllowed)
	})
}

func TestCosts(t *testing.T) {
	world(t, func(t *testing.T, n *node) {
		n.mustGroup(quotad.RouteGroupSpec{Name: "heavy", Cost: quotad.Units(5)})
		n.mustGroup(quotad.RouteGroupSpec{Name: "free", Cost: quotad.Units(0)})
		key := n.mustKey("acme")
		call := by(key)
		for _, units := range []int64{-1, math.MinInt64, quotad.MaxUnits + 1, math.MaxInt64} {
			n.fail(costing(call, units), quotad.CodeInvalidCost)
		}
		for _, units := range []int64{11, quotad.MaxUnits} {
			d, e := n.fail(costing(call, units), quotad.CodeCostExceedsLimit)
			if e.RetryAfter != 0 || d.RetryAfter != 0 || d.Cost != units || d.KeyID != key.ID {
				t.Errorf("cost %d: %+v, %+v", units, d, e)
			}
		}
		if d := n.allow(costing(call, 0)); d.Cost != 0 || d.Limits[0].Remaining != 10 {
			t.Errorf("nothing was to be counted: %+v", d)
		}
		if d := n.allow(costing(call, 10)); d.Limits[0].Remaining != 0 {
			t.Errorf("the whole limit at once: %+v", d)
		}
		call.RouteGroup = "heavy"
		if d := n.allow(call); d.Cost != 5 || d.Limits[0].Remaining != 5 {
			t.Errorf("the group's own cost: %+v", d)
		}
		if d := n.allow(costing(call, 1)); d.Limits[0].Remaining != 4 {
			t.Errorf("the call's cost comes first: %+v", d)
		}
		call.RouteGroup = "free"
		for range 20 {
			if d := n.allow(call); d.Cost != 0 || d.Limits[0].Remaining != 10 {
				t.Fatalf("a group that counts nothing: %+v", d)
			}
		}
	})
}

func TestUnlimited(t *testing.T) {
	world(t, func(t *testing.T, n *node) {
		n.mustTier(quotad.TierSpec{Name: "free", RateLimit: nil})
		n.mustTenant("friend", "free")
		key := n.mustKey("friend")
		for range 50 {
			d := n.allow(costing(by(key), quotad.MaxUnits))
			if d.Limits == nil || len(d.Limits) != 0 {
				t.Fatalf("limits %#v", d.Limits)
			}
		}
	})
}

func TestWarmAndColdDecisionsAreEqual(t *testing.T) {
	world(t, func(t *testing.T, n *node) {
		n.mustTier(quotad.TierSpec{Name: "full", RateLimit: quotad.Units(1000), Limits: []quotad.Limit{
			rate("key", "exports", quotad.ScopeKey, 100, 60), rate("tenant", "*", quotad.ScopeTenant, 100, 60),
			rate("subject", "*", quotad.ScopeSubject, 100, 60), rate("ip", "*", quotad.ScopeIP, 100, 60),
		}})
		n.mustTenant("f", "full")
		call := by(n.mustKey("f"))
		call.Subject, call.Address = "ann", address("2001:db8::1")
		cold := n.allow(costing(call, 0))
		for range 3 {
			if diff := cmp.Diff(cold, n.allow(costing(call, 0))); diff != "" {
				t.Errorf("warm: %s", diff)
			}
		}
		n.Resync()
		if diff := cmp.Diff(cold, n.allow(costing(call, 0))); diff != "" {
			t.Errorf("after a resync: %s", diff)
		}
		if len(cold.Limits) != 4 {
			t.Errorf("%+v", cold.Limits)
		}
	})
}

// heeding is a limiter that, like any that talks to a server, heeds its context.
type heeding struct{ Limiter }

func (h heeding) TakeOr(ctx context.Context, call ratelimit.Call, status []ratelimit.Status, policy quotad.FailurePolicy) (ratelimit.Outcome, error) {
	if err := ctx.Err(); err != nil {
		return ratelimit.Outcome{}, err
	}
	return h.Limiter.TakeOr(ctx, call, status, policy)
}

func (h heeding) TakeAllOr(ctx context.Context, list []*ratelimit.Question) {
	for _, q := range list {
		q.Outcome, q.Err = h.TakeOr(ctx, q.Call, q.Status, q.Policy)
	}
}

func TestCallerWhoHangsUpIsChargedWhole(t *testing.T) {
	t.Parallel()
	clock := testenv.NewClock()
	n := newNode(t, databasetest.SQLite(t), clock, heeding{ratelimit.NewMemory(ratelimit.MemoryOptions{Now: clock.Now})})
	n.furnish()
	key := n.mustKey("acme")
	n.allow(by(key))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if d, err := n.Check(ctx, by(key)); err != nil || !d.Allowed || d.Limits[0].Remaining != 8 {
		t.Errorf("%+v, %v", d, err)
	}
	if d, err := n.Limits(ctx, Call{APIKey: key.Secret, RouteGroup: "exports"}); err != nil || d[0].Limits[0].Remaining != 8 {
		t.Errorf("%+v, %v", d, err)
	}
}
