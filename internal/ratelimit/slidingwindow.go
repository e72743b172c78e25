package ratelimit

import "github.com/quotad/quotad"

// Sliding window counter, after Cloudflare's "How we built rate limiting capable
// of scaling to millions of domains" (2017). With P units in the previous window,
// C in this one, and e elapsed of this one, the sliding window is taken to hold
// P·(W−e)/W + C units. A cost c is admitted iff
//
//	P·(W−e) + (C+c)·W ≤ L·W
//
// in integers, with no division. The products stay exact in the 53 bits of a
// double (take.lua) because e and W are counted in milliseconds where that fits
// and in whole seconds otherwise; unit says which.

func rollSlidingWindow(s state, now, window int64) state {
	k := now / window
	switch {
	case !s.present || k > s.epoch+1:
		return state{epoch: k, present: s.present}
	case k == s.epoch+1:
		return state{epoch: k, a: s.b, present: true}
	default:
		return s
	}
}

// unit is the length in milliseconds of the step in which time is counted.
func unit(most, window int64) int64 {
	if most <= quotad.MaxUnits/window {
		return 1
	}
	return 1000
}

func elapsed(s state, now, window int64) int64 { return max(0, now-s.epoch*window) }

func admitsSlidingWindow(s state, now, cost, limit, window int64) bool {
	h := limit - s.b - cost // units that the previous window may still weigh
	if h < 0 {
		return false
	}
	u := unit(max(limit, s.a), window)
	w, e := window/u, elapsed(s, now, window)/u
	return s.a*(w-e) <= h*w
}

// statusSlidingWindow returns the units left, the time to the window's end (by
// then more is left), and the wait after which cost fits if nothing else comes.
func statusSlidingWindow(s state, now, cost, limit, window int64, allowed bool) (remaining, reset, retry int64) {
	e := elapsed(s, now, window)
	u := unit(max(limit, s.a), window)
	w := window / u
	remaining = max(0, limit-s.b-ceilDiv(s.a*(w-e/u), w))
	// now may lie before the window's start if the clock stepped back.
	left := (s.epoch+1)*window - now
	if allowed || cost > limit {
		return remaining, left, 0
	}
	if h := limit - s.b - cost; h >= 0 {
		// In this window, at the first e with P·(W−e) ≤ h·W; e = W is the start of the next.
		return remaining, left, left - window + (w-h*w/s.a)*u
	}
	// This window alone is too full: in the next, where C has become P.
	u = unit(max(limit, s.b), window)
	w = window / u
	return remaining, left, left + (w-(limit-cost)*w/s.b)*u
}
