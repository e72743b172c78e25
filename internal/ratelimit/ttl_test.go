package ratelimit

import (
	"fmt"
	"testing"
	"time"

	"github.com/quotad/quotad"
)

// TestCountersExpireWhenTheySayNothingMore: not before, or calls that count would be
// forgotten, and not after, or memory would be kept for nothing.
func TestCountersExpireWhenTheySayNothingMore(t *testing.T) {
	t.Parallel()
	client, prefix := dial(t)
	clock := newClock(0)
	store := NewRedis(client, RedisOptions{Prefix: prefix, Now: clock.Now})
	minute := func(a quotad.Algorithm, units int64) Limit { return limit(a, units, time.Minute) }
	queue := minute(quotad.LeakyBucket, 10)
	queue.MaxDelay = time.Minute
	burst := minute(quotad.TokenBucket, 7)
	burst.Burst = 20
	for _, c := range []struct {
		name  string
		limit Limit
		at    []int64 // ms after epoch, where windows begin, of charges of 3 units
		idle  int64   // ms after epoch
	}{
		{"sliding window: to the end of the next", minute(quotad.SlidingWindowCounter, 10), []int64{10_250}, 120_000},
		{"sliding window: the next", minute(quotad.SlidingWindowCounter, 10), []int64{10_250, 70_000}, 180_000},
		{"sliding window with large counts", minute(quotad.SlidingWindowCounter, 5_000_000_000), []int64{10_250}, 120_000},
		{"fixed window: to its end", minute(quotad.FixedWindow, 10), []int64{0, 59_999}, 60_000},
		{"bucket: until full", minute(quotad.TokenBucket, 10), []int64{10_250}, 28_250},
		{"bucket: until full, which is no whole ms", burst, []int64{10_250}, 10_250 + 25_715},
		{"bucket: until full, after some refilled", minute(quotad.TokenBucket, 10), []int64{0, 9_000}, 36_000},
		{"queue in debt: until paid and empty", queue, []int64{0, 0, 0, 0, 0}, 90_000},
		{"log: until the newest leaves", minute(quotad.SlidingWindowLog, 10), []int64{10_250, 20_000}, 80_000},
		{"quota: to the end of the period, wherever that moves",
			Limit{Algorithm: quotad.CalendarQuota, Units: 10, From: epoch, Until: epoch + 100_000}, []int64{10_250}, 100_000 + periodMoves},
	} {
		for i, at := range c.at {
			clock.ms.Store(epoch + at)
			before := client.Time(t.Context()).Val().UnixMilli()
			if ok, status := take(t, store, call(c.name, c.limit, 3)); !ok {
				t.Fatalf("%s: %+v", c.name, status)
			}
			if i < len(c.at)-1 {
				continue
			}
			after := client.Time(t.Context()).Val().UnixMilli()
			expires := client.PExpireTime(t.Context(), key(prefix, 0, CounterOf(c.name))).Val().Milliseconds()
			if lives := expires - time.Hour.Milliseconds() - (c.idle - at); lives < before || lives > after {
				t.Errorf("%s: kept for %d ms, want %d", c.name, expires-time.Hour.Milliseconds()-after, c.idle-at)
			}
		}
	}
}

// TestLongListsKeepTTLs: a counter that a long list charges again in its window keeps the
// TTL that it has, which is still right, and its state says all that was charged; one
// that lost its TTL gets it again in a short list, or in its next window.
func TestLongListsKeepTTLs(t *testing.T) {
	t.Parallel()
	client, prefix := dial(t)
	begun := time.Now()
	clock := newClock(epoch)
	store := NewRedis(client, RedisOptions{Prefix: prefix, Now: clock.Now, Timeout: patience})
	memory := NewMemory(MemoryOptions{Now: clock.Now})
	limits := []Limit{
		limit(quotad.SlidingWindowCounter, 10_000_000_000, time.Minute),
		limit(quotad.FixedWindow, 10_000_000_000, time.Minute),
		limit(quotad.TokenBucket, 1_000_000, time.Hour),
		limit(quotad.SlidingWindowLog, 10_000_000, time.Minute),
		{Algorithm: quotad.CalendarQuota, Units: 10_000_000_000, From: epoch, Until: epoch + time.Hour.Milliseconds()},
	}
	var calls []Call
	for i := range 12 {
		calls = append(calls, call(fmt.Sprint(i), limits[i%len(limits)], 1))
	}
	list := func(cost int64) {
		t.Helper()
		b := &batch{}
		for i := range calls {
			calls[i].Cost = cost
			b.add(calls[i])
		}
		if store.send(t.Context(), b); b.err != nil {
			t.Fatal(b.err)
		}
		for i, c := range calls {
			got, want := make([]Status, 1), make([]Status, 1)
			out, err := b.outcome(i, got)
			wantOut, _ := memory.Take(t.Context(), c, want)
			if err != nil || out != wantOut || got[0] != want[0] {
				t.Errorf("%s: %+v %v, want %+v", c.Charges[0].Limit.Algorithm, got[0], err, want[0])
			}
		}
	}
	left := func(i int) time.Duration {
		return client.PTTL(t.Context(), key(prefix, 0, calls[i].Charges[0].Counter)).Val() - time.Hour
	}
	// The counts pass what an integer holds, so that states change their form.
	for _, cost := range []int64{1, 100, 500_000, 24_187, 1, 300_000} {
		list(cost)
		clock.ms.Add(100)
	}
	list(1)
	for i, c := range calls {
		s := memory.table(&c.Charges[0].Counter).get(&c.Charges[0].Counter)
		idle := milliseconds(c.Charges[0].Limit.idleAt(s) - clock.ms.Load())
		// Most of the time that passed by the clock of the test did not pass by that of Redis.
		if got := left(i); got > idle+time.Second || got < idle-time.Since(begun)-time.Second {
			t.Errorf("%s: a TTL of %v, want %v", c.Charges[0].Limit.Algorithm, got, idle)
		}
		client.Persist(t.Context(), key(prefix, 0, c.Charges[0].Counter))
		calls[i].Cost = 1
	}
	take(t, store, calls[0])
	take(t, memory, calls[0])
	if left(0) <= 0 {
		t.Error("a call by itself gave no TTL to a counter without one")
	}
	clock.ms.Add(60_000)
	list(0)
	list(1)
	for i, c := range calls {
		if c.Charges[0].Limit.Algorithm != quotad.CalendarQuota && left(i) <= 0 {
			t.Errorf("%s: the next window gave no TTL to a counter without one", c.Charges[0].Limit.Algorithm)
		}
	}
}
