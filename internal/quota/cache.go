package quota

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/sync/singleflight"

	"github.com/quotad/quotad"
)

// cacheOptions say how long a cache trusts what it loaded. All fields are required.
type cacheOptions struct {
	// Size is the most entries kept; UnknownSize the most ids remembered as
	// unknown, which are kept apart so that they never push out an entry.
	Size, UnknownSize int
	// TTL is how long after its load began an entry is served without asking
	// again; UnknownTTL the same for an id that did not exist.
	TTL, UnknownTTL time.Duration
	// Stale is how long after its TTL an entry is still served while the database is away.
	Stale time.Duration
	// Budget is how long one load may take. An entry is asked for again this long
	// before its TTL ends, or half the TTL.
	Budget time.Duration
	// Sticky keeps the last entry through invalidations and for any time while
	// it cannot be replaced. It is for what must never be missing, not for what
	// decides who a caller is.
	Sticky bool
	Now    func() time.Time
	// Observe counts one look-up by its outcome.
	Observe func(outcome)
	// Excused is told of a failed load that no caller hears of, because there was
	// an entry to serve.
	Excused func(error)
}

// cache remembers what the database says of an id.
//
//   - An entry is served for TTL after its load began; reading it never
//     extends that. One that is asked for near the end of that time is served,
//     and loaded again meanwhile: what is in use is there without waiting.
//   - One load runs per id however many callers wait, on a context of its own:
//     a caller who hangs up fails nobody else, and each waits only as long as
//     its own context lets it.
//   - Whoever asks after an id was invalidated gets an answer whose load began
//     after that. A load that an invalidation overtakes is repeated, and what
//     it found before is not kept.
//   - While the database is away, entries past their TTL go on being served
//     for Stale. What was invalidated is not: it is an error until the
//     database says what became of it.
//   - It is away while the guard is not closed, after a load that failed, and
//     while it hangs: nobody waits longer than a fraction of Budget for what an
//     entry past its TTL can stand in for, and nobody waits at all once another
//     has, until the database answers.
//   - What the database does not know is remembered for UnknownTTL. What it
//     could not say is never remembered as unknown.
type cache[V any] struct {
	opts  cacheOptions
	load  loader[V]
	guard *guard

	// due is the age at which an entry that is asked for is loaded again.
	due time.Duration
	// haste is how long a load is waited for where there is an entry to serve instead.
	haste time.Duration

	entries *lru.Cache[string, entry[V]]
	unknown *lru.Cache[string, entry[struct{}]]
	flights singleflight.Group

	// mu makes "nothing was invalidated meanwhile, so keep it" one step.
	mu    sync.Mutex
	seed  maphash.Seed
	marks [256]atomic.Uint64 // invalidations, by hash of the id
	epoch atomic.Uint64      // invalidations of everything
}

// loader asks the database for an id.
type loader[V any] func(ctx context.Context, id string) (V, error)

// entry is what a load found, and when that load began.
type entry[V any] struct {
	value V
	began time.Time
	epoch uint64
	next  *renewal // nil where the id was unknown
}

// hasty is the part of a load's budget that is waited for it where there is
// something to serve instead: 50 ms of 2 s. A database that is well answers in a
// tenth of that, so that what it knows is served and not what was known before;
// and callers, who would rather have had an answer in less than 1 ms, have hardly
// given up by then.
const hasty = 40

// outcome is how a look-up was answered.
type outcome int

// The outcomes.
const (
	outcomeHit      outcome = iota // from an entry within its TTL
	outcomeMiss                    // after waiting for a load
	outcomeStale                   // from an entry past its TTL, the database being away or late
	outcomeNegative                // from what is remembered as unknown
	outcomes
)

var outcomeNames = [outcomes]string{"hit", "miss", "stale", "negative"}

// newCache returns a cache over load, which must return an error that is
// quotad.ErrNotFound for an id that does not exist, and which is to go through
// the guard itself.
func newCache[V any](guard *guard, load loader[V], opts cacheOptions) *cache[V] {
	c := &cache[V]{
		opts: opts, load: load, guard: guard, seed: maphash.MakeSeed(),
		due: opts.TTL - min(opts.Budget, opts.TTL/2), haste: opts.Budget / hasty,
	}
	// New fails for a size below 1 only.
	c.entries, _ = lru.New[string, entry[V]](max(1, opts.Size))
	c.unknown, _ = lru.New[string, entry[struct{}]](max(1, opts.UnknownSize))
	return c
}

// Get returns what the database says of the id at now: an error that is
// quotad.ErrNotFound if it does not exist, quotad.ErrStoreUnavailable if that
// cannot be found out now.
func (c *cache[V]) Get(ctx context.Context, id string, now time.Time) (V, error) {
	return c.get(ctx, id, now, c.load)
}

