package ratelimit

import (
	"errors"
	"sync/atomic"
	"time"
)

// batch is calls that travel together.
type batch struct {
	calls   []pending
	charges []Charge // of all calls, one after the other
	replies []int32  // by entry: where its part of the reply begins

	// Set before done is closed.
	reply []int64
	err   error
	done  chan struct{}

	sent   time.Time   // guarded by the lane
	failed atomic.Bool // whether a failure of this batch has been counted
}

// pending is a call of a batch.
type pending struct {
	cost     int64
	first, n int32 // its charges in batch.charges
	shard    Shard
	gone     bool  // its caller has gone before the batch was sent
	entry    int32 // of the encoder
	position int64 // among the calls of the entry
}

func (b *batch) add(c Call) int {
	b.calls = append(b.calls, pending{cost: c.Cost, first: int32(len(b.charges)), n: int32(len(c.Charges)), shard: c.Shard})
	b.charges = append(b.charges, c.Charges...)
	return len(b.calls) - 1
}

// locate notes where in the reply the parts of the entries begin.
func (b *batch) locate(entries []entry) {
	b.replies = make([]int32, len(entries)+1)
	at := int32(1)
	for i, e := range entries {
		b.replies[i] = at
		at += 1 + 4*e.n
	}
	b.replies[len(entries)] = at
}

var errShortReply = errors.New("reply is too short")

// check returns an error for a reply that does not have a part for every entry.
func (b *batch) check() error {
	if len(b.reply) != int(b.replies[len(b.replies)-1]) {
		return errShortReply
	}
	return nil
}

// outcome reads a call's answer from the reply. The states in it are those after
// the last call of the entry; what later calls charged is taken back. Where states
// is not nil, the states after the call are written to it as well.
func (b *batch) outcome(i int, status []Status, states []state) (Outcome, error) {
	c := &b.calls[i]
	now := b.reply[0]
	part := b.reply[b.replies[c.entry]:]
	admitted := part[0]
	out := Outcome{Allowed: c.position < admitted, Now: time.UnixMilli(now).UTC()}
	if admitted < 0 {
		return out, ErrPeriod
	}
	for k, charge := range b.charges[c.first : c.first+c.n] {
		fits := part[1+4*k]
		s := state{epoch: part[2+4*k], a: part[3+4*k], b: part[4+4*k], present: true}
		fitted := fits > min(c.position, admitted)
		charged := min(fits, admitted)
		if later := charged - min(c.position+1, charged); later > 0 {
			s = charge.Limit.without(s, later*c.cost)
		}
		status[k] = charge.Limit.status(s, now, c.cost, fitted)
		out.wait(charge, status[k])
		if states != nil {
			states[k] = s
		}
	}
	return out, nil
}
