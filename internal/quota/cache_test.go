package quota

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotad/quotad"
)

// source stands for what a cache loads from: it can be changed, slowed, frozen
// and taken away. In these tests time is the bubble's, so that none passes
// unless everybody waits for it.
type source struct {
	mu     sync.Mutex
	values map[string]int
	delay  time.Duration
	err    error
	frozen bool
	loads  int
}

func newSource(values map[string]int) *source { return &source{values: values} }

func (s *source) load(ctx context.Context, id string) (int, error) {
	s.mu.Lock()
	s.loads++
	v, ok := s.values[id]
	delay, err, frozen := s.delay, s.err, s.frozen
	s.mu.Unlock()
	if frozen {
		<-ctx.Done()
		return 0, ctx.Err()
	}
	select {
	case <-time.After(delay):
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	switch {
	case err != nil:
		return 0, err
	case !ok:
		return 0, quotad.ErrNotFound
	}
	return v, nil
}

func (s *source) with(change func(*source)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
}

func (s *source) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.loads
}

// cached is a cache over a source, and what it counted.
type cached struct {
	*cache[int]
	*source
	guard    *guard
	outcomes [outcomes]atomic.Int64
}

const (
	testTTL    = time.Minute
	testStale  = 10 * time.Minute
	testBudget = 2 * time.Second
	testPause  = time.Second
	testHaste  = testBudget / hasty
	testDue    = testTTL - testBudget
)

func newCached(values map[string]int, change ...func(*cacheOptions)) *cached {
	c := &cached{source: newSource(values), guard: newGuard(testPause, nil)}
	opts := cacheOptions{
		Size: 100, UnknownSize: 100, TTL: testTTL, UnknownTTL: 2 * time.Second,
		Stale: testStale, Budget: testBudget, Now: time.Now,
		Observe: func(o outcome) { c.outcomes[o].Add(1) },
		Excused: func(error) {},
	}
	for _, f := range change {
		f(&opts)
	}
	c.cache = newCache(c.guard, func(ctx context.Context, id string) (int, error) {
		return guarded(c.guard, func() (int, error) { return c.source.load(ctx, id) })
	}, opts)
	return c
}

func (c *cached) mustGet(t *testing.T, id string, want int) {
	t.Helper()
	if v, err := c.Get(t.Context(), id, c.opts.Now()); err != nil || v != want {
		t.Fatalf("Get(%s) = %d, %v; want %d", id, v, err, want)
	}
}

// mustGetAtOnce is mustGet that may not wait.
func (c *cached) mustGetAtOnce(t *testing.T, id string, want int) {
	t.Helper()
	begun := time.Now()
	c.mustGet(t, id, want)
	if waited := time.Since(begun); waited != 0 {
		t.Fatalf("Get(%s) waited %v", id, waited)
	}
}

func (c *cached) mustFail(t *testing.T, id string, want error) {
	t.Helper()
	if v, err := c.Get(t.Context(), id, c.opts.Now()); !errors.Is(err, want) {
		t.Fatalf("Get(%s) = %d, %v; want %v", id, v, err, want)
	}
}

func (c *cached) mustHaveLoaded(t *testing.T, want int) {
	t.Helper()
	if n := c.count(); n != want {
		t.Fatalf("%d loads, want %d", n, want)
	}
}

var errAway = &quotad.Error{Code: quotad.CodeStoreUnavailable, Cause: errors.New("connection refused")}

func TestEntryIsServedForItsTTLAndReadingNeverExtendsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCached(map[string]int{"a": 1})
		for range testDue / time.Second { // until it would be loaded again
			c.mustGet(t, "a", 1)
			time.Sleep(time.Second)
		}
		time.Sleep(testTTL - testDue - time.Nanosecond)
		c.with(func(s *source) { s.delay, s.values["a"] = testHaste/2, 2 })
		c.mustHaveLoaded(t, 1)
		c.mustGetAtOnce(t, "a", 1) // and the load of what replaces it begins, sooner or later
		time.Sleep(time.Nanosecond)
		c.mustGet(t, "a", 2)
		synctest.Wait()
		c.mustHaveLoaded(t, 2)
	})
}

