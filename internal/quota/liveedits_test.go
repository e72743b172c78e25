package quota

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/testenv"
)

// ledger is what has been used, by a slow and obvious account. Time stands still,
// so nothing is ever given back.
type ledger struct {
	used map[string]int64 // units, by counter
	left map[string]int64 // of buckets, in units × ms of the window; may be owed
}

// policyOf is one limit or quota as it stands now.
type policyOf struct {
	counter       string // what of it an edit may not change without a new counter
	algorithm     quotad.Algorithm
	units         int64
	size          int64
	window, delay int64 // ms
}

func (p policyOf) bucket() bool {
	return p.algorithm == quotad.TokenBucket || p.algorithm == quotad.LeakyBucket
}

// level is what a bucket holds.
func (l ledger) level(p policyOf) int64 {
	left, charged := l.left[p.counter]
	if full := p.size * p.window; !charged || left > full {
		return full
	}
	return left
}

func (l ledger) admits(p policyOf, cost int64) bool {
	switch {
	case p.units == 0:
		return false
	case p.bucket():
		return cost*p.window <= l.level(p)+p.delay*p.units
	default:
		return l.used[p.counter]+cost <= p.units
	}
}

func (l ledger) charge(p policyOf) {
	if p.bucket() {
		l.left[p.counter] = l.level(p) - p.window
	} else {
		l.used[p.counter]++
	}
}

func (l ledger) remaining(p policyOf) int64 {
	switch {
	case p.units == 0:
		return 0
	case p.bucket():
		return max(0, l.level(p)/p.window)
	default:
		return max(0, p.units-l.used[p.counter])
	}
}

// standingEdits are all that can be edited of a caller's limits.
type standingEdits struct {
	algorithm    quotad.Algorithm
	rate, window int64
	burst        int64 // 0 for none
	delay        int64 // ms
	ownRate      int64 // -1 for none
	ownWindow    int64
	quota        int64
	period       quotad.Period
	zone         string
	second       bool // whether the tenant is in the second of two tiers
}

// tier is the tier spec that the edits amount to.
func (e *standingEdits) tier(s *quotad.TierSpec) {
	s.Algorithm, s.RateLimit, s.RateWindow, s.Burst, s.MaxDelayMS = e.algorithm, quotad.Units(e.rate), e.window, nil, 0
	switch e.algorithm {
	case quotad.LeakyBucket:
		s.MaxDelayMS = e.delay
		fallthrough
	case quotad.TokenBucket:
		if e.burst > 0 {
			s.Burst = quotad.Units(e.burst)
		}
	}
	s.Quotas = []quotad.Quota{{Name: "quota", Quota: quotad.Units(e.quota), Period: e.period}}
}

// policies are the base limit and the quota, in the order in which they are reported.
func (e *standingEdits) policies(t *rapid.T, now time.Time) []policyOf {
	base := policyOf{algorithm: e.algorithm, units: e.rate, size: e.rate, window: e.window * 1000}
	if e.ownRate >= 0 {
		base.units, base.size, base.window = e.ownRate, e.ownRate, e.ownWindow*1000
	}
	if base.bucket() && e.burst > 0 && e.ownRate < 0 && base.units > 0 {
		base.size = e.burst
	}
	if e.algorithm == quotad.LeakyBucket {
		base.delay = e.delay
	}
	base.counter = fmt.Sprint("base ", base.algorithm, base.window)
	form := map[quotad.Period]string{quotad.Day: "2006-01-02", quotad.Month: "2006-01", quotad.Year: "2006"}[e.period]
	first := now.In(mustZone(t, e.zone)).Format(form)
	return []policyOf{base, {counter: fmt.Sprint("quota ", e.period, first), algorithm: quotad.CalendarQuota, units: e.quota, size: e.quota}}
}

