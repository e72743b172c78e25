package quota

import (
	"testing"
	"time"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/testenv"
)

// eachAlgorithm runs f for each algorithm that a limit can name, over both counters.
func eachAlgorithm(t *testing.T, f func(t *testing.T, n *node, ofCounters *testenv.Clock, algorithm quotad.Algorithm)) {
	for _, algorithm := range quotad.Algorithms {
		t.Run(string(algorithm), func(t *testing.T) {
			counters(t, func(t *testing.T, n *node, ofCounters *testenv.Clock) { f(t, n, ofCounters, algorithm) })
		})
	}
}

// wait lets time pass for the node and the counters.
func wait(n *node, ofCounters *testenv.Clock, d time.Duration) {
	n.Advance(d)
	ofCounters.Advance(d)
}

// edited makes a tenant "e" in a tier "edited" of units per minute, with a key.
func (n *node) edited(algorithm quotad.Algorithm, units int64) quotad.Key {
	n.t.Helper()
	n.mustTier(quotad.TierSpec{Name: "edited", RateLimit: quotad.Units(units), Algorithm: algorithm})
	n.mustTenant("e", "edited")
	return n.mustKey("e")
}

func (n *node) resize(units int64) {
	n.t.Helper()
	n.editTier("edited", func(s *quotad.TierSpec) { s.RateLimit = quotad.Units(units) })
}

// admitted is how many of the calls were.
func (n *node) admitted(calls int, call Call) (allowed int64) {
	n.t.Helper()
	for range calls {
		if n.decide(call).Allowed {
			allowed++
		}
	}
	return allowed
}

func TestALoweredLimitHoldsInItsOpenWindow(t *testing.T) {
	eachAlgorithm(t, func(t *testing.T, n *node, ofCounters *testenv.Clock, algorithm quotad.Algorithm) {
		bucket := algorithm == quotad.TokenBucket || algorithm == quotad.LeakyBucket
		key := n.edited(algorithm, 100)
		n.allow(by(key))
		n.resize(10)
		want, more := int64(8), int64(48)
		if bucket {
			want, more = 9, 8 // it held 99, and is cut to 10 by the next call
		}
		if l := n.allow(by(key)).Limits[0]; l.Limit != 10 || l.Remaining != want {
			t.Errorf("after one call of 100 and one of 10: %+v", l)
		}
		n.resize(100)
		n.allow(costing(by(key), more))
		n.resize(10)
		d := n.deny(costing(by(key), 2))
		if l := d.Limits[0]; l.Limit != 10 || l.Remaining > 1 || l.Remaining < 0 || d.RetryAfter < 1 || d.RetryAfter > 120 {
			t.Fatalf("cut to less than was used: %+v", d)
		}
		wait(n, ofCounters, time.Duration(d.RetryAfter)*time.Second-time.Millisecond*1001)
		n.deny(costing(by(key), 2))
		wait(n, ofCounters, time.Millisecond*1001)
		n.allow(costing(by(key), 2))
	})
}

// An edit of the window or the algorithm may begin a new counter: that is one more
// allowance, once, and going back finds what was used.
func TestAnotherWindowOrAlgorithmIsNoGap(t *testing.T) {
	eachAlgorithm(t, func(t *testing.T, n *node, _ *testenv.Clock, algorithm quotad.Algorithm) {
		key := n.edited(algorithm, 10)
		if got := n.admitted(30, by(key)); got != 10 {
			t.Fatalf("%d of 30 calls passed 10/60", got)
		}
		edit := func(a quotad.Algorithm, window int64) {
			n.editTier("edited", func(s *quotad.TierSpec) { s.Algorithm, s.RateWindow = a, window })
		}
		for _, other := range quotad.Algorithms {
			for _, window := range []int64{60, 1, quotad.MaxWindow} {
				edit(other, window)
				want := int64(10)
				if other == algorithm && window == 60 {
					want = 0
				}
				if got := n.admitted(15, by(key)); got != want {
					t.Errorf("%d of 15 calls passed after an edit to %s of %d s, want %d", got, other, window, want)
				}
				if l := n.deny(by(key)).Limits[0]; l.Algorithm != other || l.Window != window || l.Limit != 10 || l.Remaining != 0 {
					t.Errorf("the refusal names %+v", l)
				}
				edit(algorithm, 60)
				n.deny(by(key))
			}
		}
	})
}