// get is Get with a load of its own, for an id that does not by itself say what
// to load.
func (c *cache[V]) get(ctx context.Context, id string, now time.Time, load loader[V]) (V, error) {
	if e, ok := c.entries.Get(id); ok && c.fresh(e.began, e.epoch, c.opts.TTL, now) {
		if now.Sub(e.began) >= c.due {
			c.renew(ctx, id, e, load)
		}
		c.opts.Observe(outcomeHit)
		return e.value, nil
	}
	asked, answers := c.stamp(id), c.guard.answers.Load()
	var late <-chan time.Time
	for ; ; now = c.opts.Now() {
		e, known := c.entries.Peek(id)
		if known && c.fresh(e.began, e.epoch, c.opts.TTL, now) {
			c.opts.Observe(outcomeHit)
			return e.value, nil
		}
		if u, ok := c.unknown.Get(id); ok && c.fresh(u.began, u.epoch, c.opts.UnknownTTL, now) {
			c.opts.Observe(outcomeNegative)
			return e.value, quotad.ErrNotFound
		}
		if known && c.away(e, asked) {
			// Nobody waits for a database that is away while there is something to
			// serve. One of these calls sets off the load that finds it back.
			c.renew(ctx, id, e, load)
			if v, ok := c.stale(id); ok {
				return v, nil
			}
		}
		if known && e.epoch != 0 && late == nil {
			late = time.After(c.haste)
		}
		select {
		case r := <-c.fly(ctx, id, load):
			a := r.Val.(answer[V])
			switch {
			case a.failed():
				return c.fallBack(id, a.err)
			case a.stamp.before(asked):
				continue // it was found before this caller asked, and has changed since
			}
			c.opts.Observe(outcomeMiss)
			return a.value, a.err
		case <-late:
			c.guard.overdue(answers)
			if v, ok := c.stale(id); ok {
				return v, nil
			}
		case <-ctx.Done():
			return c.fallBack(id, fmt.Errorf("wait for the load: %w", ctx.Err()))
		}
	}
}

// renew sets off the load of what is to replace an entry, unless one is under way
// or would be refused. Nobody waits for it.
func (c *cache[V]) renew(ctx context.Context, id string, e entry[V], load loader[V]) {
	if !e.next.underWay.Load() && !c.guard.open() {
		c.fly(ctx, id, load)
	}
}

// away reports whether the database is taken to be away for who asks for an entry
// that is not fresh. An entry that was invalidated is waited for as long as the
// database may yet answer: what replaces it is known to differ.
func (c *cache[V]) away(e entry[V], asked stamp) bool {
	hangs := e.next.late.Load() == asked.epoch || c.guard.hangs()
	return hangs && e.epoch != 0 || !c.guard.closed()
}

// Invalidate makes every Get that begins after it see what the database holds now.
func (c *cache[V]) Invalidate(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mark(id).Add(1)
	c.unknown.Remove(id)
	if !c.opts.Sticky {
		c.entries.Remove(id)
		return
	}
	if e, ok := c.entries.Peek(id); ok {
		e.epoch = 0
		c.entries.Add(id, e)
	}
}

// Clear forgets everything, as if each id had been invalidated.
func (c *cache[V]) Clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.epoch.Add(1)
	c.entries.Purge()
	c.unknown.Purge()
}

// Revalidate makes every entry be asked for again before it is next served. It
// is for when invalidations may have been missed: nothing is known against an
// entry, so it may still be served stale.
func (c *cache[V]) Revalidate() {
	c.epoch.Add(1)
	c.guard.answered() // or is to be asked, whatever became of earlier loads
}

// Len is the number of entries, and of ids remembered as unknown, that are kept;
// some may be past their TTL.
func (c *cache[V]) Len() (entries, unknown int) { return c.entries.Len(), c.unknown.Len() }

// stamp is a moment in the order of an id's invalidations.
type stamp struct{ mark, epoch uint64 }

func (s stamp) before(t stamp) bool { return s.mark < t.mark || s.epoch < t.epoch }

func (c *cache[V]) mark(id string) *atomic.Uint64 {
	return &c.marks[maphash.String(c.seed, id)%uint64(len(c.marks))]
}

func (c *cache[V]) stamp(id string) stamp {
	return stamp{mark: c.mark(id).Load(), epoch: c.epoch.Load() + 1}
}

// fresh reports whether an entry may be served without asking again. Epochs
// count from 1, so that an entry of epoch 0 never is.
func (c *cache[V]) fresh(began time.Time, epoch uint64, ttl time.Duration, now time.Time) bool {
	return now.Sub(began) < ttl && epoch == c.epoch.Load()+1
}

// fallBack answers a call whose load failed: with the entry past its TTL if
// there is one that nothing is known against, else with the failure. The entry
// is looked at anew, as it may have been invalidated during the wait.
func (c *cache[V]) fallBack(id string, failure error) (V, error) {
	// A caller who hung up is not told something else instead.
	if !errors.Is(failure, context.Canceled) {
		if v, ok := c.stale(id); ok {
			return v, nil
		}
	}
	var zero V
	c.opts.Observe(outcomeMiss)
	return zero, &quotad.Error{Code: quotad.CodeStoreUnavailable, RetryAfter: c.guard.pause, Cause: failure}
}

// stale returns the entry past its TTL, if it may be served still.
func (c *cache[V]) stale(id string) (V, bool) {
	if e, ok := c.entries.Peek(id); ok && c.lasts(e) {
		c.opts.Observe(outcomeStale)
		return e.value, true
	}
	var zero V
	return zero, false
}

// lasts reports whether an entry may be served while the database is away.
func (c *cache[V]) lasts(e entry[V]) bool {
	return c.opts.Sticky || c.opts.Now().Sub(e.began) < c.opts.TTL+c.opts.Stale
}
