package ratelimit

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/quotad/quotad"
)

// BenchmarkScript is what Redis spends on a decision in full lists, of keys that it
// knows already.
func BenchmarkScript(b *testing.B) {
	fixed, bucket := limit(quotad.FixedWindow, 1_000_000_000, time.Hour), limit(quotad.TokenBucket, 10_000, time.Hour)
	for _, load := range []struct {
		name string
		next func(*rand.Rand) Call
	}{
		{"sliding window counter", uniform(20_000, wide)},
		{"fixed window", uniform(20_000, fixed)},
		{"token bucket", uniform(20_000, bucket)},
		{"sliding window log", uniform(20_000, limit(quotad.SlidingWindowLog, 1000, time.Minute))},
		{"three limits", uniform(20_000, wide, fixed, bucket)},
		{"one key", uniform(1, wide)},
	} {
		b.Run(load.name, func(b *testing.B) {
			store, client := benchRedis(b)
			r, last := rand.New(rand.NewPCG(1, 2)), &batch{}
			send := func() {
				if store.send(context.Background(), last); last.err != nil {
					b.Fatal(last.err)
				}
				last = &batch{}
			}
			for range 60_000 { // so that nearly all keys are there
				if last.add(load.next(r)); !last.hasRoom(1, 1) {
					send()
				}
			}
			before, mine, calls := redisCPU(b, client), cpu(), 0
			b.ResetTimer()
			for range b.N {
				if last.add(load.next(r)); !last.hasRoom(1, 1) {
					calls += len(last.calls)
					send()
				}
			}
			b.StopTimer()
			if calls > 0 {
				b.ReportMetric(float64((redisCPU(b, client)-before).Nanoseconds())/1000/float64(calls), "redis-µs/decision")
				b.ReportMetric(float64((cpu()-mine).Nanoseconds())/1000/float64(calls), "client-µs/decision")
			}
		})
	}
}