func TestTTLCountsFromTheBeginningOfTheLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCached(map[string]int{"a": 1})
		c.with(func(s *source) { s.delay = time.Second })
		c.mustGet(t, "a", 1)
		c.with(func(s *source) { s.delay, s.values["a"] = 0, 2 })
		time.Sleep(testTTL - time.Second)
		c.mustGet(t, "a", 2)
		c.mustHaveLoaded(t, 2)
	})
}

func TestOneLoadPerIDHoweverManyWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCached(map[string]int{"a": 1})
		c.with(func(s *source) { s.delay = 300 * time.Millisecond })
		// Cold, at the moment of its expiry, and when it is due to be loaded again.
		for round, rest := range []time.Duration{testTTL, testDue, testDue} {
			var wg sync.WaitGroup
			for range 500 {
				wg.Go(func() { c.mustGet(t, "a", 1) })
			}
			wg.Wait()
			time.Sleep(300 * time.Millisecond)
			for range 500 {
				c.mustGetAtOnce(t, "a", 1)
			}
			c.mustHaveLoaded(t, round+1)
			time.Sleep(rest - 300*time.Millisecond)
		}
	})
}

func TestCallerWhoHangsUpFailsNobodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCached(map[string]int{"a": 1})
		c.with(func(s *source) { s.delay = 300 * time.Millisecond })
		first, hangUp := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			begun := time.Now()
			if _, err := c.Get(first, "a", c.opts.Now()); !errors.Is(err, context.Canceled) {
				t.Errorf("the one who hung up got %v", err)
			}
			if waited := time.Since(begun); waited != 50*time.Millisecond {
				t.Errorf("the one who hung up waited %v", waited)
			}
		})
		synctest.Wait()
		for range 99 {
			wg.Go(func() { c.mustGet(t, "a", 1) })
		}
		time.Sleep(50 * time.Millisecond)
		hangUp()
		wg.Wait()
		c.mustHaveLoaded(t, 1)
	})
}

func TestInvalidationOvertakesALoadInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCached(map[string]int{"a": 1})
		c.with(func(s *source) { s.delay = 300 * time.Millisecond })
		var wg sync.WaitGroup
		wg.Go(func() { c.Get(t.Context(), "a", c.opts.Now()) })
		time.Sleep(200 * time.Millisecond)
		c.with(func(s *source) { s.values["a"] = 2 }) // after the load read 1
		c.Invalidate("a")
		c.mustGet(t, "a", 2) // joins the flight that read 1
		wg.Wait()
		c.mustGet(t, "a", 2)
		c.mustHaveLoaded(t, 2)
	})
}

func TestRevalidationOvertakesALoadInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCached(map[string]int{"a": 1})
		c.with(func(s *source) { s.delay = 300 * time.Millisecond })
		var wg sync.WaitGroup
		wg.Go(func() { c.Get(t.Context(), "a", c.opts.Now()) })
		time.Sleep(200 * time.Millisecond)
		c.with(func(s *source) { s.values["a"] = 2 })
		c.Revalidate()
		c.mustGet(t, "a", 2)
		wg.Wait()
		c.mustHaveLoaded(t, 2)
	})
}

// A load that begins while the entry is being invalidated, but is not yet removed,
// does not pass the entry off as found after that.
func TestLoadBegunWithinAnInvalidationIsNotAnsweredFromBefore(t *testing.T) {
	c := newCached(map[string]int{"a": 1})
	c.mustGet(t, "a", 1)
	c.with(func(s *source) { s.values["a"] = 2 })

	cache := c.cache
	cache.mu.Lock() // Invalidate, slowly
	cache.mark("a").Add(1)
	flight := make(chan answer[int], 1)
	go func() { flight <- cache.flight(t.Context(), "a", cache.load) }()
	time.Sleep(20 * time.Millisecond) // enough to show the fault; too little shows nothing wrong
	cache.entries.Remove("a")
	cache.mu.Unlock()

	if a := <-flight; a.value != 2 || a.err != nil {
		t.Fatalf("the load found %d, %v; it is 2", a.value, a.err)
	}
}

