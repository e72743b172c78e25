package ratelimit

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/quotad/quotad"
)

// mostOfLog is the most entries of a log: its slots, the one that has just ended or begun, and the one whose end is
// yet to come.
const mostOfLog = logExact + 2

// TestALogIsBounded: whatever the limit, the costs and the times, no log has more entries than calls that are in its
// window, or than mostOfLog; and Redis keeps 10 bytes for each.
func TestALogIsBounded(t *testing.T) {
	for _, shape := range []struct {
		name   string
		window time.Duration
		units  int64
		cost   func(r *rand.Rand) int64
		every  time.Duration // between calls, on average
		calls  int
		least  int // entries that the fullest log must have had, or the bound is not under test
	}{
		{"one unit", time.Second, 1, one, 300 * time.Millisecond, 50, 1},
		{"exact, singles", time.Second, 1000, one, time.Millisecond, 3000, 500},
		{"exact, the largest", 2 * time.Second, logExact, one, 2 * time.Millisecond, 3000, 800},
		{"exact, costs", 10 * time.Second, logExact, upTo(20), 10 * time.Millisecond, 3000, 50},
		{"slots, the smallest limit", 2 * time.Second, logExact + 1, one, 2 * time.Millisecond, 3000, 500},
		{"slots, singles", time.Minute, 1_000_000, one, 20 * time.Millisecond, 9000, 900},
		{"slots, costs", time.Minute, 1_000_000, upTo(1000), 30 * time.Millisecond, 5000, 500},
		{"slots, a year", 365 * 24 * time.Hour, 1_000_000_000, upTo(1_000_000), 3 * time.Hour, 7000, 500},
		{"slots, the shortest window", time.Second, 1_000_000_000, upTo(1000), 500 * time.Microsecond, 5000, 500},
	} {
		t.Run(shape.name, func(t *testing.T) {
			t.Parallel()
			l := newLogs(t)
			limit := limit(quotad.SlidingWindowLog, shape.units, shape.window)
			r := rand.New(rand.NewPCG(1, 2))
			within := []int64{} // times of the calls that were admitted
			most := 0
			passed := time.Duration(0)
			for i := range shape.calls {
				passed += time.Duration(r.Int64N(int64(2 * shape.every)))
				now := epoch + passed.Milliseconds()
				if l.take(now, limit, shape.cost(r)) {
					within = append(within, now)
				}
				// One slot longer: that late they leave.
				for slot := ceilDiv(limit.windowMS(), logExact); within[0] <= now-limit.windowMS()-slot; {
					within = within[1:]
				}
				if i%50 == 0 || i == shape.calls-1 {
					most = max(most, l.expectAtMost(min(mostOfLog, len(within))))
				}
			}
			if most < shape.least {
				t.Errorf("at most %d entries, want at least %d to have been there", most, shape.least)
			}
			// And all of it ends.
			now := epoch + passed.Milliseconds() + 2*limit.windowMS()
			l.take(now, limit, 1)
			l.expectAtMost(1)
		})
	}
}

// TestALogStaysBoundedThroughEdits: the limit and its window go up and down, over the border between exact and slots,
// and what that leaves behind is gone a window later.
func TestALogStaysBoundedThroughEdits(t *testing.T) {
	t.Parallel()
	l := newLogs(t)
	r := rand.New(rand.NewPCG(3, 4))
	now := int64(epoch)
	for range 40 {
		units := []int64{1, 20, logExact, logExact + 1, 1_000_000}[r.IntN(5)]
		edited := limit(quotad.SlidingWindowLog, units, []time.Duration{time.Second, 10 * time.Second, time.Minute}[r.IntN(3)])
		for range 150 {
			now += r.Int64N(40)
			l.take(now, edited, 1+r.Int64N(min(3, units)))
		}
		l.expectAtMost(2 * mostOfLog)
	}
	long := limit(quotad.SlidingWindowLog, 1_000_000, time.Minute)
	for range 2200 { // more than a minute
		now += r.Int64N(60)
		l.take(now, long, 1)
	}
	l.expectAtMost(mostOfLog)
}

// TestCallsOfOneInstantAreOneEntry of a log.
func TestCallsOfOneInstantAreOneEntry(t *testing.T) {
	t.Parallel()
	l := newLogs(t)
	for i := range int64(20) {
		if !l.take(epoch, limit(quotad.SlidingWindowLog, 210, time.Minute), 1+i) {
			t.Fatalf("cost %d was refused", 1+i)
		}
	}
	l.expectAtMost(1)
}

func one(*rand.Rand) int64 { return 1 }

func upTo(most int64) func(*rand.Rand) int64 {
	return func(r *rand.Rand) int64 { return 1 + r.Int64N(most) }
}

// logs are a log in Redis and one in memory that have seen the same calls.
type logs struct {
	t      *testing.T
	clock  *clock
	memory *Memory
	redis  *Redis
	key    string // in Redis
	read   func(key string) (value string, bytes int64)
}

func newLogs(t *testing.T) *logs {
	t.Helper()
	client, prefix := dial(t)
	clock := newClock(epoch)
	return &logs{
		t: t, clock: clock, memory: NewMemory(MemoryOptions{Now: clock.Now}),
		redis: NewRedis(client, RedisOptions{Prefix: prefix, Now: clock.Now, Timeout: patience}),
		key:   key(prefix, 0, CounterOf("log")),
		read: func(key string) (string, int64) {
			return client.Get(t.Context(), key).Val(), client.MemoryUsage(t.Context(), key).Val()
		},
	}
}

// take takes from both and expects that they agree.
func (l *logs) take(now int64, limit Limit, cost int64) bool {
	l.t.Helper()
	l.clock.ms.Store(now)
	inMemory, status := take(l.t, l.memory, call("log", limit, cost))
	inRedis, other := take(l.t, l.redis, call("log", limit, cost))
	if inMemory != inRedis || fmt.Sprint(status) != fmt.Sprint(other) {
		l.t.Fatalf("%+v at %d, cost %d: in memory %t %+v, in Redis %t %+v", limit, now-epoch, cost, inMemory, status, inRedis, other)
	}
	return inMemory
}

// expectAtMost expects no more entries in either log, and returns how many there are.
func (l *logs) expectAtMost(entries int) int {
	l.t.Helper()
	value, bytes := l.read(l.key)
	inRedis, log := (len(value)-6)/10, logInMemory(l.memory, CounterOf("log"))
	if inRedis > entries || len(value) != 6+10*inRedis {
		l.t.Errorf("%d bytes in Redis, want at most %d entries of 10, and 6", len(value), entries)
	}
	// An allocator of size classes takes a quarter more, and the key has some.
	if most := int64(6+10*entries)*5/4 + 200; bytes > most {
		l.t.Errorf("Redis uses %d bytes, want at most %d for %d entries", bytes, most, entries)
	}
	if len(log) > entries || cap(log) > 2*max(entries, mostOfLog) {
		l.t.Errorf("%d entries in memory and room for %d, want at most %d", len(log), cap(log), entries)
	}
	return max(inRedis, len(log))
}
