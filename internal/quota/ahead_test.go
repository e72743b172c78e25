package quota

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotad/quotad"
)

// However slow the database is, what is in use is loaded before it is missed, and
// hardly more often than it must be.
func TestEntryInUseIsNeverWaitedFor(t *testing.T) {
	for _, delay := range []time.Duration{0, 300 * time.Millisecond, testBudget - 100*time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			c := newCached(map[string]int{"a": 0})
			c.mustGet(t, "a", 0)
			c.with(func(s *source) { s.delay = delay })
			for begun := time.Now(); time.Since(begun) < 10*testTTL; time.Sleep(50 * time.Millisecond) {
				c.mustGetAtOnce(t, "a", 0)
			}
			c.mustHaveLoaded(t, 1+int(10*testTTL/testDue))
			if n := c.outcomes[outcomeMiss].Load() + c.outcomes[outcomeStale].Load(); n != 1 {
				t.Errorf("with a delay of %v %d answers were not from an entry within its TTL, want the first", delay, n)
			}
			time.Sleep(testBudget)
		})
	}
}

func TestWhatWasLoadedAheadIsServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCached(map[string]int{"a": 1, "gone": 1})
		c.mustGet(t, "a", 1)
		c.mustGet(t, "gone", 1)
		c.with(func(s *source) { s.values = map[string]int{"a": 2} })
		time.Sleep(testDue)
		c.mustGetAtOnce(t, "a", 1)
		c.mustGetAtOnce(t, "gone", 1)
		synctest.Wait()
		c.mustGetAtOnce(t, "a", 2)
		c.mustFail(t, "gone", quotad.ErrNotFound)
		c.mustHaveLoaded(t, 4)
	})
}

func TestInvalidationOvertakesALoadAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCached(map[string]int{"a": 1})
		c.mustGet(t, "a", 1)
		time.Sleep(testDue)
		c.with(func(s *source) { s.delay = 300 * time.Millisecond })
		c.mustGetAtOnce(t, "a", 1)
		time.Sleep(200 * time.Millisecond)
		c.with(func(s *source) { s.values["a"] = 2 }) // after the load read 1
		c.Invalidate("a")
		c.mustGet(t, "a", 2)
		c.mustGetAtOnce(t, "a", 2)
	})
}

// A database that freezes is not waited for by those who use what quotad knows, not
// even by the first; it is asked all the while, and found back.
func TestFrozenDatabaseIsNotWaitedForByAKeyInUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCached(map[string]int{"a": 1})
		c.mustGet(t, "a", 1)
		c.with(func(s *source) { s.frozen = true })
		begun := time.Now()
		for time.Since(begun) < testTTL+testStale {
			c.mustGetAtOnce(t, "a", 1)
			time.Sleep(100 * time.Millisecond)
		}
		if n := c.outcomes[outcomeStale].Load(); n != int64(testStale/(100*time.Millisecond)) {
			t.Errorf("%d stale answers counted, want %d", n, testStale/(100*time.Millisecond))
		}
		c.mustFail(t, "a", quotad.ErrStoreUnavailable)
		// One load at a time, each for the budget, with pauses once they are known to be in vain.
		if n, most := c.count()-1, int((testStale+testBudget)/testBudget); n < most/3 || n > most {
			t.Errorf("the database was asked %d times while it was frozen", n)
		}

		c.with(func(s *source) { s.frozen, s.values["a"] = false, 2 })
		time.Sleep(testBudget + testPause + time.Millisecond)
		c.mustGet(t, "a", 2)
	})
}

// What nobody asked for near the end of its TTL may have changed unheard: the
// database is given a short while to say so, as long as it says anything.
func TestEntryPastItsTTLIsNotServedIfTheDatabaseAnswersSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCached(map[string]int{"a": 1, "b": 1, "c": 1})
		for _, id := range []string{"a", "b", "c"} {
			c.mustGet(t, id, 1)
		}
		c.with(func(s *source) {
			s.delay, s.values = testHaste-time.Millisecond, map[string]int{"a": 2, "b": 2, "c": 2}
		})
		time.Sleep(testTTL)
		c.mustGet(t, "a", 2)
		if n := c.outcomes[outcomeStale].Load(); n != 0 {
			t.Errorf("%d stale answers", n)
		}

		// Late, it is served once at most: the load goes on.
		c.with(func(s *source) { s.delay = 300 * time.Millisecond })
		begun := time.Now()
		c.mustGet(t, "b", 1)
		if waited := time.Since(begun); waited != testHaste {
			t.Errorf("the first call waited %v", waited)
		}
		c.mustGetAtOnce(t, "b", 1)
		time.Sleep(300*time.Millisecond - testHaste)
		synctest.Wait()
		c.mustGetAtOnce(t, "b", 2)
		c.mustHaveLoaded(t, 5)

		// And one load that was late is no reason not to wait for the next.
		c.with(func(s *source) { s.delay = testHaste / 2 })
		c.mustGet(t, "c", 2)
	})
}

// A load begun just before the end of the TTL has the same short while.
func TestLoadAheadThatHardlyBeganIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCached(map[string]int{"a": 1})
		c.mustGet(t, "a", 1)
		c.with(func(s *source) { s.delay, s.values["a"] = testHaste/2, 2 })
		time.Sleep(testTTL - time.Millisecond)
		c.mustGetAtOnce(t, "a", 1)
		time.Sleep(time.Millisecond)
		c.mustGet(t, "a", 2)
		c.mustHaveLoaded(t, 2)
	})
}

