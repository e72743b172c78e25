package quota

import (
	"context"
	"fmt"
	"hash/crc32"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/database/databasetest"
	"github.com/quotad/quotad/internal/ratelimit"
	"github.com/quotad/quotad/internal/testenv"
	"github.com/quotad/quotad/internal/testenv/accesslog"
)

// replayed are the algorithms of the answers, as tiers name them.
var replayed = map[string]quotad.Algorithm{
	"fixed_window":    quotad.FixedWindow,
	"sliding_counter": quotad.SlidingWindowCounter,
	"sliding_log":     quotad.SlidingWindowLog,
	"token_bucket":    quotad.TokenBucket,
}

// longLog is the number of requests above which only the first order of a log is
// replayed over Redis, call by call as it is.
const longLog = 20_000

// TestRealLogs replays access logs call by call, each client with a key of its own
// and each call at the time of its line, over memory and over Redis, and wants the
// answers that were computed elsewhere, client by client.
func TestRealLogs(t *testing.T) {
	for _, log := range accesslog.Logs(t) {
		t.Run(log.Name, func(t *testing.T) {
			t.Parallel()
			replay(t, log)
		})
	}
}

func replay(t *testing.T, log accesslog.Log) {
	db := databasetest.SQLite(t)
	operators := newNode(t, db, testenv.NewClock(), nil)
	operators.mustTier(quotad.TierSpec{Name: "start", RateLimit: quotad.Units(1)})
	operators.mustTenant("site", "start")
	secrets := map[string]string{}
	for _, r := range log.Requests {
		if secrets[r.Client] == "" {
			secrets[r.Client] = operators.mustKey("site").Secret
		}
	}
	for mode := range log.Answers {
		limit, burst := accesslog.Limits(mode)
		requests := log.Ordered(mode)
		for name, want := range log.Answers[mode] {
			tier := fmt.Sprint(name, ".", limit)
			if _, err := operators.store.Tier(context.Background(), tier); err != nil {
				spec := quotad.TierSpec{Name: tier, RateLimit: &limit, RateWindow: 60, Algorithm: replayed[name]}
				if name == "token_bucket" {
					spec.RateLimit, spec.Burst = quotad.Units(60), &burst
				}
				operators.mustTier(spec)
			}
			operators.editTenant("site", func(s *quotad.TenantSpec) { s.Tier = tier })

			places := map[string]func(now func() time.Time) Limiter{"memory": replayMemory()}
			if mode == "sorted" || len(requests) < longLog {
				places["redis"] = replayRedis(t)
			}
			for place, limiter := range places {
				verdicts := ask(t, requests, secrets, func(clock *testenv.Clock) *node {
					return newNode(t, db, clock, limiter(clock.Now), func(o *Options) { o.CacheTTL = 100 * 365 * 24 * time.Hour })
				})
				at := -1
				got := accesslog.Judge(requests, func(accesslog.Request) bool { at++; return verdicts[at] })
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("%s, %s over %s (-answers +got):\n%s", mode, name, place, diff)
				}
			}
		}
	}
}

// ask asks for all requests, each at its time. A client's counters are its own, so the
// clients are dealt out to a few nodes that run side by side, each with a clock of its
// own: one alone would mostly wait for Redis.
func ask(t *testing.T, requests []accesslog.Request, secrets map[string]string, newNode func(*testenv.Clock) *node) []bool {
	const nodes = 6
	verdicts := make([]bool, len(requests))
	var all sync.WaitGroup
	for n := range nodes {
		clock := testenv.NewClock()
		node := newNode(clock)
		all.Go(func() {
			for i, r := range requests {
				if crc32.ChecksumIEEE([]byte(r.Client))%nodes != uint32(n) {
					continue
				}
				clock.Set(r.Time)
				d, err := node.Check(context.Background(), Call{APIKey: secrets[r.Client], Method: "GET", Path: "/", Door: "check"})
				if err != nil {
					t.Errorf("line %d: %v", r.Line, err)
					return
				}
				verdicts[i] = d.Allowed
			}
		})
	}
	all.Wait()
	return verdicts
}

// replayMemory is one memory each for the clients of a node.
func replayMemory() func(now func() time.Time) Limiter {
	return func(now func() time.Time) Limiter {
		return ratelimit.NewMemory(ratelimit.MemoryOptions{Now: now})
	}
}

// replayRedis is a real Redis whose script is told the time of the log.
func replayRedis(t *testing.T) func(now func() time.Time) Limiter {
	t.Helper()
	url, prefix := testenv.Redis(t)
	client, err := ratelimit.Connect(url, ratelimit.ConnectOptions{Timeout: testenv.Patience})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return func(now func() time.Time) Limiter {
		return always{ratelimit.NewRedis(client, ratelimit.RedisOptions{Prefix: prefix, Now: now, Timeout: testenv.Patience})}
	}
}

// always is a store that no policy answers for.
type always struct{ ratelimit.Store }

func (a always) TakeOr(ctx context.Context, call ratelimit.Call, status []ratelimit.Status, _ quotad.FailurePolicy) (ratelimit.Outcome, error) {
	return a.Take(ctx, call, status)
}

func (a always) TakeAllOr(ctx context.Context, list []*ratelimit.Question) { a.TakeAll(ctx, list) }
