package quota

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/database"
	"github.com/quotad/quotad/internal/database/databasetest"
	"github.com/quotad/quotad/internal/ratelimit"
	"github.com/quotad/quotad/internal/testenv"
)

// counters runs f on a node whose counters are in memory, and on one whose counters
// are in Redis; the clock of the counters is the second one.
func counters(t *testing.T, f func(t *testing.T, n *node, ofCounters *testenv.Clock)) {
	t.Parallel()
	t.Run("memory", func(t *testing.T) {
		t.Parallel()
		ofCounters := testenv.NewClock()
		n := newNode(t, databasetest.SQLite(t), testenv.NewClock(), ratelimit.NewMemory(ratelimit.MemoryOptions{Now: ofCounters.Now}))
		n.furnish()
		f(t, n, ofCounters)
	})
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		ofCounters := testenv.NewClock()
		n := newNode(t, databasetest.SQLite(t), testenv.NewClock(), inRedis(t, ofCounters))
		n.furnish()
		f(t, n, ofCounters)
	})
}

// inRedis are counters in a Redis that is well, by the clock.
func inRedis(t *testing.T, clock *testenv.Clock) Limiter {
	t.Helper()
	url, prefix := testenv.Redis(t)
	client, err := ratelimit.Connect(url, ratelimit.ConnectOptions{Timeout: testenv.Patience})
	must(t, 0, err)
	t.Cleanup(func() { client.Close() })
	return ratelimit.NewFailover(
		ratelimit.NewRedis(client, ratelimit.RedisOptions{Prefix: prefix, Timeout: testenv.Patience, Now: clock.Now}),
		ratelimit.NewMemory(ratelimit.MemoryOptions{Now: clock.Now}), ratelimit.FailoverOptions{Budget: testenv.Patience})
}

// metered makes a tenant with a key in a tier that has no limit but the quotas.
func (n *node) metered(id string, quotas []quotad.Quota, change ...func(*quotad.TenantSpec)) quotad.Key {
	n.t.Helper()
	n.mustTier(quotad.TierSpec{Name: id, Quotas: quotas})
	n.mustTenant(id, id)
	for _, f := range change {
		n.editTenant(id, f)
	}
	return n.mustKey(id)
}

func per(period quotad.Period, units int64) quotad.Quota {
	return quotad.Quota{Name: "per-" + string(period), Quota: quotad.Units(units), Period: period}
}

// both sets the node's clock and that of the counters.
func both(t *testing.T, n *node, ofCounters *testenv.Clock, text string) {
	t.Helper()
	at := instant(t, text)
	n.Set(at)
	ofCounters.Set(at)
}

func TestAQuotaCountsInItsPeriod(t *testing.T) {
	counters(t, func(t *testing.T, n *node, ofCounters *testenv.Clock) {
		both(t, n, ofCounters, "2027-03-01T00:00:00Z")
		key := n.metered("m", []quotad.Quota{per(quotad.Month, 10)})
		n.allow(costing(by(key), 9))
		both(t, n, ofCounters, "2027-03-31T12:00:00.5Z")
		want := quotad.Decision{
			Allowed: true, Tenant: "m", KeyID: key.ID, Tier: "m", RouteGroup: "exports", Cost: 1,
			Limits: []quotad.LimitStatus{{
				Policy: "per-month", Scope: quotad.ScopeTenant, Algorithm: quotad.CalendarQuota, Limit: 10, Remaining: 0,
				Window: 31 * 86400, ResetAfter: 12 * 3600, Allowed: true, ResetAt: instant(t, "2027-04-01T00:00:00Z"),
			}},
		}
		if diff := cmp.Diff(want, n.allow(by(key))); diff != "" {
			t.Error(diff)
		}
		want.Allowed, want.RetryAfter = false, 12*3600
		want.Limits[0].Allowed, want.Limits[0].RetryAfter = false, 12*3600
		got := n.deny(by(key))
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		if got.Refusal() != quotad.CodeQuotaExceeded {
			t.Errorf("a refusal by a quota is %s", got.Refusal())
		}
		both(t, n, ofCounters, "2027-03-31T23:59:59.999Z")
		if d := n.deny(by(key)); d.RetryAfter != 1 {
			t.Errorf("a millisecond before the end: %+v", d)
		}
		both(t, n, ofCounters, "2027-04-01T00:00:00Z")
		if d := n.allow(by(key)); d.Limits[0].Remaining != 9 || d.Limits[0].Window != 30*86400 || d.Limits[0].ResetAfter != 30*86400 {
			t.Errorf("in the next month: %+v", d)
		}
	})
}

