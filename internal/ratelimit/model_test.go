package ratelimit

import (
	"math/big"

	"github.com/quotad/quotad"
)

// model is the slow, obvious limiter that the real ones are held against: it
// follows the definitions in rational numbers, and finds waits by asking.
type model struct {
	limit Limit
	// charged holds units by window index for the window algorithms.
	charged map[int64]int64
	// level and at are a token bucket's, in units and ms.
	level *big.Rat
	at    int64
	// latest is the latest time seen: a clock that steps back stands still.
	latest int64
}

func newModel(l Limit) *model { return &model{limit: l, charged: map[int64]int64{}} }

// edit changes the units and the burst of the limit, keeping what was used.
func (m *model) edit(l Limit) { m.limit = l }

func (m *model) time(now int64) int64 {
	if m.limit.Algorithm == quotad.TokenBucket {
		return max(now, m.at)
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
	if m.limit.Units == 0 {
		return false
	}
	now = m.time(now)
	w, k := m.limit.windowMS(), now/m.limit.windowMS()
	switch m.limit.Algorithm {
	case quotad.FixedWindow:
		return m.charged[k]+cost <= m.limit.Units
	case quotad.TokenBucket:
		return m.levelAt(now).Cmp(new(big.Rat).SetInt64(cost)) >= 0
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
	if m.limit.Algorithm == quotad.TokenBucket {
		level := m.levelAt(now)
		m.level, m.at = level.Sub(level, new(big.Rat).SetInt64(cost)), now
		return
	}
	m.charged[now/m.limit.windowMS()] += cost
}

// remaining is the greatest cost that fits, 0 if none does.
func (m *model) remaining(now int64) int64 {
	low, high := int64(0), m.limit.Size()
	for low < high {
		mid := low + (high-low+1)/2
		if m.allows(now, mid) {
			low = mid
		} else {
			high = mid - 1
		}
	}
	return low
}

// wait is the least number of ms after which cost fits, found by halving: once a
// cost fits it goes on fitting while nothing is charged.
func (m *model) wait(now, cost int64) int64 {
	low, high := int64(0), 4*m.limit.windowMS()*max(1, ceilDiv(m.limit.Size(), max(1, m.limit.Units)))+m.time(now)-now
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
