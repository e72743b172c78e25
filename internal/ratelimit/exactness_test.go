package ratelimit

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quotad/quotad"
	"github.com/redis/go-redis/v9"
)

// inParallel runs f n times at once and returns how many were true.
func inParallel(n int, f func(i int) bool) int64 {
	var yes atomic.Int64
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		wg.Add(1)
		go func() {
			defer wg.Done()
			<-start
			if f(i) {
				yes.Add(1)
			}
		}()
	}
	close(start)
	wg.Wait()
	return yes.Load()
}

// TestParallelCallsAdmitExactlyTheLimit sends parallel calls through two nodes of
// one store: two clients of Redis, or one memory.
func TestParallelCallsAdmitExactlyTheLimit(t *testing.T) {
	for _, a := range everyAlgorithm {
		for _, place := range []string{"memory", "redis"} {
			t.Run(fmt.Sprint(a, "/", place), func(t *testing.T) {
				t.Parallel()
				var nodes []Store
				if place == "memory" {
					m := NewMemory(MemoryOptions{})
					nodes = []Store{m, m}
				} else {
					one, prefix := dial(t)
					two, _ := dial(t)
					nodes = []Store{NewRedis(one, RedisOptions{Prefix: prefix, Timeout: patience}), NewRedis(two, RedisOptions{Prefix: prefix, Timeout: patience})}
				}
				for round := range 10 {
					for _, units := range []int64{1, 20} {
						l := limit(a, units, long)
						name := fmt.Sprint("round", round, "/", units)
						admitted := inParallel(50, func(i int) bool {
							ok, status := take(t, nodes[i%2], call(name, l, 1))
							if status[0].Remaining < 0 {
								t.Errorf("remaining %d", status[0].Remaining)
							}
							return ok
						})
						if admitted != units {
							t.Fatalf("limit %d admitted %d of 50 parallel calls", units, admitted)
						}
					}
				}
			})
		}
	}
}

// TestParallelCallsOverManyLimits charges mixed costs to three limits that share
// counters between calls, and adds up what was admitted.
func TestParallelCallsOverManyLimits(t *testing.T) {
	eachStore(t, func(t *testing.T, store Store, _ *clock) {
		key := func(i int) Limit { return limit(everyAlgorithm[i%5], 40, time.Hour) }
		tenant := limit(quotad.FixedWindow, 100, time.Hour)
		perKey := make([]atomic.Int64, 6)
		inParallel(300, func(i int) bool {
			k, cost := i%6, int64(1+i%3)
			c := Call{Cost: cost, Charges: []Charge{
				{Counter: CounterOf("key", fmt.Sprint(k)), Limit: key(k)},
				{Counter: CounterOf("tenant"), Limit: tenant},
			}}
			ok, _ := take(t, store, c)
			if ok {
				perKey[k].Add(cost)
			}
			return ok
		})
		total := int64(0)
		for k := range perKey {
			n := perKey[k].Load()
			total += n
			_, status := take(t, store, call2("key", fmt.Sprint(k), key(k)))
			if status[0].Remaining != 40-n {
				t.Errorf("key %d: admitted %d, remaining %d of 40", k, n, status[0].Remaining)
			}
		}
		_, status := take(t, store, call("tenant", tenant, 0))
		if total != 100-status[0].Remaining || total > 100 || total < 98 {
			t.Errorf("admitted %d, remaining %d of 100", total, status[0].Remaining)
		}
	})
}

func call2(a, b string, l Limit) Call {
	return Call{Charges: []Charge{{Counter: CounterOf(a, b), Limit: l}}}
}

