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

// BenchmarkFaults breaks Redis, or the way to it, under 500 calls a second with policy
// local, and prints what the callers see: while all is well, from the fault until the
// breaker opened, and then. Once is enough: -benchtime 1x.
func BenchmarkFaults(b *testing.B) {
	for _, fault := range wireFaults {
		b.Run(fault.name, func(b *testing.B) {
			server := testenv.OwnRedis(b)
			w := newWire(b, hostPort(b, server.URL()))
			for range b.N {
				faultRun(b, "redis://"+w.address(), func() { fault.break_(w, server) }, func() { fault.mend(w, server) })
			}
		})
	}
	b.Run("black hole, from the start", func(b *testing.B) {
		for range b.N {
			faultRun(b, "redis://"+deafListener(b, false), func() {}, nil)
		}
	})
}

// faultRun calls for a second, breaks, calls for four seconds, mends, and calls until
// the store has answered for another second.
func faultRun(b *testing.B, address string, break_, mend func()) {
	client := connect(b, address, ConnectOptions{})
	f, _ := running(b, NewRedis(client, RedisOptions{}), FailoverOptions{})
	pool := func() float64 { return float64(client.PoolStats().TotalConns) }
	stop := steady(f, 500, func(r *rand.Rand) Call { return loadCall(r.IntN(50), endless, 1) }, quotad.FailLocal)
	if mend != nil {
		time.Sleep(time.Second)
	}
	goroutinesBefore, poolBefore := goroutines(), pool()
	broken := time.Now()
	break_()
	time.Sleep(4 * time.Second)
	goroutinesDuring, poolDuring := goroutines(), pool()
	mended := time.Now()
	if mend != nil {
		mend()
		mended = time.Now()
		eventually(b, "the store answers again", func() bool { return f.State() == "closed" })
		time.Sleep(time.Second)
	}
	all := stop()

	var well, before, answered, after []seen
	var byRedis, byPolicy, errors float64
	back := mended
	for _, s := range all {
		switch {
		case s.start.Before(broken) || s.start.After(mended):
			well = append(well, s)
		case s.open:
			after = append(after, s)
		default:
			before = append(before, s)
			if !s.degraded {
				answered = append(answered, s)
			}
		}
		switch {
		case s.err != nil || !s.allowed:
			errors++
		case s.degraded:
			byPolicy++
			if s.start.After(mended) {
				back = s.start
			}
		default:
			byRedis++
		}
	}
	b.ReportMetric(0, "ns/op")
	latencies := func(which string, calls []seen) {
		b.ReportMetric(float64(len(calls)), which+"-calls")
		b.ReportMetric(quantile(calls, .5), which+"-p50-ms")
		b.ReportMetric(quantile(calls, .99), which+"-p99-ms")
	}
	latencies("well", well)
	latencies("closed", before)
	latencies("closed-answered", answered)
	latencies("open", after)
	b.ReportMetric(byRedis, "by-redis")
	b.ReportMetric(byPolicy, "by-policy")
	b.ReportMetric(errors, "errors")
	b.ReportMetric(back.Sub(mended).Seconds(), "back-s")
	for which, n := range map[string]float64{
		"well-goroutines": float64(goroutinesBefore), "broken-goroutines": float64(goroutinesDuring), "after-goroutines": float64(goroutines()),
		"well-conns": poolBefore, "broken-conns": poolDuring, "after-conns": pool(),
	} {
		b.ReportMetric(n, which)
	}
}