// The rows of one table may hang while others are read: those who ask for one of
// them don't each wait for it.
func TestOneLoadThatHangsIsWaitedForOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCached(map[string]int{"a": 1, "b": 1})
		c.mustGet(t, "a", 1)
		time.Sleep(testTTL)
		c.with(func(s *source) { s.frozen = true })
		begun := time.Now()
		c.mustGet(t, "a", 1)
		if waited := time.Since(begun); waited != testHaste {
			t.Errorf("the first call waited %v", waited)
		}
		synctest.Wait()
		c.with(func(s *source) { s.frozen = false })
		c.mustGet(t, "b", 1) // so the database does not hang
		for range 100 {
			c.mustGetAtOnce(t, "a", 1)
		}
		time.Sleep(testBudget)
		c.mustGetAtOnce(t, "a", 1)
		synctest.Wait()
		c.mustHaveLoaded(t, 4)
	})
}

func TestRevokedDuringAHangIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCached(map[string]int{"a": 1, "b": 1})
		c.mustGet(t, "a", 1)
		c.mustGet(t, "b", 1)
		c.with(func(s *source) { s.frozen = true })
		for _, rest := range []time.Duration{testDue, testTTL - testDue} { // loaded ahead, and stale
			time.Sleep(rest)
			c.mustGetAtOnce(t, "a", 1)
			time.Sleep(testHaste)
		}
		c.Invalidate("a")
		for range 5 {
			c.mustFail(t, "a", quotad.ErrStoreUnavailable)
			c.mustGetAtOnce(t, "b", 1)
		}
	})
}

// Notices may have been missed during a hang: what is known is asked for again, and
// served only where that takes too long.
func TestAfterRevalidateAHangIsFoundOutAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCached(map[string]int{"a": 1, "b": 1})
		c.mustGet(t, "a", 1)
		c.mustGet(t, "b", 1)
		time.Sleep(testTTL)
		c.with(func(s *source) { s.frozen = true })
		c.mustGet(t, "a", 1)
		c.mustGetAtOnce(t, "b", 1)
		for _, id := range []string{"a", "b"} { // whose loads are under way
			c.Revalidate()
			begun := time.Now()
			c.mustGet(t, id, 1)
			if waited := time.Since(begun); waited != testHaste {
				t.Errorf("after Revalidate %s was served after %v", id, waited)
			}
		}
		c.with(func(s *source) { s.frozen, s.values = false, map[string]int{"a": 2, "b": 2} })
		time.Sleep(testBudget)
		c.Revalidate()
		c.mustGet(t, "a", 2)
		c.mustGet(t, "b", 2)
	})
}

// What is known to have changed is not served because its load takes a while.
func TestInvalidatedStickyEntryIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCached(map[string]int{"": 1, "other": 1}, func(o *cacheOptions) { o.Sticky = true })
		c.mustGet(t, "", 1)
		c.mustGet(t, "other", 1)
		c.with(func(s *source) { s.frozen = true })
		time.Sleep(testTTL)
		c.mustGet(t, "other", 1) // finds out that the database hangs
		c.with(func(s *source) { s.frozen, s.delay, s.values[""] = false, 10*testHaste, 2 })
		c.Invalidate("")
		c.mustGet(t, "", 2)
		time.Sleep(testBudget)
	})
}

// Of many who find the entry due, or stale, none leaves anything behind.
func TestHitsDuringALoadAllocateNothing(t *testing.T) {
	var now time.Time
	hang, hung := make(chan struct{}), make(chan struct{})
	var once sync.Once
	first := true
	load := func(context.Context, string) (int, error) {
		if first {
			first = false
			return 1, nil
		}
		once.Do(func() { close(hung) })
		<-hang
		return 0, errors.New("gave up")
	}
	c := newCache(newGuard(testPause, nil), load, cacheOptions{
		Size: 1, UnknownSize: 1, TTL: testTTL, Stale: testStale, Budget: time.Hour,
		Now:     func() time.Time { return now },
		Observe: func(outcome) {}, Excused: func(error) {},
	})
	get := func() {
		if v, err := c.Get(t.Context(), "a", now); v != 1 || err != nil {
			t.Fatalf("Get = %d, %v", v, err)
		}
	}
	get()
	for _, age := range []time.Duration{0, testTTL - time.Second} {
		now = now.Add(age)
		get()
		if age > 0 {
			<-hung
		}
		if n := testing.AllocsPerRun(1000, get); n != 0 {
			t.Errorf("a hit at an age of %v makes %v allocations", age, n)
		}
	}
	close(hang)
}

// Whatever the moment at which a load ends, it is not found to be late after that.
func TestLoadThatHasEndedIsNotLate(t *testing.T) {
	c := newCached(nil).cache
	c.haste = 0
	renewals := make([]renewal, 20_000)
	for i := range renewals {
		ended := c.watch(&renewals[i])
		for range i % 4 {
			runtime.Gosched()
		}
		ended()
	}
	time.Sleep(20 * time.Millisecond) // for timers that have fired; too short shows nothing wrong
	for i := range renewals {
		if renewals[i].late.Load() != 0 {
			t.Fatalf("load %d is late, and has ended", i)
		}
	}
}