// change draws one edit and makes it.
func (e *standingEdits) change(t *rapid.T, n *node, name, keyID string) {
	small := rapid.Int64Range(0, 12)
	switch rapid.SampledFrom([]string{"rate", "window", "algorithm", "burst", "delay", "quota", "period", "zone", "override", "no override", "tier"}).Draw(t, "edit") {
	case "rate":
		e.rate = small.Draw(t, "rate")
	case "window":
		e.window = rapid.SampledFrom([]int64{60, 3600}).Draw(t, "window")
	case "algorithm":
		e.algorithm = rapid.SampledFrom(quotad.Algorithms).Draw(t, "algorithm")
	case "burst":
		e.burst = small.Draw(t, "burst")
	case "delay":
		e.delay = rapid.SampledFrom([]int64{0, 5000, 60000}).Draw(t, "delay")
	case "quota":
		e.quota = rapid.Int64Range(0, 30).Draw(t, "quota")
	case "period":
		e.period = rapid.SampledFrom([]quotad.Period{quotad.Day, quotad.Month, quotad.Year}).Draw(t, "period")
	case "zone":
		e.zone = rapid.SampledFrom([]string{"UTC", "Asia/Shanghai", "Pacific/Kiritimati", "Etc/GMT+12"}).Draw(t, "zone")
		n.editTenant(name, func(s *quotad.TenantSpec) { s.TimeZone = e.zone })
	case "override":
		e.ownRate, e.ownWindow = small.Draw(t, "own rate"), rapid.SampledFrom([]int64{60, 3600}).Draw(t, "own window")
		n.editKey(keyID, func(k *quotad.KeySpec) {
			k.RateLimit, k.RateWindow = quotad.Units(e.ownRate), quotad.Units(e.ownWindow)
		})
	case "no override":
		e.ownRate = -1
		n.editKey(keyID, func(k *quotad.KeySpec) { k.RateLimit, k.RateWindow = nil, nil })
	case "tier":
		e.second = !e.second
	}
	tier := name
	if e.second {
		tier += "-too"
	}
	n.editTier(tier, e.tier)
	n.editTenant(name, func(s *quotad.TenantSpec) { s.Tier = tier })
}

// Whatever is edited while windows and periods are open, in whatever order: the
// next call obeys the limit as it is now and names it, what was used stays used,
// and no call fails.
func TestEditsOfOpenWindowsFollowTheLedger(t *testing.T) {
	counters(t, func(t *testing.T, n *node, _ *testenv.Clock) {
		trial := 0
		rapid.Check(t, func(t *rapid.T) {
			trial++
			name := fmt.Sprint("t", trial)
			e := &standingEdits{algorithm: quotad.FixedWindow, rate: 5, window: 60, ownRate: -1, quota: 20, period: quotad.Day, zone: "UTC"}
			for _, tier := range []string{name, name + "-too"} {
				spec := quotad.TierSpec{Name: tier}
				e.tier(&spec)
				n.mustTier(spec)
			}
			n.mustTenant(name, name)
			key := n.mustKey(name)
			account := ledger{map[string]int64{}, map[string]int64{}}
			for range rapid.IntRange(1, 12).Draw(t, "edits") {
				for range rapid.IntRange(0, 8).Draw(t, "calls") {
					e.call(t, n, key, account)
				}
				e.change(t, n, name, key.ID)
				e.call(t, n, key, account)
			}
		})
	})
}

// call makes a call, or a peek, and holds the decision against the ledger.
func (e *standingEdits) call(t *rapid.T, n *node, key quotad.Key, account ledger) {
	policies := e.policies(t, n.Now())
	cost := int64(1)
	if rapid.IntRange(0, 4).Draw(t, "peek") == 0 {
		cost = 0
	}
	allowed := true
	for _, p := range policies {
		allowed = allowed && account.admits(p, cost)
	}
	d, err := n.Check(t.Context(), costing(by(key), cost))
	if err != nil {
		t.Fatalf("a call after an edit: %v", err)
	}
	if allowed && cost > 0 {
		for _, p := range policies {
			account.charge(p)
		}
	}
	if d.Allowed != allowed {
		t.Fatalf("allowed is %v, and by the ledger %v: %+v\n%+v", d.Allowed, allowed, policies, d)
	}
	for i, p := range policies {
		if l := d.Limits[i]; l.Algorithm != p.algorithm || l.Limit != p.size || l.Remaining != account.remaining(p) ||
			p.window > 0 && l.Window*1000 != p.window {
			t.Fatalf("told %+v\nof %+v, of which %d are left", l, p, account.remaining(p))
		}
	}
	if debt := -account.left[policies[0].counter]; d.Allowed && policies[0].bucket() && policies[0].units > 0 && debt > 0 {
		if want := (debt + policies[0].units - 1) / policies[0].units; d.DelayMS != want {
			t.Fatalf("a delay of %d ms, want %d: %+v", d.DelayMS, want, policies[0])
		}
	} else if d.DelayMS != 0 {
		t.Fatalf("a delay of %d ms without a debt: %+v", d.DelayMS, d)
	}
}
