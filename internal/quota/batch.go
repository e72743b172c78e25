package quota

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/quotad/quotad"
)

// The bounds of a batch. Together they allow 64 look-ups in each 5 ms: more
// than a fleet that starts cold needs, and no more than 200 queries per second
// however many ids somebody makes up.
const (
	maxBatch   = 64                   // ids per query
	batchGap   = 5 * time.Millisecond // at least this long between two queries' starts
	maxBatches = 4                    // queries under way at a time
	maxQueued  = 4096                 // ids that wait; further ones are refused
)

// batch lets many look-ups of different ids travel in one query. One that comes
// alone leaves at once; those that follow closer than batchGap leave together.
type batch[V any] struct {
	// find returns what exists of the ids, in one query.
	find func(ctx context.Context, ids []string) (map[string]V, error)
	// budget is how long one query may take.
	budget time.Duration

	mu      sync.Mutex
	queue   []lookup[V]
	flying  int
	last    time.Time // when the last query left
	waiting bool      // a timer will send the next
}

type lookup[V any] struct {
	id   string
	done chan found[V] // of capacity 1
}

type found[V any] struct {
	value V
	err   error
}

// Find returns what find says of the id: quotad.ErrNotFound where it leaves it out.
func (b *batch[V]) Find(ctx context.Context, id string) (V, error) {
	l := lookup[V]{id: id, done: make(chan found[V], 1)}
	if !b.enqueue(l) {
		return *new(V), &quotad.Error{Code: quotad.CodeStoreUnavailable, Cause: errors.New("too many look-ups wait")}
	}
	select {
	case f := <-l.done:
		return f.value, f.err
	case <-ctx.Done():
		return *new(V), ctx.Err()
	}
}

func (b *batch[V]) enqueue(l lookup[V]) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.queue) >= maxQueued {
		return false
	}
	b.queue = append(b.queue, l)
	b.send(time.Now())
	return true
}

// send lets the next query go if it may go now, and otherwise sees to it that
// it goes when it may. b.mu is held.
func (b *batch[V]) send(now time.Time) {
	if len(b.queue) == 0 || b.flying == maxBatches || b.waiting {
		return
	}
	if rest := batchGap - now.Sub(b.last); rest > 0 {
		b.waiting = true
		time.AfterFunc(rest, func() {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.waiting = false
			b.send(time.Now())
		})
		return
	}
	n := min(len(b.queue), maxBatch)
	lookups := b.queue[:n:n]
	if b.queue = b.queue[n:]; len(b.queue) == 0 {
		b.queue = nil
	}
	b.last = now
	b.flying++
	go b.fly(lookups)
	b.send(now)
}

func (b *batch[V]) fly(lookups []lookup[V]) {
	ctx, cancel := context.WithTimeout(context.Background(), b.budget)
	defer cancel()
	ids := make([]string, 0, len(lookups))
	for _, l := range lookups {
		ids = append(ids, l.id)
	}
	values, err := b.find(ctx, ids)
	for _, l := range lookups {
		v, ok := values[l.id]
		switch {
		case err != nil:
			l.done <- found[V]{err: err}
		case !ok:
			l.done <- found[V]{err: quotad.ErrNotFound}
		default:
			l.done <- found[V]{value: v}
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.flying--
	b.send(time.Now())
}
