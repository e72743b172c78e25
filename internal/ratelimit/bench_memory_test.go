package ratelimit

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quotad/quotad"
	"github.com/redis/go-redis/v9"
)

// usedMemory is what Redis has allocated, in bytes.
func usedMemory(b *testing.B, client redis.UniversalClient) float64 {
	b.Helper()
	info, err := client.Info(context.Background(), "memory").Result()
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(info) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), "used_memory:"); ok {
			n, _ := strconv.ParseFloat(v, 64)
			return n
		}
	}
	b.Fatal("no used_memory")
	return 0
}

// keyMemory is what Redis says that its keys take on average, in bytes, without the
// entries of its dictionaries.
func keyMemory(b *testing.B, client redis.UniversalClient) float64 {
	b.Helper()
	ctx := context.Background()
	keys, err := client.Keys(ctx, "*").Result()
	if err != nil || len(keys) == 0 {
		b.Fatal(len(keys), err)
	}
	sum := int64(0)
	for _, k := range keys {
		n, _ := client.MemoryUsage(ctx, k).Result() // 0 for one that has just expired
		sum += n
	}
	return float64(sum) / float64(len(keys))
}

// BenchmarkRedisMemory reports the bytes that an active counter takes in a Redis of
// its own, all that Redis keeps for it included, beside a hash of three fields.
func BenchmarkRedisMemory(b *testing.B) {
	const keys = 200_000
	for range b.N {
		for _, a := range everyAlgorithm {
			own := newOwnRedis(b, "--appendonly", "no")
			l := limit(a, 1000, time.Hour)
			before := usedMemory(b, own.client)
			fill(b, keys, func(i int) error {
				_, err := own.store.Take(context.Background(), call(fmt.Sprint(i), l, 1), make([]Status, 1))
				return err
			})
			b.ReportMetric((usedMemory(b, own.client)-before)/keys, string(a)+"-B/counter")
		}
		own := newOwnRedis(b, "--appendonly", "no")
		before := usedMemory(b, own.client)
		fill(b, keys, func(i int) error {
			name := fmt.Sprintf("ratelimit:%016x:default.", i)
			pipe := own.client.Pipeline()
			pipe.HSet(context.Background(), name, "i", 29_000_000, "p", 0, "c", 1)
			pipe.PExpire(context.Background(), name, 2*time.Hour)
			_, err := pipe.Exec(context.Background())
			return err
		})
		b.ReportMetric((usedMemory(b, own.client)-before)/keys, "hash-of-3-B/counter")
	}
}

func fill(b *testing.B, n int, one func(i int) error) {
	b.Helper()
	var wg sync.WaitGroup
	for w := range 64 {
		wg.Go(func() {
			for i := w; i < n; i += 64 {
				if err := one(i); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// hashBucket is a token bucket as it is commonly written for Redis: a hash of two
// fields, read and written whole by each call, with the time of the client.
const hashBucket = `
local state = redis.call('HMGET', KEYS[1], 'tokens', 'ts')
local capacity, rate, now, cost = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local tokens = math.min(capacity, (tonumber(state[1]) or capacity) + (now - (tonumber(state[2]) or now)) * rate)
local allowed = tokens >= cost
if allowed then tokens = tokens - cost end
redis.call('HMSET', KEYS[1], 'tokens', tokens, 'ts', now)
redis.call('EXPIRE', KEYS[1], math.ceil(capacity / rate) * 2)
return allowed and 1 or 0`

// BenchmarkManyUsers is 100,000 calls of 1,000 users, each with a bucket of 10 that
// refills at 5 a second, from 50 callers: the common script, and this store.
func BenchmarkManyUsers(b *testing.B) {
	const calls, users, callers = 100_000, 1000, 50
	bucket := Limit{Algorithm: quotad.TokenBucket, Units: 5, Window: time.Second, Burst: 10}
	questions := make([]Call, users)
	for i := range questions {
		questions[i] = call(fmt.Sprint("user", i), bucket, 1)
	}
	script := redis.NewScript(hashBucket)
	for _, way := range []struct {
		name string
		take func(own *ownRedis, user int, status []Status) error
	}{
		{"script", func(own *ownRedis, user int, _ []Status) error {
			now := float64(time.Now().UnixNano()) / 1e9
			return script.Run(context.Background(), own.client, []string{fmt.Sprintf("ratelimit:user:%d", user)}, 10, 5, now, 1).Err()
		}},
		{"take", func(own *ownRedis, user int, status []Status) error {
			_, err := own.store.Take(context.Background(), questions[user], status)
			return err
		}},
	} {
		b.Run(way.name, func(b *testing.B) {
			for range b.N {
				own := newOwnRedis(b, "--appendonly", "no")
				times := make([]time.Duration, calls)
				var wg sync.WaitGroup
				for w := range callers {
					wg.Go(func() {
						r, status := rand.New(rand.NewPCG(uint64(w), 1)), make([]Status, 1)
						for i := w; i < calls; i += callers {
							begun := time.Now()
							if err := way.take(own, r.IntN(users), status); err != nil {
								b.Error(err)
								return
							}
							times[i] = time.Since(begun)
						}
					})
				}
				wg.Wait()
				report(b, times)
				b.ReportMetric(keyMemory(b, own.client), "B/user")
			}
		})
	}
}