func TestADayIsTheTenantsOwn(t *testing.T) {
	counters(t, func(t *testing.T, n *node, ofCounters *testenv.Clock) {
		both(t, n, ofCounters, "2027-05-04T15:59:59Z")
		inShanghai := n.metered("s", []quotad.Quota{per(quotad.Day, 1)}, func(s *quotad.TenantSpec) { s.TimeZone = "Asia/Shanghai" })
		inUTC := n.metered("u", []quotad.Quota{per(quotad.Day, 1)})
		n.allow(by(inShanghai))
		n.allow(by(inUTC))
		if d := n.deny(by(inShanghai)); d.RetryAfter != 1 {
			t.Errorf("a second before midnight in Shanghai: %+v", d)
		}
		both(t, n, ofCounters, "2027-05-04T16:00:00Z")
		n.allow(by(inShanghai))
		if d := n.deny(by(inUTC)); d.RetryAfter != 8*3600 {
			t.Errorf("eight hours before midnight: %+v", d)
		}
	})
}

func TestAQuotaIsChargedWithTheLimitsOrNotAtAll(t *testing.T) {
	counters(t, func(t *testing.T, n *node, _ *testenv.Clock) {
		n.mustTier(quotad.TierSpec{
			Name: "mixed", RateLimit: quotad.Units(5), RateWindow: 60,
			Quotas: []quotad.Quota{per(quotad.Month, 100), {Name: "daily", Scope: quotad.ScopeKey, RouteGroup: "exports", Quota: quotad.Units(7), Period: quotad.Day}},
		})
		n.mustTenant("m", "mixed")
		key, other := n.mustKey("m"), n.mustKey("m")
		for range 5 {
			n.allow(by(key))
		}
		if d := n.deny(by(key)); d.Refusal() != quotad.CodeRateLimitExceeded || d.RetryAfter != 60 {
			t.Errorf("refused by the limit: %+v", d)
		}
		if diff := cmp.Diff(map[string]int64{"base": 0, "per-month": 95, "daily": 2}, n.remaining(by(key))); diff != "" {
			t.Errorf("after a refusal by the limit: %s", diff)
		}
		if d := n.deny(costing(by(key), 3)); d.Refusal() != quotad.CodeQuotaExceeded { // of both, the day is longer
			t.Errorf("refused by both: %+v", d)
		}
		n.allow(costing(by(other), 5))
		if d := n.deny(costing(by(other), 3)); d.Limits[0].Allowed || d.Limits[2].Allowed {
			t.Errorf("each key has its own: %+v", d)
		}
		elsewhere := n.remaining(Call{APIKey: key.Secret, RouteGroup: "default"})
		if diff := cmp.Diff(map[string]int64{"base": 5, "per-month": 90}, elsewhere); diff != "" {
			t.Errorf("in another group: %s", diff)
		}
	})
}

// The limit that refuses speaks for the decision, however much longer the other's
// window is; of those that admit, the one with least left.
func TestTheMinuteSpeaksAndNotTheYear(t *testing.T) {
	counters(t, func(t *testing.T, n *node, _ *testenv.Clock) {
		n.mustTier(quotad.TierSpec{Name: "both", RateLimit: quotad.Units(5), RateWindow: 60, Quotas: []quotad.Quota{per(quotad.Year, 100000)}})
		n.mustTenant("b", "both")
		key := n.mustKey("b")
		for i := range int64(6) {
			d := n.decide(by(key))
			l, _ := d.Strictest()
			if d.Allowed != (i < 5) || l.Policy != quotad.BaseLimit || l.Limit != 5 || l.Remaining != max(0, 4-i) || l.ResetAfter > 60 || d.RetryAfter > 60 {
				t.Errorf("call %d: %+v speaks for %+v", i, l, d)
			}
			if len(d.Limits) != 2 || d.Limits[1].Remaining != 100000-min(i+1, 5) || d.Limits[1].Window != 365*86400 {
				t.Errorf("call %d: %+v", i, d.Limits)
			}
		}
	})
}

