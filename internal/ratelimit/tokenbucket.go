package ratelimit

// Token bucket of capacity B that refills continuously at L units per window. The
// level is kept in units × window milliseconds, so that a millisecond adds the
// integer L and nothing is ever rounded. It starts full. Lowering the capacity
// caps the level; raising it leaves the level as it is.

func rollTokenBucket(s state, now, limit, window, burst int64) state {
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

// statusTokenBucket returns the units left, the time until the bucket is full,
// and the wait until it holds cost.
func statusTokenBucket(s state, now, cost, limit, window, burst int64) (remaining, reset, retry int64) {
	// A clock that stepped back has to catch up before the bucket refills.
	behind := s.epoch - now
	if missing := cost*window - s.a; missing > 0 && cost <= burst {
		retry = behind + ceilDiv(missing, limit)
	}
	if reset = untilFull(s, limit, window, burst); reset > 0 {
		reset += behind
	}
	return s.a / window, reset, retry
}
