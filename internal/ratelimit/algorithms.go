package ratelimit

import (
	"math"
	"time"

	"github.com/quotad/quotad"
)

// state is all that is kept of a counter: three integers whose meaning the
// algorithm gives. present is false for a counter that was never charged.
//
//	                        epoch                      a                    b
//	sliding_window_counter  index of the window        units in the one     units in it
//	                                                   before it
//	fixed_window            index of the window        units in it          –
//	token_bucket            ms at which a held         level, in units ×    –
//	                                                   window ms
//
// Windows are aligned to the Unix epoch: the window of an instant t has the
// index floor(t/W). All times are whole milliseconds.
type state struct {
	epoch, a, b int64
	present     bool
}

// The four functions of an algorithm are pure: they see a state and a time, and
// neither a clock nor a store. take.lua holds the same roll, admits and charge;
// what a caller is told (status) is computed in Go alone, from the state that
// either store reports.

// roll brings a state to the time now, charging nothing. A clock that steps back
// never gives anything back: time stands still until it has caught up.
func (l Limit) roll(s state, now int64) state {
	switch l.Algorithm {
	case quotad.FixedWindow:
		return rollFixedWindow(s, now, l.windowMS())
	case quotad.TokenBucket:
		return rollTokenBucket(s, now, l.Units, l.windowMS(), l.Size())
	default:
		return rollSlidingWindow(s, now, l.windowMS())
	}
}

// admits reports whether cost more units fit into a state rolled to now. A limit
// of 0 admits nothing, not even a cost of 0.
func (l Limit) admits(s state, now, cost int64) bool {
	if l.Units == 0 {
		return false
	}
	switch l.Algorithm {
	case quotad.FixedWindow:
		return s.a+cost <= l.Units
	case quotad.TokenBucket:
		return cost <= l.Size() && cost*l.windowMS() <= s.a
	default:
		return admitsSlidingWindow(s, now, cost, l.Units, l.windowMS())
	}
}

// charge adds cost units to a state that admits them.
func (l Limit) charge(s state, cost int64) state {
	s.present = true
	switch l.Algorithm {
	case quotad.FixedWindow:
		s.a += cost
	case quotad.TokenBucket:
		s.a -= cost * l.windowMS()
	default:
		s.b += cost
	}
	return s
}

// status is what a caller is told of a state after the call: charged if it was
// admitted. allowed is whether this limit admitted the cost.
func (l Limit) status(s state, now, cost int64, allowed bool) Status {
	if l.Units == 0 {
		return Status{Reset: l.Window}
	}
	st := Status{Allowed: allowed}
	var reset, retry int64
	switch l.Algorithm {
	case quotad.FixedWindow:
		st.Remaining, reset, retry = statusFixedWindow(s, now, l.Units, l.windowMS())
	case quotad.TokenBucket:
		st.Remaining, reset, retry = statusTokenBucket(s, now, cost, l.Units, l.windowMS(), l.Size())
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
func (l Limit) idleAt(s state) int64 {
	switch l.Algorithm {
	case quotad.FixedWindow:
		return (s.epoch + 1) * l.windowMS()
	case quotad.TokenBucket:
		return s.epoch + untilFull(s, l.Units, l.windowMS(), l.Size())
	default:
		return (s.epoch + 2) * l.windowMS()
	}
}

func (l Limit) windowMS() int64 { return l.Window.Milliseconds() }

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