func TestWhatAQuotaCountsBy(t *testing.T) {
	counters(t, func(t *testing.T, n *node, _ *testenv.Clock) {
		var quotas []quotad.Quota
		for _, scope := range quotad.Scopes {
			quotas = append(quotas, quotad.Quota{Name: string(scope), Scope: scope, Quota: quotad.Units(10), Period: quotad.Week})
		}
		key := n.metered("w", quotas)
		other := n.mustKey("w")
		call := by(key)
		call.Subject, call.Address = "ann", address("192.0.2.1")
		n.allow(call)
		if diff := cmp.Diff(map[string]int64{"key": 9, "tenant": 9, "subject": 9, "ip": 9}, n.remaining(call)); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff(map[string]int64{"key": 10, "tenant": 9}, n.remaining(by(other))); diff != "" {
			t.Error(diff)
		}
		call.Subject = "bob"
		if diff := cmp.Diff(map[string]int64{"key": 9, "tenant": 9, "subject": 10, "ip": 9}, n.remaining(call)); diff != "" {
			t.Error(diff)
		}
	})
}

func TestQuotasOfNothingOfNullAndInTheShadow(t *testing.T) {
	counters(t, func(t *testing.T, n *node, _ *testenv.Clock) {
		nothing, shadow := per(quotad.Year, 0), per(quotad.Day, 1)
		shadow.Shadow = true
		key := n.metered("nothing", []quotad.Quota{nothing})
		for range 100 {
			if d := n.deny(by(key)); d.RetryAfter != 0 || d.Refusal() != quotad.CodeQuotaExceeded || d.Limits[0].ResetAfter <= 0 {
				t.Fatalf("a quota of 0: %+v", d)
			}
		}
		unlimited := nothing
		unlimited.Quota = nil
		if d := n.allow(by(n.metered("unlimited", []quotad.Quota{unlimited}))); len(d.Limits) != 0 {
			t.Errorf("a quota of null: %+v", d)
		}
		dark := n.metered("dark", []quotad.Quota{shadow})
		for i := range 3 {
			if d := n.allow(by(dark)); d.Limits[0].Allowed != (i == 0) || !d.Limits[0].Shadow {
				t.Errorf("call %d to a shadow: %+v", i, d)
			}
		}
		small := n.metered("small", []quotad.Quota{per(quotad.Month, 5)})
		_, e := n.fail(costing(by(small), 6), quotad.CodeCostExceedsLimit)
		if e.Detail != `a cost of 6 can never pass: the quota "per-month" holds 5` {
			t.Errorf("detail %q", e.Detail)
		}
		if d := n.allow(costing(by(small), 5)); d.Limits[0].Remaining != 0 {
			t.Errorf("after a cost that never fits: %+v", d)
		}
	})
}

// asking counts what the counters are asked.
type asking struct {
	Limiter
	times atomic.Int64
}

func (a *asking) TakeOr(ctx context.Context, call ratelimit.Call, status []ratelimit.Status, policy quotad.FailurePolicy) (ratelimit.Outcome, error) {
	a.times.Add(1)
	return a.Limiter.TakeOr(ctx, call, status, policy)
}

func (a *asking) TakeAllOr(ctx context.Context, list []*ratelimit.Question) {
	a.times.Add(1)
	a.Limiter.TakeAllOr(ctx, list)
}

// A node whose clock is behind or ahead counts in the periods of the counters'
// clock, and does not ask twice for each call.
func TestTheCountersClockSaysWhichPeriodItIs(t *testing.T) {
	for _, off := range []time.Duration{-40 * 24 * time.Hour, -10 * time.Second, 10 * time.Second, 7 * time.Hour, 40 * 24 * time.Hour} {
		t.Run(off.String(), func(t *testing.T) {
			counters(t, func(t *testing.T, n *node, ofCounters *testenv.Clock) {
				asked := &asking{Limiter: n.limiter}
				n.limiter = asked
				key := n.metered("c", []quotad.Quota{per(quotad.Day, 5), per(quotad.Month, 50)})
				set := func(text string) {
					ofCounters.Set(instant(t, text))
					n.Set(instant(t, text).Add(off))
				}
				set("2027-02-28T23:59:55Z")
				n.allow(costing(by(key), 5))
				if d := n.deny(by(key)); d.RetryAfter != 5 {
					t.Errorf("the last seconds of a day: %+v", d)
				}
				set("2027-03-01T00:00:05Z")
				n.Resync() // as the caches' time is the node's
				if d := n.allow(by(key)); d.Limits[0].Remaining != 4 || d.Limits[1].Remaining != 49 {
					t.Errorf("the first seconds of the next: %+v", d)
				}
				before := asked.times.Load()
				for range 4 {
					n.allow(by(key))
				}
				if times := asked.times.Load() - before; times != 4 {
					t.Errorf("4 calls asked the counters %d times", times)
				}
				decisions, err := n.Limits(t.Context(), Call{APIKey: key.Secret, RouteGroup: "exports"})
				if must(t, 0, err); decisions[0].Limits[0].Remaining != 0 {
					t.Errorf("what is told is of another day: %+v", decisions[0])
				}
				// The clock was put right meanwhile.
				n.Set(ofCounters.Now())
				n.Resync()
				n.deny(by(key))
			})
		})
	}
}

