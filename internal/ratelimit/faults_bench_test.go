package ratelimit

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/testenv"
	"github.com/redis/go-redis/v9"
)

// seen is what a caller saw of one call.
type seen struct {
	start    time.Time
	took     time.Duration
	open     bool // the breaker was not closed when it came
	allowed  bool
	degraded bool
	err      error
}

// steady sends calls at a steady rate, whatever becomes of those before, until stop
// is called, which returns what all callers saw in the order in which they came.
func steady(f *Failover, perSecond int, call func(r *rand.Rand) Call, policy quotad.FailurePolicy) (stop func() []seen) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan []seen)
	go func() {
		r := rand.New(rand.NewPCG(1, 2))
		var mu sync.Mutex
		var wg sync.WaitGroup
		var all []seen
		start := time.Now()
		for i := 0; ctx.Err() == nil; i++ {
			time.Sleep(time.Until(start.Add(time.Duration(i) * time.Second / time.Duration(perSecond))))
			c := call(r)
			wg.Go(func() {
				s := seen{start: time.Now(), open: f.State() != "closed"}
				out, err := f.TakeOr(context.Background(), c, make([]Status, len(c.Charges)), policy)
				s.took = time.Since(s.start)
				s.allowed, s.degraded, s.err = out.Allowed, out.Degraded != "", err
				mu.Lock()
				defer mu.Unlock()
				all = append(all, s)
			})
		}
		wg.Wait()
		slices.SortFunc(all, func(a, b seen) int { return a.start.Compare(b.start) })
		done <- all
	}()
	return func() []seen { cancel(); return <-done }
}

// quantile is a latency in milliseconds, 0 of none.
func quantile(all []seen, q float64) float64 {
	if len(all) == 0 {
		return 0
	}
	times := make([]time.Duration, len(all))
	for i, s := range all {
		times[i] = s.took
	}
	slices.Sort(times)
	return float64(times[int(q*float64(len(times)-1))].Microseconds()) / 1000
}

// BenchmarkFaults breaks Redis, or the way to it, under 500 calls a second and prints
// what the callers see. Each runs once, for some seconds: -benchtime 1x.
func BenchmarkFaults(b *testing.B) {
	for _, fault := range wireFaults {
		b.Run(fault.name, func(b *testing.B) {
			server := testenv.OwnRedis(b)
			w := newWire(b, hostPort(b, server.URL()))
			client := connect(b, "redis://"+w.address(), ConnectOptions{})
			f, _ := running(b, NewRedis(client, RedisOptions{}), FailoverOptions{})
			next := func(r *rand.Rand) Call { return loadCall(r.IntN(50), daily, 1) }
			b.ResetTimer()
			for range b.N {
				faultRun(b, f, client, next, func() { fault.break_(w, server) }, func() { fault.mend(w, server) })
			}
		})
	}
}

func faultRun(b *testing.B, f *Failover, client redis.UniversalClient, next func(*rand.Rand) Call, break_, mend func()) {
	const rate = 500
	pool := func() float64 { return float64(client.PoolStats().TotalConns) }
	stop := steady(f, rate, next, quotad.FailLocal)
	time.Sleep(time.Second)
	calm, calmPool := goroutines(), pool()
	broken := time.Now()
	break_()
	time.Sleep(4 * time.Second)
	during, duringPool := goroutines(), pool()
	mend()
	mended := time.Now()
	eventually(b, "the store answers again", func() bool { return f.State() == "closed" })
	time.Sleep(time.Second)
	all := stop()

	var well, before, after []seen
	var inStore, inMemory, failed float64
	back := mended
	for _, s := range all {
		switch {
		case s.start.Before(broken) || s.start.After(mended):
			well = append(well, s)
		case s.open:
			after = append(after, s)
		default:
			before = append(before, s)
		}
		switch {
		case s.err != nil:
			failed++
		case s.degraded:
			inMemory++
			if s.start.After(mended) {
				back = s.start
			}
		default:
			inStore++
		}
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(quantile(well, .5), "well-p50-ms")
	b.ReportMetric(quantile(well, .99), "well-p99-ms")
	b.ReportMetric(float64(len(before)), "closed-calls")
	b.ReportMetric(quantile(before, .5), "closed-p50-ms")
	b.ReportMetric(quantile(before, .9), "closed-p90-ms")
	b.ReportMetric(quantile(before, .99), "closed-p99-ms")
	b.ReportMetric(quantile(before, 1), "closed-max-ms")
	b.ReportMetric(float64(len(after)), "open-calls")
	b.ReportMetric(quantile(after, .5), "open-p50-ms")
	b.ReportMetric(quantile(after, .99), "open-p99-ms")
	b.ReportMetric(inStore, "by-redis")
	b.ReportMetric(inMemory, "by-policy")
	b.ReportMetric(failed, "errors")
	b.ReportMetric(back.Sub(mended).Seconds(), "back-s")
	b.ReportMetric(float64(calm), "goroutines-well")
	b.ReportMetric(float64(during), "goroutines-broken")
	b.ReportMetric(float64(goroutines()), "goroutines-after")
	b.ReportMetric(calmPool, "conns-well")
	b.ReportMetric(duringPool, "conns-broken")
	b.ReportMetric(pool(), "conns-after")
}
