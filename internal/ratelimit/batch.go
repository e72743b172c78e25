package ratelimit

import (
	"errors"
	"slices"
	"sync/atomic"
	"time"
)

// batch is calls that travel together.
type batch struct {
	calls   []pending
	charges []Charge // of all calls, one after the other
	// costs are those of the charges of a call, by its place, where they differ.
	costs   map[int][]int64
	replies []int32 // by entry: where its part of the reply begins

	// Set before done is closed.
	reply []int64
	err   error
	done  chan struct{}

	sent    time.Time    // guarded by the lane
	holders atomic.Int32 // who are not done with it
	failed  atomic.Bool  // whether a failure of this batch has been counted
}

// pending is a call of a batch.
type pending struct {
	cost     int64
	first, n int32 // its charges in batch.charges
	shard    Shard
	gone     bool  // its caller has gone before the batch was sent
	mixed    bool  // its charges differ in cost
	entry    int32 // of the encoder
	position int64 // among the calls of the entry
}

// add puts a call into the batch and returns its place. Charges like those of the
// call before it are kept once.
func (b *batch) add(c Call) int {
	p := pending{cost: c.Cost, first: int32(len(b.charges)), n: int32(len(c.Charges)), shard: c.Shard, mixed: c.Costs != nil}
	if last := len(b.calls) - 1; last >= 0 && b.calls[last].shard == c.Shard && slices.Equal(b.chargesOf(last), c.Charges) {
		p.first = b.calls[last].first
	} else {
		b.charges = append(b.charges, c.Charges...)
	}
	if p.mixed {
		if b.costs == nil {
			b.costs = map[int][]int64{}
		}
		b.costs[len(b.calls)] = slices.Clone(c.Costs)
	}
	b.calls = append(b.calls, p)
	return len(b.calls) - 1
}

func (b *batch) chargesOf(i int) []Charge {
	c := &b.calls[i]
	return b.charges[c.first : c.first+c.n]
}

// cost is that of a call's charge k.
func (b *batch) cost(i, k int) int64 {
	if c := &b.calls[i]; !c.mixed {
		return c.cost
	}
	return b.costs[i][k]
}

// alike reports whether two calls that follow on one another are judged as one entry.
func (b *batch) alike(i, next int) bool { return b.calls[i].like(&b.calls[next]) }

// like reports whether calls of one batch have the same charges, at the same cost.
func (p *pending) like(other *pending) bool {
	return p.first == other.first && p.cost == other.cost && !p.mixed && !other.mixed
}

// hasRoom reports whether the batch takes further calls of so many charges. Where there
// is room for one charge, one call is taken however many it has.
func (b *batch) hasRoom(charges, calls int) bool {
	return len(b.charges)+charges <= maxBatch && len(b.calls)+calls <= maxCalls
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

// outcome reads a call's answer from the reply.
func (b *batch) outcome(i int, status []Status) (Outcome, error) {
	c := &b.calls[i]
	now := b.reply[0]
	part := b.reply[b.replies[c.entry]:]
	admitted := part[0]
	out := Outcome{Allowed: c.position < admitted, Now: time.UnixMilli(now).UTC()}
	if admitted < 0 {
		return out, ErrPeriod
	}
	charges := b.chargesOf(i)
	for k := range charges {
		charge := &charges[k]
		fitted := part[1+4*k] > min(c.position, admitted)
		status[k] = charge.Limit.status(b.state(c, part, k), now, b.cost(i, k), fitted)
		out.wait(charge, &status[k])
	}
	return out, nil
}

// states are those that a call left its counters in.
func (b *batch) states(i int) []state {
	c := &b.calls[i]
	states := make([]state, c.n)
	for k := range states {
		states[k] = b.state(c, b.reply[b.replies[c.entry]:], k)
	}
	return states
}

// state is the state of the call's charge k after the call. The one in the reply is
// that after the last call of the entry; what later calls charged is taken back.
func (b *batch) state(c *pending, part []int64, k int) state {
	s := state{epoch: part[2+4*k], a: part[3+4*k], b: part[4+4*k], present: true}
	charged := min(part[1+4*k], part[0])
	if later := charged - min(c.position+1, charged); later > 0 {
		s = b.charges[int(c.first)+k].Limit.without(s, later*c.cost)
	}
	return s
}