func TestALimitTakesTheBaseLimitsPlaceAndGivesItBack(t *testing.T) {
	eachAlgorithm(t, func(t *testing.T, n *node, _ *testenv.Clock, algorithm quotad.Algorithm) {
		key := n.edited(algorithm, 10)
		n.allow(costing(by(key), 10))
		n.editTier("edited", func(s *quotad.TierSpec) {
			s.Limits = []quotad.Limit{{Name: "own", RouteGroup: "exports", Scope: quotad.ScopeKey, Algorithm: algorithm, RateLimit: quotad.Units(3), RateWindow: 60}}
		})
		if got := n.admitted(10, by(key)); got != 3 {
			t.Errorf("%d of 10 calls passed the group's limit of 3", got)
		}
		if d := n.deny(by(key)); len(d.Limits) != 1 || d.Limits[0].Policy != "own" {
			t.Errorf("with a limit of its own: %+v", d)
		}
		n.editTier("edited", func(s *quotad.TierSpec) { s.Limits = nil })
		if d := n.deny(by(key)); len(d.Limits) != 1 || d.Limits[0].Policy != quotad.BaseLimit {
			t.Errorf("without it: %+v", d)
		}
	})
}

func TestAQueueIsEditedWhileCallsWaitInIt(t *testing.T) {
	counters(t, func(t *testing.T, n *node, ofCounters *testenv.Clock) {
		key := n.edited(quotad.LeakyBucket, 60) // drains one a second
		size := func(burst, delay int64) {
			n.editTier("edited", func(s *quotad.TierSpec) { s.Burst, s.MaxDelayMS = quotad.Units(burst), delay })
		}
		size(5, 2000)
		if d := n.allow(costing(by(key), 5)); d.DelayMS != 0 {
			t.Errorf("what fits waits: %+v", d)
		}
		for i := range int64(2) {
			if d := n.allow(by(key)); d.DelayMS != 1000*(i+1) || d.Limits[0].Remaining != 0 {
				t.Errorf("call %d in the queue: %+v", i, d)
			}
		}
		if d := n.deny(by(key)); d.DelayMS != 0 || d.RetryAfter != 1 {
			t.Errorf("beyond the queue: %+v", d)
		}
		size(5, 5000)
		if d := n.allow(costing(by(key), 3)); d.DelayMS != 5000 {
			t.Errorf("in a longer queue: %+v", d)
		}
		size(5, 0)
		if d := n.deny(by(key)); d.RetryAfter != 6 || d.Limits[0].Remaining != 0 {
			t.Errorf("without a queue, 5 of debt: %+v", d)
		}
		wait(n, ofCounters, 5999*time.Millisecond)
		n.deny(by(key))
		wait(n, ofCounters, time.Millisecond)
		if d := n.allow(by(key)); d.DelayMS != 0 {
			t.Errorf("the debt is paid: %+v", d)
		}
	})
}

// A queue of 3 that drains 3 a second admits what drains, and no more at each second.
func TestAQueueAdmitsWhatDrains(t *testing.T) {
	counters(t, func(t *testing.T, n *node, ofCounters *testenv.Clock) {
		n.mustTier(quotad.TierSpec{Name: "queue", RateLimit: quotad.Units(3), RateWindow: 1, Algorithm: quotad.LeakyBucket})
		n.mustTenant("q", "queue")
		key, admitted := n.mustKey("q"), 0
		for i := range 100 {
			d := n.decide(by(key))
			if d.Allowed {
				admitted++
			}
			if i >= 10 && d.Limits[0].Remaining > 0 {
				t.Errorf("call %d: %+v", i, d)
			}
			wait(n, ofCounters, 100*time.Millisecond)
		}
		if admitted < 30 || admitted > 33 {
			t.Errorf("%d of 100 calls passed in 10 s, want 30 to 33", admitted)
		}
	})
}

