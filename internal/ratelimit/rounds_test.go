package ratelimit

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quotad/quotad"
)

// yearly is a limit in whose window, and in whose refill, a test's time is nothing.
func yearly(a quotad.Algorithm, units int64) Limit {
	l := limit(a, units, long)
	if a == quotad.CalendarQuota {
		l.Window = 0
		l.From = time.Now().Add(-7 * 24 * time.Hour).UnixMilli()
		l.Until = time.Now().Add(7 * 24 * time.Hour).UnixMilli()
	}
	return l
}

var everyAlgorithmAndQuotas = append([]quotad.Algorithm{quotad.CalendarQuota}, everyAlgorithm...)

// usedOf is what a store says was charged to a counter with a yearly limit.
func usedOf(t testing.TB, store *Redis, s Shard, c Charge) int64 {
	t.Helper()
	b := &batch{}
	b.add(Call{Shard: s, Charges: []Charge{c}})
	if store.send(context.Background(), b); b.err != nil {
		t.Fatal(b.err)
	}
	if _, err := b.outcome(0, make([]Status, 1)); err != nil {
		t.Fatal(err)
	}
	states := b.states(0)
	switch l := c.Limit; l.Algorithm {
	case quotad.TokenBucket, quotad.LeakyBucket:
		return ceilDiv(l.Size()*l.windowMS()-states[0].a, l.windowMS())
	case quotad.SlidingWindowCounter:
		return states[0].b
	default:
		return states[0].a
	}
}

// round is counters that some callers share, and what became of their calls.
type round struct {
	charges  []Charge
	admitted [4]atomic.Int64 // units by charge
	refused  [3][4]atomic.Bool
}

// note adds up what became of a call.
func (r *round) note(node int, cost int64, out Outcome, status []Status) {
	if !out.Allowed {
		r.refused[node][cost].Store(true)
		return
	}
	for k := range r.charges {
		if !r.charges[k].Shadow || status[k].Allowed {
			r.admitted[k].Add(cost)
		}
	}
}

// seenBy are the charges as a node knows them: one has heard of an edit that the others have not.
func (r *round) seenBy(node int) []Charge {
	charges := append([]Charge(nil), r.charges...)
	if l := &charges[0].Limit; node == 2 && l.Algorithm != quotad.TokenBucket && l.Algorithm != quotad.LeakyBucket {
		l.Units++
	}
	return charges
}

// TestNoUnitIsLostOrInvented: two hundred callers on each of three nodes call through ten
// thousand rounds, a dozen of them at each, with mixed costs, algorithms, shadows, and a
// limit that one node knows another value of. In the end every counter holds what was
// admitted, none more than its limit, and no call was refused that there was room for.
func TestNoUnitIsLostOrInvented(t *testing.T) {
	t.Parallel()
	const rounds, calls, callers, nodes = 10_000, 12, 200, 3
	var stores [nodes]*Redis
	first, prefix := dial(t)
	for i := range stores {
		client := first
		if i > 0 {
			client, _ = dial(t)
		}
		stores[i] = NewRedis(client, RedisOptions{Prefix: prefix, Timeout: patience})
	}
	tenant := func(i int) Charge { // of every so many-th round
		return Charge{Counter: CounterOf("tenant", fmt.Sprint(i%Shards)), Limit: yearly(quotad.FixedWindow, 300)}
	}
	all := make([]*round, rounds)
	for i := range all {
		name := fmt.Sprint(i)
		kinds := everyAlgorithmAndQuotas
		key := Charge{Counter: CounterOf("key", name), Limit: yearly(kinds[i%len(kinds)], 7)}
		subject := Charge{Counter: CounterOf("subject", name), Limit: yearly(kinds[i/6%len(kinds)], 9)}
		shadow := Charge{Counter: CounterOf("shadow", name), Limit: yearly(kinds[i/36%len(kinds)], 4), Shadow: true}
		all[i] = &round{charges: [][]Charge{{key}, {key, shadow}, {key, subject}, {key, subject, shadow, tenant(i)}}[i/7%4]}
	}
	var ticket atomic.Int64
	inParallel(callers*nodes, func(i int) bool {
		node, status := i%nodes, make([]Status, 4)
		for n := ticket.Add(1) - 1; n < rounds*calls; n = ticket.Add(1) - 1 {
			r := all[n/calls]
			c := Call{Shard: Shard(n / calls), Cost: n * 7 % 4, Charges: r.seenBy(node)}
			out, err := stores[node].Take(context.Background(), c, status[:len(c.Charges)])
			if err != nil {
				t.Errorf("%+v: %v", c, err)
				return false
			}
			r.note(node, c.Cost, out, status)
		}
		return true
	})
	var sum [Shards]int64 // of the tenants
	for i, r := range all {
		for k := range r.charges {
			if r.charges[k].Counter == tenant(i).Counter {
				sum[i%Shards] += r.admitted[k].Load()
			}
		}
	}
	for i, r := range all {
		inAll := func(k int) int64 { // units that a charge of the round was charged in all rounds
			if r.charges[k].Counter == tenant(i).Counter {
				return sum[i%Shards]
			}
			return r.admitted[k].Load()
		}
		for k, c := range r.charges {
			used := usedOf(t, stores[0], Shard(i), c)
			if n := inAll(k); used != n || used > c.Limit.Units+1 {
				t.Errorf("round %d, %s of %d: %d units used, %d admitted", i, c.Limit.Algorithm, c.Limit.Units, used, n)
			}
		}
		for node := range nodes {
			for cost := range int64(4) {
				full := false
				for k, c := range r.seenBy(node) {
					full = full || !c.Shadow && inAll(k)+cost > c.Limit.Units
				}
				if r.refused[node][cost].Load() && !full {
					t.Errorf("round %d: node %d refused %d units that there is room for", i, node, cost)
				}
			}
		}
	}
}
