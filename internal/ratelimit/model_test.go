package ratelimit

import (
	"math/big"
	"slices"
	"time"

	"github.com/quotad/quotad"
)

// model is the slow, obvious limiter that the real ones are held against: it
// follows the definitions in rational numbers, and finds waits by asking.
type model struct {
	limit Limit
	// charged holds units by window index for the window algorithms.
	charged map[int64]int64
	// level and at are a bucket's, in units and ms.
	level *big.Rat
	at    int64
	// taken is a log's: units and when they were taken.
	taken []entryOfLog
}

func newModel(l Limit) *model { return &model{limit: l, charged: map[int64]int64{}} }

// edit changes the units and the burst of the limit, keeping what was used.
func (m *model) edit(l Limit) { m.limit = l }

func (m *model) bucket() bool {
	return m.limit.Algorithm == quotad.TokenBucket || m.limit.Algorithm == quotad.LeakyBucket
}

// time is now, but never before the last charge: a clock that steps back stands still.
func (m *model) time(now int64) int64 {
	if m.bucket() {
		return max(now, m.at)
	}
	if m.limit.Algorithm == quotad.SlidingWindowLog {
		return now
	}
	// Only a charge fixes a window: until then time may go back freely.
	last := int64(-1)
	for k := range m.charged {
		last = max(last, k)
	}
	return max(now, last*m.limit.windowMS())
}

func (m *model) levelAt(now int64) *big.Rat {
	full := new(big.Rat).SetInt64(m.limit.Size())
	if m.level == nil {
		return full
	}
	passed := big.NewRat(max(0, now-m.at)*m.limit.Units, m.limit.windowMS())
	level := passed.Add(passed, m.level)
	if level.Cmp(full) > 0 {
		return full
	}
	return level
}

// allows says whether cost fits at now, in ms.
func (m *model) allows(now, cost int64) bool {
	return m.allowsWithin(now, cost, m.limit.delayMS())
}

// allowsWithin says whether cost fits at now or after a delay of a leaky bucket.
func (m *model) allowsWithin(now, cost, delay int64) bool {
	if m.limit.Units == 0 {
		return false
	}
	now = m.time(now)
	w, k := m.limit.windowMS(), now/m.limit.windowMS()
	switch m.limit.Algorithm {
	case quotad.FixedWindow:
		return m.charged[k]+cost <= m.limit.Units
	case quotad.TokenBucket, quotad.LeakyBucket:
		level := m.levelAt(now)
		level.Add(level, big.NewRat(delay*m.limit.Units, w))
		return cost <= m.limit.Size() && level.Cmp(new(big.Rat).SetInt64(cost)) >= 0
	case quotad.SlidingWindowLog:
		sum := cost
		for _, e := range m.taken {
			if e.at > now-w {
				sum += e.units
			}
		}
		return sum <= m.limit.Units
	default:
		if max(m.limit.Units, m.charged[k-1]) > quotad.MaxUnits/w {
			now -= now % 1000 // such counts are weighed in whole seconds
		}
		weight := big.NewRat(w-now%w, w)
		estimate := weight.Mul(weight, new(big.Rat).SetInt64(m.charged[k-1]))
		estimate.Add(estimate, new(big.Rat).SetInt64(m.charged[k]+cost))
		return estimate.Cmp(new(big.Rat).SetInt64(m.limit.Units)) <= 0
	}
}

func (m *model) charge(now, cost int64) {
	if cost == 0 {
		return
	}
	now = m.time(now)
	if m.limit.Algorithm == quotad.SlidingWindowLog {
		at := stamp(now, m.limit.Units, m.limit.windowMS())
		if n := len(m.taken); n > 0 {
			at = max(at, m.taken[n-1].at)
		}
		// What has left the window by a charge stays away, even if the clock steps back.
		m.taken = slices.DeleteFunc(m.taken, func(e entryOfLog) bool { return e.at <= now-m.limit.windowMS() })
		m.taken = append(m.taken, entryOfLog{at, cost})
		return
	}
	if m.bucket() {
		level := m.levelAt(now)
		m.level, m.at = level.Sub(level, new(big.Rat).SetInt64(cost)), now
		return
	}
	m.charged[now/m.limit.windowMS()] += cost
}

// remaining is the greatest cost that fits without a delay, 0 if none does.
func (m *model) remaining(now int64) int64 {
	low, high := int64(0), m.limit.Size()
	for low < high {
		mid := low + (high-low+1)/2
		if m.allowsWithin(now, mid, 0) {
			low = mid
		} else {
			high = mid - 1
		}
	}
	return low
}

// debt is the ms until a bucket's level is 0 or a log is empty, 0 if it is above.
func (m *model) debt(now int64) (ms int64) {
	if m.bucket() {
		return m.delay().Milliseconds()
	}
	for _, e := range m.taken {
		ms = max(ms, e.at+m.limit.windowMS()-now)
	}
	return ms
}

// delay is how long a bucket in debt needs to be out of it.
func (m *model) delay() time.Duration {
	if m.level == nil || m.level.Sign() >= 0 {
		return 0
	}
	ms := new(big.Rat).Mul(m.level, big.NewRat(-m.limit.windowMS(), m.limit.Units))
	return milliseconds(ceilDiv(ms.Num().Int64(), ms.Denom().Int64()))
}

// wait is the least number of ms after which cost fits, found by halving: once a
// cost fits it goes on fitting while nothing is charged.
func (m *model) wait(now, cost int64) int64 {
	low, high := int64(0), m.debt(now)+4*m.limit.windowMS()*max(1, ceilDiv(m.limit.Size(), max(1, m.limit.Units)))+m.time(now)-now
	for low < high {
		mid := low + (high-low)/2
		if m.allows(now+mid, cost) {
			high = mid
		} else {
			low = mid + 1
		}
	}
	return low
}
