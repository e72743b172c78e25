package ratelimit

import (
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
