package ratelimit

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// lane lets calls that come at the same time travel together.
//
// A call that finds a free slot goes at once, by itself. One that finds none
// waits in a batch with all others that do; whoever frees a slot sees the waiting
// batches off, in their order. So a lone call is never held back, and the longer
// the store takes the more calls travel together.
//
// A slot is free again when all callers of its batch have woken. So those of them who ask
// again travel together, too, instead of behind the first.
//
// A batch that is late (a lost packet, a stalled connection) does not hold its slot,
// so that those behind it wait for late at most: if one in twenty stalls, the other
// nineteen hardly notice.
type lane struct {
	send  func(ctx context.Context, b *batch)
	slots int
	// timeout bounds a batch that was waited for; its callers have bounds of their own.
	timeout time.Duration

	mu      sync.Mutex
	away    []*batch // under way, in the order in which they were sent
	queue   []*batch
	looking bool // whether a timer runs that looks after the queue
}

const (
	// slots is the number of batches under way at a time: while Redis judges one, the
	// next is written and the last is read.
	slots = 2
	// A batch is late after this part of its timeout.
	lateAfter = 10
	// mostAway bounds the batches under way, late or not, and so the connections.
	mostAway = 16
)

// late is the time after which a batch no longer holds its slot.
func (l *lane) late() time.Duration { return l.timeout / lateAfter }

// take sends the call, by itself or with others, and returns its batch and its
// place there; now is the time. After an error the batch is the one that failed.
func (l *lane) take(ctx context.Context, c Call, now time.Time) (*batch, int, error) {
	b, i, goes := l.board(now, 1, 1, func(b *batch) { b.add(c) })
	return b, i, l.await(ctx, b, i, 1, goes)
}

// takeAll sends the calls of the questions in their order, and has each batch read
// once it is back. Those that one batch does not take wait for it to be back: of two
// that are under way, either may come first.
func (l *lane) takeAll(ctx context.Context, list []*Question, read func(b *batch, first int, list []*Question, err error)) {
	for len(list) > 0 {
		n, charges := fitting(list)
		b, first, goes := l.board(time.Now(), charges, n, func(b *batch) {
			for _, q := range list[:n] {
				b.add(q.Call)
			}
		})
		read(b, first, list[:n], l.await(ctx, b, first, n, goes))
		list = list[n:]
	}
}

// board has calls added to a batch: to a new one that goes at once, if there is a slot
// and nobody waits for it; else to one that waits and has room for so many charges and
// calls. It returns the place of the first, and whether the batch goes: then it is the
// caller's to send.
func (l *lane) board(now time.Time, charges, calls int, add func(*batch)) (b *batch, first int, goes bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	goes = len(l.queue) == 0 && l.free(now)
	b = l.open(charges, calls)
	first = len(b.calls)
	add(b)
	b.holders.Add(1)
	if goes {
		l.depart(now)
	} else {
		l.look(now)
	}
	return b, first, goes
}

// await sends the batch, or waits until it has been sent and is back; n calls in it,
// from the first, are the caller's.
func (l *lane) await(ctx context.Context, b *batch, first, n int, goes bool) error {
	defer l.release(b)
	if goes {
		defer l.release(b)
		l.send(ctx, b)
		return b.err
	}
	select {
	case <-b.done:
		return b.err
	case <-ctx.Done():
	}
	select {
	case <-b.done: // at the same time, and what it charged is charged
		return b.err
	default:
		l.leave(b, first, n)
		return ctx.Err()
	}
}

// free reports whether a batch may go.
func (l *lane) free(now time.Time) bool {
	return len(l.away) < l.slots || len(l.away) < mostAway && len(l.away)-l.overdue(now) < l.slots
}

// overdue is the number of batches under way that are late.
func (l *lane) overdue(now time.Time) int {
	for i, b := range l.away {
		if now.Sub(b.sent) < l.late() {
			return i
		}
	}
	return len(l.away)
}

// depart takes a slot for the first batch that waits.
func (l *lane) depart(now time.Time) *batch {
	b := l.queue[0]
	l.queue = l.queue[1:]
	b.sent = now
	l.away = append(l.away, b)
	return b
}

// release is called by all who hold a batch once they are done with it: its sender and its
// callers. The last of them gives its slot back, and has those who wait seen off.
func (l *lane) release(b *batch) {
	if b.holders.Add(-1) > 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.Index(l.away, b); i >= 0 {
		l.away = slices.Delete(l.away, i, i+1)
	}
	if len(l.queue) > 0 {
		go l.drain()
	}
}

// open returns the waiting batch that takes calls of so many charges.
func (l *lane) open(charges, calls int) *batch {
	if n := len(l.queue); n > 0 && l.queue[n-1].hasRoom(charges, calls) {
		return l.queue[n-1]
	}
	b := &batch{done: make(chan struct{})}
	b.holders.Store(1) // who sends it
	l.queue = append(l.queue, b)
	return b
}

// leave takes calls back if their batch has not been sent.
func (l *lane) leave(b *batch, first, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if slices.Contains(l.queue, b) {
		for i := range n {
			b.calls[first+i].gone = true
		}
	}
}

// look has the queue seen to when the next batch under way is late, unless one that
// arrives before does so.
func (l *lane) look(now time.Time) {
	if l.looking || len(l.away) >= mostAway {
		return
	}
	var wait time.Duration
	if i := l.overdue(now); i < len(l.away) {
		wait = l.late() - now.Sub(l.away[i].sent)
	}
	l.looking = true
	time.AfterFunc(wait, func() {
		l.mu.Lock()
		l.looking = false
		l.mu.Unlock()
		l.drain()
	})
}

// drain sends the first batch that waits, if there is a slot for it.
func (l *lane) drain() {
	b := l.next()
	if b == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), l.timeout)
	l.send(ctx, b)
	cancel()
	close(b.done)
	l.release(b)
}

// next takes a slot for the first batch that waits; nil where none waits or may go. Where
// another may, it is seen off, too.
func (l *lane) next() *batch {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.queue) == 0 {
		return nil
	}
	if !l.free(now) {
		l.look(now)
		return nil
	}
	b := l.depart(now)
	if len(l.queue) > 0 {
		go l.drain()
	}
	return b
}

// batchError is what each call of a batch that failed gets: one failure, however
// many calls met it.
type batchError struct {
	batch *batch
	err   error
}

func (e *batchError) Error() string { return "take over redis: " + e.err.Error() }
func (e *batchError) Unwrap() error { return e.err }

// isCounted reports whether an error is one of a failure that has been counted, and
// counts it.
func isCounted(err error) bool {
	var shared *batchError
	return errors.As(err, &shared) && shared.batch.failed.Swap(true)
}
