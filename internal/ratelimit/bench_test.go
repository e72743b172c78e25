package ratelimit

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/testenv"
	"github.com/redis/go-redis/v9"
)

// plain is the store as it would be without lists of calls: one EVALSHA of the
// same script per call, which is what the ratios of docs/performance.md are to.
type plain struct{ *Redis }

func (p plain) Take(ctx context.Context, c Call, status []Status) (Outcome, error) {
	b := &batch{}
	b.add(c)
	if p.send(ctx, b); b.err != nil {
		return Outcome{}, b.err
	}
	return b.outcome(0, status)
}

func benchRedis(b *testing.B) (*Redis, redis.UniversalClient) {
	url, prefix := testenv.Redis(b)
	client, err := Connect(url, ConnectOptions{Timeout: 10 * time.Second})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = client.Close() })
	return NewRedis(client, RedisOptions{Prefix: prefix, Timeout: 10 * time.Second}), client
}

// many runs b.N calls from so many callers at once and reports decisions/s, the
// CPU of this process and of Redis per decision, and latencies.
func many(b *testing.B, store Store, client redis.UniversalClient, callers int, next func(r *rand.Rand) Call) {
	b.Helper()
	warm := next(rand.New(rand.NewPCG(1, 1)))
	if _, err := store.Take(context.Background(), warm, make([]Status, len(warm.Charges))); err != nil {
		b.Fatal(err)
	}
	var left atomic.Int64
	left.Store(int64(b.N))
	times := make([][]time.Duration, callers)
	mine, redis := cpu(), redisCPU(b, client)
	b.ResetTimer()
	var wg sync.WaitGroup
	for i := range callers {
		wg.Add(1)
		go func() {
			defer wg.Done()
			r := rand.New(rand.NewPCG(uint64(i), 7))
			status := make([]Status, 8)
			times[i] = make([]time.Duration, 0, 2*b.N/callers)
			for left.Add(-1) >= 0 {
				c := next(r)
				start := time.Now()
				if _, err := store.Take(context.Background(), c, status[:len(c.Charges)]); err != nil {
					b.Error(err)
					return
				}
				times[i] = append(times[i], time.Since(start))
			}
		}()
	}
	wg.Wait()
	b.StopTimer()
	n := float64(b.N)
	b.ReportMetric(n/b.Elapsed().Seconds(), "decisions/s")
	b.ReportMetric(float64((cpu()-mine).Nanoseconds())/n/1000, "client-µs/decision")
	if client != nil {
		b.ReportMetric(float64((redisCPU(b, client)-redis).Nanoseconds())/n/1000, "redis-µs/decision")
	}
	report(b, slices.Concat(times...))
}

// report sorts the times and reports their mean and their distribution.
func report(b *testing.B, times []time.Duration) {
	slices.Sort(times)
	var sum time.Duration
	for _, t := range times {
		sum += t
	}
	µs := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 }
	b.ReportMetric(µs(sum)/float64(len(times)), "mean-µs")
	b.ReportMetric(µs(times[len(times)/2]), "p50-µs")
	b.ReportMetric(µs(times[len(times)*99/100]), "p99-µs")
}

// cpu is the processor time that this process has used.
func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// redisCPU is the processor time that Redis has used.
func redisCPU(b *testing.B, client redis.UniversalClient) time.Duration {
	if client == nil {
		return 0
	}
	info, err := client.Info(context.Background(), "cpu").Result()
	if err != nil {
		b.Fatal(err)
	}
	var total float64
	for line := range strings.Lines(info) {
		if k, v, ok := strings.Cut(strings.TrimSpace(line), ":"); ok && (k == "used_cpu_user" || k == "used_cpu_sys") {
			s, _ := strconv.ParseFloat(v, 64)
			total += s
		}
	}
	return time.Duration(total * float64(time.Second))
}

func uniform(keys int, l ...Limit) func(*rand.Rand) Call {
	calls := make([]Call, keys)
	for i := range calls {
		calls[i] = Call{Cost: 1, Shard: Shard(i)}
		for k, one := range l {
			calls[i].Charges = append(calls[i].Charges, Charge{Counter: CounterOf("bench", fmt.Sprint(i), fmt.Sprint(k)), Limit: one})
		}
	}
	return func(r *rand.Rand) Call { return calls[r.IntN(keys)] }
}

var wide = limit(quotad.SlidingWindowCounter, 100_000_000, time.Minute)

// BenchmarkTakeOverRedis compares lists of calls with one EVALSHA per call.
func BenchmarkTakeOverRedis(b *testing.B) {
	store, client := benchRedis(b)
	mixed := []Limit{wide, limit(quotad.FixedWindow, 1_000_000_000, time.Hour), limit(quotad.TokenBucket, 10_000, time.Hour)}
	for _, load := range []struct {
		name    string
		callers int
		next    func(*rand.Rand) Call
	}{
		{"100k keys, 256 callers", 256, uniform(100_000, wide)},
		{"one key, 256 callers", 256, uniform(1, wide)},
		{"100k keys, 3 limits, 256 callers", 256, uniform(100_000, mixed...)},
		{"100k keys, 1 caller", 1, uniform(100_000, wide)},
	} {
		b.Run(load.name+"/evalsha", func(b *testing.B) { many(b, plain{store}, client, load.callers, load.next) })
		b.Run(load.name+"/take", func(b *testing.B) { many(b, store, client, load.callers, load.next) })
	}
}

// BenchmarkRefused compares a caller that hammers with one that is admitted.
func BenchmarkRefused(b *testing.B) {
	store, client := benchRedis(b)
	b.Run("admitted", func(b *testing.B) { many(b, store, client, 1, uniform(1, wide)) })
	b.Run("refused", func(b *testing.B) {
		many(b, store, client, 1, uniform(1, limit(quotad.FixedWindow, 1, 24*time.Hour)))
	})
}

// BenchmarkTakeInMemory runs as many callers as processors.
func BenchmarkTakeInMemory(b *testing.B) {
	for _, keys := range []int{100_000, 1} {
		b.Run(fmt.Sprint(keys, " keys"), func(b *testing.B) {
			b.ReportAllocs()
			store := NewMemory(MemoryOptions{})
			counters := make([]Counter, keys)
			for i := range counters {
				counters[i] = CounterOf("bench", fmt.Sprint(i))
				_, _ = store.Take(context.Background(), Call{Cost: 1, Charges: []Charge{{Counter: counters[i], Limit: wide}}}, make([]Status, 1))
			}
			b.SetParallelism(1)
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				r := rand.New(rand.NewPCG(rand.Uint64(), 1))
				status, charges := make([]Status, 1), []Charge{{Limit: wide}}
				for pb.Next() {
					charges[0].Counter = counters[r.IntN(keys)]
					_, _ = store.Take(context.Background(), Call{Cost: 1, Charges: charges}, status)
				}
			})
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "decisions/s")
		})
	}
}
