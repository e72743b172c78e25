package ratelimit

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quotad/quotad"
)

// refusals remembers the states by which calls were refused, so that a caller who
// hammers costs no round trip.
//
// Whatever else is charged to a counter only makes its waits longer. So a call that
// the remembered states refuse, brought to now, is refused by the true ones too. An
// answer from memory is what the store would say if nothing else was charged.
type refusals struct {
	kept   atomic.Int64
	shards [64]struct {
		mu sync.Mutex
		by map[Counter]*refusal // by the counter that refused
	}
}

// refusal is a call that was refused, with the states that it met.
type refusal struct {
	cost    int64
	sent    time.Time // before it was sent, by this node's monotonic clock
	now     int64     // the store's time, in ms
	charges []Charge
	states  []state
}

const (
	// refusalsPerShard bounds the memory: in all 65,536 refusals of about 300 bytes.
	refusalsPerShard = 1024
	// A refusal is told again no longer than this, as counters may be deleted behind
	// our back, and less long where it also speaks of limits that admit the call.
	refusalHolds       = 5 * time.Second
	refusalOfManyHolds = time.Second
)

// recall answers a call that is known to be refused. The local time is now.
func (r *refusals) recall(call Call, status []Status, now time.Time) (Outcome, bool) {
	if r.kept.Load() == 0 || call.Cost == 0 || call.Costs != nil {
		return Outcome{}, false
	}
	for i := range call.Charges {
		if call.Charges[i].Shadow {
			continue
		}
		known := r.get(call.Charges[i].Counter, now)
		if known == nil {
			continue
		}
		// From before the sending, so that time here is never behind the store's.
		// One more millisecond, as the store's time is in whole ones. A call that began
		// before the refused one has met what it met: it is not judged on an earlier time.
		at := known.now + max(0, now.Sub(known.sent).Milliseconds()) + 1
		if !known.speaksOf(call, at) {
			continue
		}
		allowed := true
		for k, c := range call.Charges {
			s, ok := known.brought(k, c.Limit, at, call.Cost)
			status[k] = c.Limit.status(s, at, call.Cost, ok)
			allowed = allowed && (ok || c.Shadow)
		}
		if !allowed {
			return Outcome{Now: time.UnixMilli(at).UTC()}, true
		}
	}
	return Outcome{}, false
}

// speaksOf reports whether a call at a time is of the same charges; where a log is
// among them, of the same cost as well, and before its oldest entry leaves: what a log
// says after that, its three integers do not tell.
func (f *refusal) speaksOf(call Call, at int64) bool {
	if !slices.Equal(f.charges, call.Charges) || !call.speaksOf(at) {
		return false
	}
	for k, c := range f.charges {
		if s := f.states[k]; c.Limit.Algorithm == quotad.SlidingWindowLog &&
			(f.cost != call.Cost || s.a > 0 && at >= s.epoch+c.Limit.windowMS()) {
			return false
		}
	}
	return true
}

// brought is a state brought to the time at, and whether it admits the cost.
func (f *refusal) brought(k int, l Limit, at, cost int64) (state, bool) {
	s := f.states[k]
	if l.Algorithm == quotad.SlidingWindowLog {
		return s, l.Units > 0 && cost <= l.Units && at >= s.b
	}
	s = l.roll(s, at)
	return s, l.admits(s, at, cost)
}

func (r *refusals) get(c Counter, now time.Time) *refusal {
	sh := &r.shards[c[0]%64]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	known := sh.by[c]
	if known == nil {
		return nil
	}
	holds := refusalHolds
	if len(known.charges) > 1 {
		holds = refusalOfManyHolds
	}
	if now.Sub(known.sent) >= holds {
		delete(sh.by, c)
		r.kept.Add(-1)
		return nil
	}
	return known
}

// forget drops what is known by the counters of a call that was admitted, for it
// changed what a further refusal is to say.
func (r *refusals) forget(call Call) {
	if r.kept.Load() == 0 || call.Cost == 0 {
		return
	}
	for i := range call.Charges {
		c := call.Charges[i].Counter
		sh := &r.shards[c[0]%64]
		sh.mu.Lock()
		if _, known := sh.by[c]; known {
			delete(sh.by, c)
			r.kept.Add(-1)
		}
		sh.mu.Unlock()
	}
}

// remember keeps a refused call whose charges all cost the same, by the refusing counter
// whose wait is longest.
func (r *refusals) remember(call Call, status []Status, states []state, now int64, sent time.Time) {
	longest := -1
	if call.Costs != nil {
		return
	}
	for i := range call.Charges {
		if s := &status[i]; !call.Charges[i].Shadow && s.Retry > 0 && (longest < 0 || s.Retry > status[longest].Retry) {
			longest = i
		}
	}
	if longest < 0 {
		return
	}
	c := call.Charges[longest].Counter
	sh := &r.shards[c[0]%64]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if sh.by == nil {
		sh.by = map[Counter]*refusal{}
	}
	switch known := sh.by[c]; {
	case known != nil && known.now > now:
		return // what is known was said later
	case known == nil:
		r.kept.Add(1)
		if len(sh.by) >= refusalsPerShard {
			for victim := range sh.by {
				delete(sh.by, victim)
				r.kept.Add(-1)
				break
			}
		}
	}
	sh.by[c] = &refusal{cost: call.Cost, sent: sent, now: now, charges: slices.Clone(call.Charges), states: states}
}
