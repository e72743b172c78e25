package ratelimit

// Fixed window: at most L units in each window [k·W, (k+1)·W). The simplest and
// smallest; a caller can spend L just before a boundary and L just after it.

func rollFixedWindow(s state, now, window int64) state {
	k := now / window
	if !s.present || k > s.epoch {
		return state{epoch: k, present: s.present}
	}
	return s
}

// statusFixedWindow returns the units left and the time to the window's end,
// when all of them are back, twice: as the reset and as the wait of a refusal.
func statusFixedWindow(s state, now, limit, window int64) (remaining, reset, retry int64) {
	end := (s.epoch+1)*window - now
	return max(0, limit-s.a), end, end
}
