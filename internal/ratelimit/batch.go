package ratelimit

import (
	"context"
	"errors"
	"sync"
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

// lane lets calls that come while others are under way travel together.
//
// A call that finds a free slot goes at once, by itself. One that finds none
// waits in a batch with all others that do; whoever frees a slot sees the waiting
// batches off, in their order. So a lone call is never held back, and the longer
// the store takes the more calls travel together.
type lane struct {
	send  func(ctx context.Context, b *batch)
	slots int
	// timeout bounds a batch that was waited for; its callers have bounds of their own.
	timeout time.Duration

	mu    sync.Mutex
	busy  int
	queue []*batch
}

// take sends the call, by itself or with others, and returns its batch and its
// place there, or the context's error.
func (l *lane) take(ctx context.Context, c Call) (*batch, int, error) {
	l.mu.Lock()
	if l.busy < l.slots {
		l.busy++
		l.mu.Unlock()
		b := &batch{}
		i := b.add(c)
		l.send(ctx, b)
		l.free()
		return b, i, b.err
	}
	b := l.open()
	i := b.add(c)
	l.mu.Unlock()
	select {
	case <-b.done:
		return b, i, b.err
	case <-ctx.Done():
		l.leave(b, i)
		return nil, 0, ctx.Err()
	}
}

// open returns the waiting batch that takes further calls.
func (l *lane) open() *batch {
	if n := len(l.queue); n > 0 && len(l.queue[n-1].charges) < maxBatch {
		return l.queue[n-1]
	}
	b := &batch{done: make(chan struct{})}
	l.queue = append(l.queue, b)
	return b
}

// leave takes a call back if its batch has not been sent.
func (l *lane) leave(b *batch, i int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, waiting := range l.queue {
		if waiting == b {
			b.calls[i].gone = true
		}
	}
}

// free gives a slot back, or to a goroutine that sees waiting batches off.
func (l *lane) free() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.queue) > 0 {
		go l.drain()
		return
	}
	l.busy--
}

func (l *lane) drain() {
	for {
		l.mu.Lock()
		if len(l.queue) == 0 {
			l.busy--
			l.mu.Unlock()
			return
		}
		b := l.queue[0]
		l.queue = l.queue[1:]
		l.mu.Unlock()
		ctx, cancel := context.WithTimeout(context.Background(), l.timeout)
		l.send(ctx, b)
		cancel()
		close(b.done)
	}
}