// values returns every value under the prefix, and fails the test for a key
// without a TTL or with one beyond most.
func values(t *testing.T, client redis.UniversalClient, prefix string, most time.Duration) map[string]string {
	t.Helper()
	ctx := context.Background()
	found := map[string]string{}
	keys := client.Scan(ctx, 0, prefix+"*", 1000).Iterator()
	for keys.Next(ctx) {
		k := keys.Val()
		v, err := client.Get(ctx, k).Result()
		if err == redis.Nil {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		ttl, err := client.PTTL(ctx, k).Result()
		if err != nil {
			t.Fatal(err)
		}
		if ttl == -1 || ttl > most {
			t.Errorf("key %s = %s has ttl %v, want one of at most %v", k, v, ttl, most)
		}
		found[k] = v
	}
	return found
}

// TestRefusedCallsChangeNothing compares every value in Redis before and after
// refused and peeking calls.
func TestRefusedCallsChangeNothing(t *testing.T) {
	t.Parallel()
	client, prefix := dial(t)
	store := NewRedis(client, RedisOptions{Prefix: prefix, Timeout: patience})
	for _, a := range everyAlgorithm {
		tight, wide := limit(a, 10, long), limit(a, 100, long)
		both := func(cost int64) Call {
			return Call{Cost: cost, Charges: []Charge{
				{Counter: CounterOf("wide", string(a)), Limit: wide}, {Counter: CounterOf("tight", string(a)), Limit: tight},
			}}
		}
		if ok, _ := take(t, store, both(0)); !ok || len(values(t, client, prefix, 2*long)) != 0 {
			t.Fatalf("%s: a peek made a key", a)
		}
		if ok, _ := take(t, store, both(10)); !ok {
			t.Fatalf("%s: refused 10 of 10", a)
		}
		before := values(t, client, prefix, 2*long)
		for range 20 {
			take(t, store, both(0))
			if ok, _ := take(t, store, both(5)); ok {
				t.Fatalf("%s: admitted beyond the limit", a)
			}
		}
		if after := values(t, client, prefix, 2*long); fmt.Sprint(before) != fmt.Sprint(after) {
			t.Errorf("%s: refused calls changed %v into %v", a, before, after)
		}
		for k := range before {
			client.Del(context.Background(), k)
		}
	}
}

// TestEveryKeyExpires makes counters of all shapes and looks at all of them.
func TestEveryKeyExpires(t *testing.T) {
	t.Parallel()
	client, prefix := dial(t)
	store := NewRedis(client, RedisOptions{Prefix: prefix, Timeout: patience})
	integer := regexp.MustCompile(`^\d+$`)
	for _, a := range everyAlgorithm {
		for _, units := range []int64{3, 5_000_000_000} {
			l := limit(a, units, time.Minute)
			for _, cost := range []int64{1, units / 2} {
				name := fmt.Sprint(a, units, cost)
				take(t, store, call(name, l, cost))
				take(t, store, call(name, l, cost))
			}
		}
	}
	for k, v := range values(t, client, prefix, 2*time.Minute) {
		if isLog := (len(v)-6)%10 == 0 && v[0] == 0; !isLog && len(v) != 14 && len(v) != 22 && !integer.MatchString(v) {
			t.Errorf("value %q of %s is neither an integer, nor a large state, nor a log", v, k)
		}
	}
}

// TestAKeyWithoutTTLHeals plants a state that would never expire.
func TestAKeyWithoutTTLHeals(t *testing.T) {
	t.Parallel()
	client, prefix := dial(t)
	store := NewRedis(client, RedisOptions{Prefix: prefix, Timeout: patience})
	for _, a := range everyAlgorithm {
		c := call(string(a), limit(a, 10, long), 1)
		take(t, store, c)
		client.Persist(context.Background(), key(prefix, 0, CounterOf(string(a))))
		take(t, store, c)
	}
	if n := len(values(t, client, prefix, 2*long)); n != len(everyAlgorithm) {
		t.Errorf("%d keys, want %d", n, len(everyAlgorithm))
	}
}

// TestAQuotaIsKeptAsLongAsItsPeriodCanMove charges a quota whose period ends in an
// hour. Its tenant may move to a zone where it ends up to 26 hours later, and shall not
// find it unused there.
func TestAQuotaIsKeptAsLongAsItsPeriodCanMove(t *testing.T) {
	t.Parallel()
	client, prefix := dial(t)
	now := time.Now()
	quota := Limit{Algorithm: quotad.CalendarQuota, Units: 10, From: now.Add(-time.Hour).UnixMilli(), Until: now.Add(time.Hour).UnixMilli()}
	c := call("q", quota, 10)
	take(t, NewRedis(client, RedisOptions{Prefix: prefix, Timeout: patience}), c)
	ttl := client.PTTL(t.Context(), key(prefix, 0, c.Charges[0].Counter)).Val()
	if most := 27 * time.Hour; ttl < most-time.Since(now)-time.Second || ttl > most {
		t.Errorf("a quota of another hour is kept for %v", ttl)
	}
	if idle := quota.idleAt(state{}) - quota.Until; idle != (26 * time.Hour).Milliseconds() {
		t.Errorf("in memory it is kept for %d ms", idle)
	}
}

// TestAValueThatIsNoStateHeals plants what no node stores at a counter's key. It must
// not fail the call, for others travel in the same run of the script.
func TestAValueThatIsNoStateHeals(t *testing.T) {
	t.Parallel()
	client, prefix := dial(t)
	store := NewRedis(client, RedisOptions{Prefix: prefix, Timeout: patience})
	ctx := context.Background()
	from := time.Now().Add(-time.Hour).UnixMilli()
	quota := Limit{Algorithm: quotad.CalendarQuota, Units: 10, From: from, Until: from + (2 * time.Hour).Milliseconds()}
	limits := []Limit{quota}
	for _, a := range everyAlgorithm {
		limits = append(limits, limit(a, 10, long))
	}
	for _, l := range limits {
		c := call(string(l.Algorithm), l, 1)
		at := key(prefix, 0, c.Charges[0].Counter)
		for _, value := range []string{
			"", "abc", "-1", "1e5", "12", " 1000000000", "-1000000000", "1000000000.5", "99999999999999999999", "nan", "\x00",
			strings.Repeat("x", 14), strings.Repeat("x", 17), strings.Repeat("x", 22), strings.Repeat("{}", 5000),
			large(1.5), large(math.NaN()), large(math.Inf(-1)), large(1 << 60), large(-1 << 60),
			large(1.5, 0), large(math.NaN(), 0), large(1<<60, 0), large(3, -1), large(3, 0.5), large(3, math.NaN()), large(3, 1<<60),
		} {
			if err := client.Set(ctx, at, value, 0).Err(); err != nil {
				t.Fatal(err)
			}
			if ok, status := take(t, store, c); !ok || status[0].Remaining != 9 {
				t.Errorf("%s after %.20q: allowed %v, %d left of 10", l.Algorithm, value, ok, status[0].Remaining)
			}
			if ttl := client.PTTL(ctx, at).Val(); ttl <= 0 {
				t.Errorf("%s after %.20q: a TTL of %v", l.Algorithm, value, ttl)
			}
		}
		client.Del(ctx, at)
		client.RPush(ctx, at, "a list")
		if ok, status := take(t, store, c); !ok || status[0].Remaining != 9 {
			t.Errorf("%s after a list: allowed %v, %d left of 10", l.Algorithm, ok, status[0].Remaining)
		}
	}
}

// large is a large state as it is stored: of a sliding window with two numbers, else with one.
func large(numbers ...float64) string {
	value := make([]byte, 6)
	for _, n := range numbers {
		value = binary.BigEndian.AppendUint64(value, math.Float64bits(n))
	}
	return string(value)
}

// TestSmallStatesAreIntegers holds the layout that Redis keeps without a string.
func TestSmallStatesAreIntegers(t *testing.T) {
	t.Parallel()
	client, prefix := dial(t)
	store := NewRedis(client, RedisOptions{Prefix: prefix, Timeout: patience})
	for _, a := range everyAlgorithm {
		if a == quotad.SlidingWindowLog {
			continue
		}
		for _, cost := range []int64{7, 1000} { // some, and all: a bucket is then empty
			name := fmt.Sprint(a, cost)
			var encoding string
			var err error
			eventually(t, "the counter has not expired", func() bool {
				take(t, store, call(name, limit(a, 1000, time.Minute), cost))
				encoding, err = client.ObjectEncoding(context.Background(), key(prefix, 0, CounterOf(name))).Result()
				return err != redis.Nil
			})
			if err != nil || encoding != "int" {
				t.Errorf("%s, %d of 1000 units: encoded as %s (%v), want int", a, cost, encoding, err)
			}
		}
	}
}

// TestRedisClockRules runs two nodes whose own clocks do not matter: the store
// never reads them.
func TestRedisClockRules(t *testing.T) {
	t.Parallel()
	client, prefix := dial(t)
	store := NewRedis(client, RedisOptions{Prefix: prefix, Timeout: patience})
	status := make([]Status, 1)
	before, err := client.Time(context.Background()).Result()
	if err != nil {
		t.Fatal(err)
	}
	out, err := store.Take(context.Background(), call("clock", limit(quotad.FixedWindow, 1, long), 1), status)
	if err != nil {
		t.Fatal(err)
	}
	after, _ := client.Time(context.Background()).Result()
	if out.Now.Before(before.Truncate(time.Millisecond)) || out.Now.After(after) {
		t.Errorf("decided at %v, Redis's clock ran from %v to %v", out.Now, before, after)
	}
}

// TestAScriptThatTheServerForgot is loaded again by the call that misses it, and
// that call is counted once.
func TestAScriptThatTheServerForgot(t *testing.T) {
	t.Parallel()
	own := newOwnRedis(t)
	store := NewRedis(own.client, RedisOptions{Timeout: patience})
	l := limit(quotad.FixedWindow, 100, long)
	for n := range int64(5) {
		if err := own.client.ScriptFlush(context.Background()).Err(); err != nil {
			t.Fatal(err)
		}
		expect(t, store, "api", l, 1, true, 99-n)
	}
}

// TestNamesOfCounters: no two lists of parts name one counter, and no name can
// leave its hash tag.
func TestNamesOfCounters(t *testing.T) {
	seen := map[Counter][]string{}
	odd := []string{"a", "b", "a:b", "b:c", "c", "a|b", "a/b", "__1", "%3A", "{", "}", "{a}", " ", "\n", "", "a\x00b"}
	for _, x := range odd {
		for _, y := range odd {
			for _, parts := range [][]string{{x, y}, {x + y}, {x, y, ""}} {
				c := CounterOf(parts...)
				if other, ok := seen[c]; ok && fmt.Sprintf("%q", other) != fmt.Sprintf("%q", parts) {
					t.Errorf("%q and %q name one counter", other, parts)
				}
				seen[c] = parts
				if k := key("q:", ShardOf(x), c); len(k) != 28 || strings.Count(k, "{") != 1 || strings.Count(k, "}") != 1 {
					t.Errorf("key %q", k)
				}
			}
		}
	}
}

func logInMemory(m *Memory, c Counter) []entryOfLog { return m.table(&c).get(&c).log }
