package ratelimit

import (
	"context"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/quotad/quotad/internal/testenv"
)

// answer is what a caller was told; lost where it was told nothing.
type answer struct {
	lost, allowed bool
	remaining     int64
}

// counterOf is a counter of so many units as seen by callers one after the other: its
// state is the units used. A call whose answer was lost was charged or was not. A
// refusal may come from the node's memory, which knows of no charge that another node
// has made since: it was right to refuse, but may speak of more units than are left.
func counterOf(units int64) porcupine.Model {
	model := porcupine.NondeterministicModel{
		Init: func() []any { return []any{int64(0)} },
		Step: func(state, input, output any) []any {
			used, cost, got := state.(int64), input.(int64), output.(answer)
			fits := used+cost <= units
			switch {
			case got.lost && fits && cost > 0:
				return []any{used, used + cost}
			case got.lost:
				return []any{used}
			case got.allowed && fits && got.remaining == units-used-cost:
				return []any{used + cost}
			case !got.allowed && !fits && got.remaining >= units-used:
				return []any{used}
			default:
				return nil
			}
		},
	}
	return model.ToModel()
}

// TestHistoryIsLinearizable: what callers on three nodes saw of one counter, one node
// losing answers on the way, can be put in one order in which every call took effect at
// one moment between its beginning and its end, once or, where the answer was lost, not
// at all.
func TestHistoryIsLinearizable(t *testing.T) {
	for _, a := range everyAlgorithmAndQuotas {
		t.Run(string(a), func(t *testing.T) {
			t.Parallel()
			url, prefix := testenv.Redis(t)
			w := newWire(t, hostPort(t, url))
			w.poison("stall", "downstream", `{"every":12,"ms":60000}`)
			// The last takes the place of the third once enough answers were lost.
			addresses := []string{url, url, "redis://" + w.address(), url}
			budgets := []time.Duration{patience, patience, hurried, patience}
			var stores []*Redis
			for i, address := range addresses {
				client := connect(t, address, ConnectOptions{Timeout: patience})
				stores = append(stores, NewRedis(client, RedisOptions{Prefix: prefix, Timeout: budgets[i]}))
			}
			const callers, calls, units = 15, 50, 1000
			l := yearly(a, units)
			start := time.Now()
			var mu sync.Mutex
			var history []porcupine.Operation
			const enough = 5 // more would take long to find an order for
			var lost atomic.Int64
			inParallel(callers, func(i int) bool {
				r := rand.New(rand.NewPCG(uint64(i), 5))
				for range calls {
					node := i % 3
					if node == 2 && lost.Load() >= enough {
						node = 3
					}
					ctx, cancel := context.WithTimeout(context.Background(), budgets[node])
					c := call("history", l, r.Int64N(5))
					status := make([]Status, 1)
					began := time.Since(start)
					out, err := stores[node].Take(ctx, c, status)
					ended := time.Since(start)
					cancel()
					op := porcupine.Operation{ClientId: i, Input: c.Cost, Call: int64(began), Return: int64(ended),
						Output: answer{allowed: out.Allowed, remaining: status[0].Remaining}}
					if err != nil {
						op.Output, op.Return = answer{lost: true}, math.MaxInt64
					}
					if err != nil && lost.Add(1) == enough {
						w.mend()
					}
					mu.Lock()
					history = append(history, op)
					mu.Unlock()
				}
				return true
			})
			if lost.Load() == 0 {
				t.Error("no answer was lost")
			}
			if result := porcupine.CheckOperationsTimeout(counterOf(units), history, 2*patience); result != porcupine.Ok {
				t.Errorf("the history of %d calls, %d answers lost, is %s", len(history), lost.Load(), result)
			}
		})
	}
}
