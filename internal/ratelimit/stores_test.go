package ratelimit

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/testenv"
	"github.com/redis/go-redis/v9"
)

// clock is a clock that tests move.
type clock struct{ ms atomic.Int64 }

func newClock(ms int64) *clock { c := &clock{}; c.ms.Store(ms); return c }

func (c *clock) Now() time.Time { return time.UnixMilli(c.ms.Load()) }

// patience is how long a test that is not about time waits, for Redis too: on a machine so busy that its clock seems to
// leap, a sentinel does nothing for half a minute.
const patience = 5 * time.Minute

// long is a window that does not end while a test runs. One of a day would, at midnight.
const long = quotad.MaxWindow * time.Second

// dial returns a client of the shared Redis and a key prefix of this test's own.
func dial(t testing.TB) (redis.UniversalClient, string) {
	t.Helper()
	url, prefix := testenv.Redis(t)
	client, err := Connect(url, ConnectOptions{Timeout: patience})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client, prefix
}

// eachStore runs a test over memory and over Redis, with a clock that it moves.
func eachStore(t *testing.T, test func(t *testing.T, store Store, clock *clock)) {
	t.Run("memory", func(t *testing.T) {
		t.Parallel()
		c := newClock(epoch)
		test(t, NewMemory(MemoryOptions{Now: c.Now}), c)
	})
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		c := newClock(epoch)
		client, prefix := dial(t)
		test(t, NewRedis(client, RedisOptions{Prefix: prefix, Now: c.Now, Timeout: patience}), c)
	})
}

// epoch is a time at which windows of a minute, an hour and a day begin.
const epoch = 1_700_006_400_000

func limit(a quotad.Algorithm, units int64, window time.Duration) Limit {
	return Limit{Algorithm: a, Units: units, Window: window}
}

var everyAlgorithm = []quotad.Algorithm{
	quotad.SlidingWindowCounter, quotad.SlidingWindowLog, quotad.FixedWindow, quotad.TokenBucket, quotad.LeakyBucket,
}

// call is a call of one charge to the counter called name.
func call(name string, l Limit, cost int64) Call {
	return Call{Cost: cost, Charges: []Charge{{Counter: CounterOf(name), Limit: l}}}
}

// take takes and fails the test on an error.
func take(t testing.TB, s Store, c Call) (bool, []Status) {
	t.Helper()
	status := make([]Status, len(c.Charges))
	out, err := s.Take(context.Background(), c, status)
	if err != nil {
		t.Fatalf("take: %v", err)
	}
	return out.Allowed, status
}

// expect takes one unit-cost-per-call and compares the verdict and what is left.
func expect(t testing.TB, s Store, name string, l Limit, cost int64, allowed bool, remaining int64) {
	t.Helper()
	ok, status := take(t, s, call(name, l, cost))
	if ok != allowed || status[0].Remaining != remaining {
		t.Fatalf("cost %d of %v: allowed %v remaining %d, want %v and %d", cost, l, ok, status[0].Remaining, allowed, remaining)
	}
}