func TestWhatIsToldFirstIsOfTheCountersPeriod(t *testing.T) {
	counters(t, func(t *testing.T, n *node, ofCounters *testenv.Clock) {
		key := n.metered("c", []quotad.Quota{per(quotad.Day, 5)})
		ofCounters.Advance(24 * time.Hour)
		decisions, err := n.Limits(t.Context(), Call{APIKey: key.Secret})
		must(t, 0, err)
		for _, d := range decisions {
			if l := d.Limits[0]; !d.Allowed || l.Remaining != 5 || l.ResetAfter != 12*3600 {
				t.Errorf("%+v", d)
			}
		}
	})
}

// restless counters are always in another period.
type restless struct{ asking }

func (r *restless) TakeOr(context.Context, ratelimit.Call, []ratelimit.Status, quotad.FailurePolicy) (ratelimit.Outcome, error) {
	n := r.times.Add(1)
	return ratelimit.Outcome{Now: noon.AddDate(int(n), 0, 0)}, fmt.Errorf("take: %w", ratelimit.ErrPeriod)
}

func (r *restless) TakeAllOr(ctx context.Context, list []*ratelimit.Question) {
	n := r.times.Add(1)
	for _, q := range list {
		q.Outcome, q.Err = ratelimit.Outcome{Now: noon.AddDate(int(n), 0, 0)}, ratelimit.ErrPeriod
	}
}

func TestACallIsNotAskedForEver(t *testing.T) {
	t.Parallel()
	counters := &restless{}
	n := newNode(t, databasetest.SQLite(t), testenv.NewClock(), counters)
	n.furnish()
	key := n.metered("c", []quotad.Quota{per(quotad.Day, 5)})
	if _, e := n.fail(by(key), quotad.CodeLimiterUnavailable); e.RetryAfter <= 0 || !errors.Is(e, ratelimit.ErrPeriod) {
		t.Errorf("%+v", e)
	}
	if times := counters.times.Load(); times != 3 {
		t.Errorf("asked %d times", times)
	}
	if _, err := n.Limits(t.Context(), Call{APIKey: key.Secret}); codeOf(err) != quotad.CodeLimiterUnavailable {
		t.Errorf("what is told: %v", err)
	}
}

func TestNobodyLooksAtTimeZonesWhileAPeriodLasts(t *testing.T) {
	c, key := newStill(t, nil, per(quotad.Day, 1_000_000_000), per(quotad.Month, 1_000_000_000))
	call := Call{APIKey: key, RouteGroup: "exports", Door: "check"}
	n := testing.AllocsPerRun(1000, func() {
		if d, err := c.Check(t.Context(), call); err != nil || !d.Allowed || len(d.Limits) != 3 {
			t.Fatalf("%+v, %v", d, err)
		}
	})
	if n > 6 {
		t.Errorf("a warm Check makes %v allocations", n)
	}
}

func TestAZoneThatIsNotKnownIsUTC(t *testing.T) {
	t.Parallel()
	log, db := &page{}, databasetest.SQLite(t)
	n := newNode(t, db, testenv.NewClock(), nil, func(o *Options) { o.Logger = slog.New(slog.NewJSONHandler(log, nil)) })
	n.furnish()
	key := n.metered("far", []quotad.Quota{per(quotad.Day, 5)})
	err := db.InTx(t.Context(), func(tx *database.Tx) error { // as a node with later tables would
		_, err := tx.ExecContext(t.Context(), `UPDATE tenants SET time_zone = 'Mars/Olympus_Mons' WHERE id = 'far'`)
		return err
	})
	must(t, 0, err)
	n.Invalidate(quotad.ResourceTenant, "far")
	if d := n.allow(by(key)); d.Limits[0].ResetAfter != 12*3600 {
		t.Errorf("%+v", d)
	}
	lines := log.lines(t)
	if len(lines) != 1 || lines[0]["msg"] != "took a tenant's time zone for UTC" || !strings.Contains(lines[0]["error"].(string), "Mars/Olympus_Mons") {
		t.Errorf("the log says %v", lines)
	}
}
