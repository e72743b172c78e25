package quota

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotad/quotad"
)

func TestStaleEntriesAreServedWhileTheDatabaseIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCached(map[string]int{"a": 1})
		c.mustGet(t, "a", 1)
		c.with(func(s *source) { s.err = errAway })
		for range int((testTTL + testStale) / time.Second) {
			c.mustGet(t, "a", 1)
			time.Sleep(time.Second)
		}
		c.mustFail(t, "a", quotad.ErrStoreUnavailable)
		if n := c.outcomes[outcomeStale].Load(); n != int64(testStale/time.Second) {
			t.Errorf("%d stale answers counted, want %d", n, testStale/time.Second)
		}

		c.with(func(s *source) { s.err, s.values["a"] = nil, 2 })
		time.Sleep(testPause + time.Millisecond)
		c.mustGet(t, "a", 2)
	})
}

func TestStaleEntryIsRefreshedOnceTheDatabaseIsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCached(map[string]int{"a": 1})
		c.mustGet(t, "a", 1)
		c.with(func(s *source) { s.err = errAway })
		time.Sleep(2 * testTTL)
		for range 10 {
			c.mustGet(t, "a", 1)
		}
		c.with(func(s *source) { s.err, s.values["a"] = nil, 2 })
		time.Sleep(testPause + time.Millisecond)
		c.mustGet(t, "a", 1) // sets off the load that finds the database back
		synctest.Wait()
		c.mustGet(t, "a", 2)
		if !c.guard.closed() {
			t.Error("the guard is not closed")
		}
	})
}

func TestColdIDWithTheDatabaseAwayIsNeverUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCached(map[string]int{"a": 1})
		c.with(func(s *source) { s.err = errAway })
		for range 10 {
			_, err := c.Get(t.Context(), "a", c.opts.Now())
			var e *quotad.Error
			if !errors.As(err, &e) || e.Code != quotad.CodeStoreUnavailable || e.RetryAfter <= 0 {
				t.Fatalf("cold: %v, retry after %v", err, e.RetryAfter)
			}
		}
		if _, unknown := c.Len(); unknown != 0 {
			t.Fatal("an id that could not be looked up is remembered as unknown")
		}
		c.with(func(s *source) { s.err = nil })
		time.Sleep(testPause + time.Millisecond)
		c.mustGet(t, "a", 1)
	})
}

func TestInvalidatedEntryIsNotServedStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCached(map[string]int{"a": 1, "b": 1})
		c.mustGet(t, "a", 1)
		c.mustGet(t, "b", 1)
		c.with(func(s *source) { s.err = errAway })
		c.Invalidate("a")
		c.mustFail(t, "a", quotad.ErrStoreUnavailable)
		c.mustGet(t, "b", 1)
	})
}

func TestEntryInvalidatedDuringTheWaitIsNotServedStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCached(map[string]int{"a": 1})
		c.mustGet(t, "a", 1)
		time.Sleep(testTTL)
		c.with(func(s *source) { s.frozen = true })
		var wg sync.WaitGroup
		wg.Go(func() { c.mustFail(t, "a", quotad.ErrStoreUnavailable) })
		time.Sleep(testHaste / 2)
		c.Invalidate("a")
		wg.Wait()
	})
}

func TestAfterRevalidateEveryEntryIsAskedForAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCached(map[string]int{"a": 1, "b": 1})
		c.mustGet(t, "a", 1)
		c.mustGet(t, "b", 1)
		c.mustFail(t, "c", quotad.ErrNotFound)
		c.with(func(s *source) { s.values = map[string]int{"a": 2, "b": 2, "c": 2} })
		c.Revalidate()
		c.mustGet(t, "a", 2)
		c.mustGet(t, "c", 2)

		c.with(func(s *source) { s.err = errAway })
		c.mustGet(t, "b", 1) // nothing is known against it
		c.Revalidate()
		c.mustGet(t, "a", 2)
		c.with(func(s *source) { s.err = nil })
		c.mustGet(t, "b", 2)
	})
}

func TestFrozenDatabaseSlowsAFewCallsOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		values := map[string]int{}
		for i := range 100 {
			values[fmt.Sprint(i)] = i
		}
		c := newCached(values)
		for i := range 100 {
			c.mustGet(t, fmt.Sprint(i), i)
		}
		time.Sleep(testTTL)
		c.with(func(s *source) { s.frozen = true })
		// Half of them at once: each waits as long as one that is well may take.
		begun := time.Now()
		var wg sync.WaitGroup
		for i := range 50 {
			wg.Go(func() { c.mustGet(t, fmt.Sprint(i), i) })
		}
		wg.Wait()
		if waited := time.Since(begun); waited != testHaste {
			t.Fatalf("the first calls waited %v", waited)
		}
		for range 60 { // also those who ask for the first time
			for i := range 100 {
				c.mustGetAtOnce(t, fmt.Sprint(i), i)
			}
			time.Sleep(time.Second)
		}
		if hits := c.outcomes[outcomeHit].Load(); hits != 0 {
			t.Errorf("%d answers counted as of a database that is there", hits)
		}
		time.Sleep(testBudget + testPause + time.Millisecond)
		begun = time.Now()
		c.mustFail(t, "cold", quotad.ErrStoreUnavailable) // is the one that probes
		c.mustFail(t, "cold", quotad.ErrStoreUnavailable)
		if waited := time.Since(begun); waited > testBudget {
			t.Fatalf("cold calls waited %v", waited)
		}
	})
}

func TestCallersDeadlineIsServedStaleToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCached(map[string]int{"a": 1})
		c.mustGet(t, "a", 1)
		time.Sleep(testTTL)
		c.with(func(s *source) { s.frozen = true })
		ctx, cancel := context.WithTimeout(t.Context(), testHaste/2)
		defer cancel()
		if v, err := c.Get(ctx, "a", c.opts.Now()); err != nil || v != 1 {
			t.Fatalf("Get = %d, %v", v, err)
		}
		time.Sleep(testBudget)
	})
}

func TestRowThatCannotBeReadDoesNotOpenTheGuard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCached(map[string]int{"a": 1})
		c.with(func(s *source) { s.err = errors.New("scan: unexpected null") })
		for range 20 {
			c.mustFail(t, "broken", quotad.ErrStoreUnavailable)
		}
		c.with(func(s *source) { s.err = nil })
		c.mustGet(t, "a", 1)
	})
}

func TestStickyEntryOutlivesEverythingUntilReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCached(map[string]int{"": 1}, func(o *cacheOptions) { o.Sticky = true })
		c.mustGet(t, "", 1)
		c.with(func(s *source) { s.values[""] = 2 })
		c.Invalidate("")
		c.mustGet(t, "", 2)
		c.with(func(s *source) { s.err = errAway })
		c.Invalidate("")
		c.mustGet(t, "", 2)
		time.Sleep(24 * time.Hour)
		c.mustGet(t, "", 2)
	})
}
