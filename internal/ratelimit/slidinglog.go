package ratelimit

// Sliding window log: at most L units in (t−W, t], for every t. The units of each
// call are remembered with its time until they leave the window, so memory is in
// proportion to the calls, not to the units: 16 bytes a call in memory, 10 in Redis.
//
// Up to logExact units the log is exact to the millisecond. A larger limit counts in
// slots of a 1024th of the window, each with the time of its last millisecond, so that
// a log never has more than about logExact entries; units then leave up to one slot
// late, never early.

// entryOfLog is units that leave the window a window after at, in ms.
type entryOfLog struct{ at, units int64 }

// logExact is the limit up to which a log is exact, and about the most entries of one.
const logExact = 1024

func rollLog(s state, now, window int64) state {
	for len(s.log) > 0 && s.log[0].at <= now-window {
		s.a -= s.log[0].units
		s.log = s.log[1:]
	}
	s.epoch, s.b = 0, 0
	if len(s.log) > 0 {
		s.epoch = s.log[0].at
	}
	return s
}

// stamp is the time that units taken at now are remembered with.
func stamp(now, limit, window int64) int64 {
	if limit <= logExact {
		return now
	}
	slot := ceilDiv(window, logExact)
	return (now/slot+1)*slot - 1
}

func chargeLog(s state, now, cost, limit, window int64) state {
	at := stamp(now, limit, window)
	last := len(s.log) - 1
	if last >= 0 && s.log[last].at >= at {
		s.log[last].units += cost
	} else {
		s.log = append(s.log, entryOfLog{at, cost})
	}
	s.a += cost
	s.epoch = s.log[0].at
	return s
}

// fitsAt is the time from which a cost fits that a log in memory refuses.
func fitsAt(s state, cost, limit, window int64) int64 {
	excess := s.a + cost - limit
	for _, e := range s.log {
		if excess -= e.units; excess <= 0 {
			return e.at + window
		}
	}
	return 0 // a cost above the limit never does
}

// statusLog returns the units left, the time until the oldest leave, and the wait
// of the refused cost.
func statusLog(s state, now, limit, window int64) (remaining, reset, retry int64) {
	if s.a > 0 {
		reset = s.epoch + window - now
	}
	return max(0, limit-s.a), reset, max(0, s.b-now)
}
