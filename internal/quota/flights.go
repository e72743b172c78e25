package quota

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/quotad/quotad"
)

// answer is what a flight found, and as of when.
type answer[V any] struct {
	value V
	err   error
	stamp stamp
}

// failed reports whether the database did not say.
func (a answer[V]) failed() bool { return a.err != nil && !errors.Is(a.err, quotad.ErrNotFound) }

// renewal is how far the load of what replaces an entry has come.
type renewal struct {
	underWay atomic.Bool
	late     atomic.Uint64 // the epoch in which a load began that has exceeded haste, else 0
}

// fly returns the answer of the load of the id that is under way, or of a new one.
func (c *cache[V]) fly(ctx context.Context, id string, load loader[V]) <-chan singleflight.Result {
	return c.flights.DoChan(id, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.opts.Budget)
		defer cancel()
		if e, ok := c.entries.Peek(id); ok {
			defer c.watch(e.next)()
		}
		a := c.flight(ctx, id, load)
		if a.failed() {
			if e, ok := c.entries.Peek(id); ok && c.lasts(e) {
				c.opts.Excused(a.err)
			}
		}
		return a, nil
	})
}

// watch keeps the renewal up with a load that begins, until the load has ended.
func (c *cache[V]) watch(r *renewal) (ended func()) {
	epoch, answers := c.epoch.Load()+1, c.guard.answers.Load()
	var mu sync.Mutex // a load is not found to be late once it has ended
	over := false
	late := time.AfterFunc(c.haste, func() {
		mu.Lock()
		defer mu.Unlock()
		if !over {
			r.late.Store(epoch)
			c.guard.overdue(answers)
		}
	})
	r.underWay.Store(true)
	return func() {
		late.Stop()
		mu.Lock()
		defer mu.Unlock()
		over = true
		r.late.Store(0)
		r.underWay.Store(false)
	}
}

// maxRepeats bounds how often one flight chases an id that keeps changing. The
// last answer serves those who had asked before its load began, and is not kept.
const maxRepeats = 3

func (c *cache[V]) flight(ctx context.Context, id string, load loader[V]) answer[V] {
	for repeats := 0; ; repeats++ {
		now := c.opts.Now()
		a, landed := c.landed(id, now)
		if landed {
			return a
		}
		a.value, a.err = load(ctx, id)
		if a.failed() {
			return a
		}
		if c.keep(id, now, a) || repeats == maxRepeats {
			return a
		}
	}
}

// landed returns the moment at which a load begins and, if an earlier flight
// landed between the caller's look and this one's start, the answer it left. The
// two are one step: within an invalidation that has been marked and has not yet
// removed the entry, the entry would pass for one loaded after it. An entry that
// is due to be loaded again is none that landed just now.
func (c *cache[V]) landed(id string, now time.Time) (answer[V], bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	a := answer[V]{stamp: c.stamp(id)}
	e, ok := c.entries.Peek(id)
	if !ok || !c.fresh(e.began, e.epoch, c.due, now) {
		return a, false
	}
	a.value = e.value
	return a, true
}

// keep remembers an answer unless the id was invalidated since its load began.
func (c *cache[V]) keep(id string, began time.Time, a answer[V]) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if a.stamp.before(c.stamp(id)) {
		return false
	}
	if a.err != nil {
		c.entries.Remove(id)
		c.unknown.Add(id, entry[struct{}]{began: began, epoch: a.stamp.epoch})
		return true
	}
	c.unknown.Remove(id)
	c.entries.Add(id, entry[V]{value: a.value, began: began, epoch: a.stamp.epoch, next: &renewal{}})
	return true
}
