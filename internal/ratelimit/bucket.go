package ratelimit

// Token bucket of capacity B that refills continuously at L units per window, and
// its mirror image, the leaky bucket: a queue of B units that drains at that rate.
// Both are one level: units that can be taken now. It is kept in units × window
// milliseconds, so that a millisecond adds the integer L and nothing is ever
// rounded. It starts full. Lowering the capacity caps the level; raising it leaves
// the level as it is.
//
// A leaky bucket with a delay of D lets the level fall below 0, to what refills in
// D: a call that leaves a debt waits until it is paid.

func rollBucket(s state, now, limit, window, burst int64) state {
	full := burst * window
	if !s.present || limit == 0 {
		return state{epoch: now, a: full, present: s.present}
	}
	passed := max(0, now-s.epoch)
	if passed >= untilFull(s, limit, window, burst) {
		s.a = full
	} else {
		s.a += passed * limit
	}
	s.epoch = max(s.epoch, now)
	return s
}

// untilFull is the milliseconds from the state's own time until the bucket is full.
func untilFull(s state, limit, window, burst int64) int64 {
	return ceilDiv(max(0, burst*window-s.a), limit)
}

// statusBucket returns the units left, the time until the bucket is full, and the
// wait until it holds cost, but for what may be owed for delay.
func statusBucket(s state, now, cost, limit, window, burst, delay int64) (remaining, reset, retry int64) {
	// A clock that stepped back has to catch up before the bucket refills.
	behind := s.epoch - now
	if missing := cost*window - s.a - delay*limit; missing > 0 && cost <= burst {
		retry = behind + ceilDiv(missing, limit)
	}
	if reset = untilFull(s, limit, window, burst); reset > 0 {
		reset += behind
	}
	return max(0, s.a/window), reset, retry
}