// A writer changes the value, invalidates, and only then says so. No reader may
// see less than what had been said before it asked, whatever loads, evictions
// and expiries it meets on the way.
func TestNobodySeesWhatWasInvalidatedBeforeTheyAsked(t *testing.T) {
	for _, size := range []int{1, 100} {
		t.Run(fmt.Sprintf("size %d", size), func(t *testing.T) {
			var now, value, said, stop atomic.Int64
			base := time.Unix(1_800_000_000, 0)
			load := func(context.Context, string) (int64, error) {
				v := value.Load()
				runtime.Gosched()
				return v, nil
			}
			c := newCache(newGuard(testPause, nil), load, cacheOptions{
				Size: size, UnknownSize: 1, TTL: time.Second, UnknownTTL: time.Second, Budget: time.Hour,
				Now:     func() time.Time { return base.Add(time.Duration(now.Load())) },
				Observe: func(outcome) {}, Excused: func(error) {},
			})
			var readers sync.WaitGroup
			for reader := range 8 {
				readers.Go(func() {
					for i := 0; stop.Load() == 0; i++ {
						least := said.Load()
						if v, err := c.Get(t.Context(), "a", c.opts.Now()); err != nil || v < least {
							t.Errorf("Get = %d, %v; %d was said before", v, err, least)
							return
						}
						if i%16 == reader {
							c.Get(t.Context(), "b", c.opts.Now()) // with size 1 this evicts a
						}
					}
				})
			}
			for n := int64(1); n <= 20000 && !t.Failed(); n++ {
				for range n % 8 { // so that the steps fall everywhere in a load
					runtime.Gosched()
				}
				value.Store(n)
				if n%50 == 0 {
					c.Revalidate()
				} else {
					c.Invalidate("a")
				}
				said.Store(n)
				now.Add(int64(400 * time.Millisecond)) // every third step is an expiry, the one before it a load ahead
			}
			stop.Store(1)
			readers.Wait()
		})
	}
}

func TestUnknownIsRememberedBrieflyAndApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCached(map[string]int{"a": 1})
		c.mustGet(t, "a", 1)
		for i := range 5000 {
			c.mustFail(t, fmt.Sprint("made up ", i), quotad.ErrNotFound)
		}
		loads := c.count()
		c.mustGet(t, "a", 1) // not evicted
		c.mustFail(t, "made up 4999", quotad.ErrNotFound)
		c.mustHaveLoaded(t, loads)
		if n, unknown := c.Len(); n != 1 || unknown != 100 {
			t.Fatalf("%d entries and %d unknown ids kept, want 1 and 100", n, unknown)
		}

		c.with(func(s *source) { s.values["made up 4999"], s.values["made up 4998"] = 2, 3 })
		c.Invalidate("made up 4999")
		c.mustGet(t, "made up 4999", 2) // told of it
		time.Sleep(2 * time.Second)
		c.mustGet(t, "made up 4998", 3) // by itself
	})
}

func TestDeletedEntryBecomesUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCached(map[string]int{"a": 1})
		c.mustGet(t, "a", 1)
		c.with(func(s *source) { delete(s.values, "a") })
		time.Sleep(testTTL)
		c.mustFail(t, "a", quotad.ErrNotFound)
		if n, _ := c.Len(); n != 0 {
			t.Fatal("the entry of a deleted id is kept")
		}
		c.with(func(s *source) { s.err = errAway })
		time.Sleep(2 * time.Second)
		c.mustFail(t, "a", quotad.ErrStoreUnavailable)
	})
}
