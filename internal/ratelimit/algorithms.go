package ratelimit

import (
	"math"
	"time"

	"github.com/quotad/quotad"
)

// state is all that is kept of a counter: three integers whose meaning the
// algorithm gives. present is false for a counter that was never charged.
//
//	                        epoch                a                     b
//	sliding_window_counter  index of the window  units in the window   units in it
//	                                             before it
//	fixed_window            index of the window  units in it           –
//	token, leaky bucket     ms at which a held   level, units × ms of  –
//	                                             window; below 0 in debt
//	sliding_window_log      ms of the oldest     units in the window   ms at which a
//	                        entry, 0 for none                          refused cost fits
//	calendar_quota          –                    units in the period   –
//
// Windows are aligned to the Unix epoch: the window of an instant t has the
// index floor(t/W). All times are whole milliseconds.
type state struct {
	epoch, a, b int64
	present     bool
	log         []entryOfLog // of a log in memory, oldest first
}

// The functions of an algorithm are pure: they see a state and a time, and neither
// a clock nor a store. take.lua holds the same roll, admits and charge; what a
// caller is told (status) is computed in Go alone, from the state that either
// store reports.

// roll brings a state to the time now, charging nothing. A clock that steps back
// never gives anything back: time stands still until it has caught up.
func (l *Limit) roll(s state, now int64) state {
	switch l.Algorithm {
	case quotad.FixedWindow:
		return rollFixedWindow(s, now, l.windowMS())
	case quotad.TokenBucket, quotad.LeakyBucket:
		return rollBucket(s, now, l.Units, l.windowMS(), l.Size())
	case quotad.SlidingWindowLog:
		return rollLog(s, now, l.windowMS())
	case quotad.CalendarQuota:
		return s
	default:
		return rollSlidingWindow(s, now, l.windowMS())
	}
}

// admits reports whether cost more units fit into a state rolled to now. A limit
// of 0 admits nothing, not even a cost of 0.
func (l *Limit) admits(s state, now, cost int64) bool {
	if l.Units == 0 {
		return false
	}
	switch l.Algorithm {
	case quotad.FixedWindow, quotad.CalendarQuota, quotad.SlidingWindowLog:
		return s.a+cost <= l.Units
	case quotad.TokenBucket, quotad.LeakyBucket:
		return cost <= l.Size() && cost*l.windowMS() <= s.a+l.delayMS()*l.Units
	default:
		return admitsSlidingWindow(s, now, cost, l.Units, l.windowMS())
	}
}

// charge adds cost units, more than 0, to a state rolled to now that admits them.
func (l *Limit) charge(s state, now, cost int64) state {
	s.present = true
	switch l.Algorithm {
	case quotad.FixedWindow, quotad.CalendarQuota:
		s.a += cost
	case quotad.TokenBucket, quotad.LeakyBucket:
		s.a -= cost * l.windowMS()
	case quotad.SlidingWindowLog:
		return chargeLog(s, now, cost, l.Units, l.windowMS())
	default:
		s.b += cost
	}
	return s
}

// without is the state before its last units were charged.
func (l *Limit) without(s state, units int64) state {
	switch l.Algorithm {
	case quotad.FixedWindow, quotad.CalendarQuota, quotad.SlidingWindowLog:
		s.a -= units
	case quotad.TokenBucket, quotad.LeakyBucket:
		s.a += units * l.windowMS()
	default:
		s.b -= units
	}
	return s
}

// status is what a caller is told of a state after the call: charged if it was
// admitted. allowed is whether this limit admitted the cost.
func (l *Limit) status(s state, now, cost int64, allowed bool) Status {
	if l.Units == 0 {
		return Status{Reset: l.length(now)}
	}
	st := Status{Allowed: allowed}
	var reset, retry int64
	switch l.Algorithm {
	case quotad.FixedWindow:
		st.Remaining, reset, retry = statusFixedWindow(s, now, l.Units, l.windowMS())
	case quotad.TokenBucket, quotad.LeakyBucket:
		st.Remaining, reset, retry = statusBucket(s, now, cost, l.Units, l.windowMS(), l.Size(), l.delayMS())
		if allowed && s.a < 0 {
			st.Delay = milliseconds(ceilDiv(-s.a, l.Units))
		}
	case quotad.SlidingWindowLog:
		st.Remaining, reset, retry = statusLog(s, now, l.Units, l.windowMS())
	case quotad.CalendarQuota:
		st.Remaining, reset, retry = max(0, l.Units-s.a), l.Until-now, l.Until-now
	default:
		st.Remaining, reset, retry = statusSlidingWindow(s, now, cost, l.Units, l.windowMS(), allowed)
	}
	if !allowed && cost <= l.Size() {
		reset = retry
		st.Retry = milliseconds(retry)
	}
	st.Reset = milliseconds(reset)
	return st
}

// idleAt is the millisecond from which a state says no more than an absent one.
func (l *Limit) idleAt(s state) int64 {
	switch l.Algorithm {
	case quotad.FixedWindow:
		return (s.epoch + 1) * l.windowMS()
	case quotad.TokenBucket, quotad.LeakyBucket:
		return s.epoch + untilFull(s, l.Units, l.windowMS(), l.Size())
	case quotad.SlidingWindowLog:
		return s.log[len(s.log)-1].at + l.windowMS()
	case quotad.CalendarQuota:
		return l.Until + periodMoves
	default:
		return (s.epoch + 2) * l.windowMS()
	}
}

// periodMoves is how much later, in ms, a period can end than was said when it was
// last charged, because its calendar has moved from the zone of the easternmost
// clocks to that of the westernmost: its counter is kept so much longer.
const periodMoves = 26 * 60 * 60 * 1000

// speaksOf reports whether the limit can be judged at now: a quota only in its period.
func (l *Limit) speaksOf(now int64) bool {
	return l.Algorithm != quotad.CalendarQuota || l.From <= now && now < l.Until
}

func (l *Limit) length(now int64) time.Duration {
	if l.Algorithm == quotad.CalendarQuota {
		return milliseconds(l.Until - now)
	}
	return l.Window
}

func (l *Limit) windowMS() int64 { return l.Window.Milliseconds() }

// delayMS is how long a call may wait: no other algorithm than the leaky bucket lets it.
func (l *Limit) delayMS() int64 {
	if l.Algorithm != quotad.LeakyBucket {
		return 0
	}
	return l.MaxDelay.Milliseconds()
}

// milliseconds is ms as a duration, at most the longest there is (292 years: a
// bucket may well take longer to fill).
func milliseconds(ms int64) time.Duration {
	return time.Duration(min(ms, math.MaxInt64/int64(time.Millisecond))) * time.Millisecond
}

// ceilDiv is ⌈n/d⌉ for n ≥ 0, d > 0.
func ceilDiv(n, d int64) int64 {
	q := n / d
	if q*d < n {
		q++
	}
	return q
}