func TestQuotasAreEditedInTheirPeriod(t *testing.T) {
	counters(t, func(t *testing.T, n *node, ofCounters *testenv.Clock) {
		both(t, n, ofCounters, "2027-03-10T12:00:00Z")
		key := n.metered("q", []quotad.Quota{per(quotad.Month, 10)})
		edit := func(edit func(*quotad.Quota)) {
			n.editTier("q", func(s *quotad.TierSpec) { edit(&s.Quotas[0]) })
		}
		resize := func(units int64) { edit(func(q *quotad.Quota) { q.Quota = quotad.Units(units) }) }
		if got := n.admitted(50, by(key)); got != 10 {
			t.Fatalf("%d of 50 calls passed a quota of 10", got)
		}
		resize(20) // refused calls were not counted
		if got := n.admitted(11, by(key)); got != 10 {
			t.Errorf("%d of 11 calls passed after a raise to 20, want 10", got)
		}
		resize(5)
		if d := n.deny(by(key)); d.Limits[0].Limit != 5 || d.Limits[0].Remaining != 0 || d.RetryAfter != 21*86400+12*3600 {
			t.Errorf("cut to less than was used: %+v", d)
		}
		resize(25)
		if l := n.allow(by(key)).Limits[0]; l.Limit != 25 || l.Remaining != 4 {
			t.Errorf("raised again: %+v", l)
		}
		edit(func(q *quotad.Quota) { q.Quota = nil })
		n.allow(by(key))
		resize(21)
		n.deny(by(key)) // what was used while it was unlimited was not counted, what was used before stays
		edit(func(q *quotad.Quota) { q.Period, q.Quota = quotad.Week, quotad.Units(3) })
		if got := n.admitted(10, by(key)); got != 3 {
			t.Errorf("%d of 10 calls passed a quota of 3 in another period", got)
		}
		edit(func(q *quotad.Quota) { q.Period = quotad.Month })
		n.deny(by(key))
		n.editTier("q", func(s *quotad.TierSpec) { s.Quotas = nil })
		n.allow(by(key))
	})
}

func TestATenantMovesToAnotherZone(t *testing.T) {
	counters(t, func(t *testing.T, n *node, ofCounters *testenv.Clock) {
		both(t, n, ofCounters, "2027-03-31T20:00:00Z")
		key := n.metered("z", []quotad.Quota{per(quotad.Month, 10)})
		n.allow(costing(by(key), 10))
		move := func(zone string) { n.editTenant("z", func(s *quotad.TenantSpec) { s.TimeZone = zone }) }
		left := func(d quotad.Decision) time.Duration { return time.Duration(d.Limits[0].ResetAfter) * time.Second }

		move("America/Los_Angeles") // the same March, which ends later there
		if d := n.deny(by(key)); left(d) != 11*time.Hour {
			t.Errorf("moved west: %+v", d)
		}
		both(t, n, ofCounters, "2027-04-01T06:59:59Z")
		if d := n.deny(by(key)); left(d) != time.Second {
			t.Errorf("in the last second of the later end: %+v", d)
		}
		move("UTC") // where it is April
		if d := n.allow(costing(by(key), 4)); d.Limits[0].Remaining != 6 {
			t.Errorf("moved back: %+v", d)
		}
		move("America/Los_Angeles") // where it is March once more
		n.deny(by(key))
		both(t, n, ofCounters, "2027-04-01T07:00:00Z")
		if d := n.allow(by(key)); d.Limits[0].Remaining != 5 {
			t.Errorf("in the same April: %+v", d)
		}
		move("Asia/Shanghai") // where April began long ago
		if d := n.allow(by(key)); d.Limits[0].Remaining != 4 {
			t.Errorf("moved east: %+v", d)
		}
	})
}

func TestATenantGetsAnotherAnchorDay(t *testing.T) {
	counters(t, func(t *testing.T, n *node, ofCounters *testenv.Clock) {
		both(t, n, ofCounters, "2027-03-20T12:00:00Z")
		key := n.metered("a", []quotad.Quota{per(quotad.Month, 10)})
		n.allow(costing(by(key), 10))
		anchor := func(day int) { n.editTenant("a", func(s *quotad.TenantSpec) { s.BillingAnchorDay = day }) }
		anchor(15)
		if d := n.allow(costing(by(key), 10)); d.Limits[0].ResetAt != instant(t, "2027-04-15T00:00:00Z") || d.Limits[0].Window != 31*86400 {
			t.Errorf("from the 15th: %+v", d)
		}
		n.deny(by(key))
		anchor(1)
		if d := n.deny(by(key)); d.Limits[0].ResetAt != instant(t, "2027-04-01T00:00:00Z") {
			t.Errorf("from the 1st again: %+v", d)
		}
	})
}
