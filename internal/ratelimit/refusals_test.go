package ratelimit

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/quotad/quotad"
	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"
)

// TestAHammeringCallerCostsNoRoundTrip: the first refusal comes from Redis, the
// rest from memory, each with the wait that is left.
func TestAHammeringCallerCostsNoRoundTrip(t *testing.T) {
	t.Parallel()
	client, prefix := dial(t)
	store := NewRedis(client, RedisOptions{Prefix: prefix, Timeout: patience})
	for _, a := range everyAlgorithm {
		l := limit(a, 3, long)
		c := call(string(a), l, 1)
		for range 3 {
			if ok, _ := take(t, store, c); !ok {
				t.Fatalf("%s: refused within the limit", a)
			}
		}
		begun := time.Now()
		_, first := take(t, store, c)
		key := key(prefix, 0, c.Charges[0].Counter)
		if err := client.Del(context.Background(), key).Err(); err != nil {
			t.Fatal(err)
		}
		// The counter is gone from Redis: only memory still refuses.
		for range 100 {
			ok, status := take(t, store, c)
			if time.Since(begun) >= refusalHolds { // on a busy machine: from here on it is right to ask again
				break
			}
			if ok {
				t.Fatalf("%s: asked Redis again", a)
			}
			if status[0].Retry > first[0].Retry || status[0].Retry < first[0].Retry-refusalHolds || status[0].Remaining != 0 {
				t.Fatalf("%s: %+v after %+v", a, status, first)
			}
		}
		// A peek, an edited limit and a smaller cost are other questions.
		if ok, _ := take(t, store, call(string(a), l, 0)); !ok {
			t.Errorf("%s: a peek was refused from memory", a)
		}
		lowered := l
		lowered.Units = 2
		take(t, store, call("over", l, 3))
		if ok, _ := take(t, store, call("over", lowered, 1)); ok {
			t.Errorf("%s: admitted beyond the lowered limit", a)
		}
		client.Del(context.Background(), strings.Replace(key, c.Charges[0].Counter.String(), CounterOf("over").String(), 1))
		if ok, _ := take(t, store, call("over", lowered, 0)); !ok {
			t.Errorf("%s: a peek at a lowered limit was refused from memory", a)
		}
		edited := l
		edited.Units = 4
		if ok, _ := take(t, store, call(string(a), edited, 1)); !ok {
			t.Errorf("%s: an edited limit was refused from memory", a)
		}
	}
}

// TestACallOfMixedCostsIsNotRefusedFromMemory: what is known of calls that cost the same
// on all counters says nothing of it, nor what came of it of them.
func TestACallOfMixedCostsIsNotRefusedFromMemory(t *testing.T) {
	t.Parallel()
	client, prefix := dial(t)
	store := NewRedis(client, RedisOptions{Prefix: prefix, Timeout: patience})
	both := Call{Cost: 2, Charges: []Charge{
		{Counter: CounterOf("two"), Limit: limit(quotad.FixedWindow, 2, long)},
		{Counter: CounterOf("ten"), Limit: limit(quotad.FixedWindow, 10, long)},
	}}
	take(t, store, Call{Cost: 1, Charges: both.Charges})
	if ok, _ := take(t, store, both); ok {
		t.Fatal("admitted 2 units where 1 is left")
	}
	mixed := both
	mixed.Costs = []int64{0, 2}
	for range 2 {
		if ok, _ := take(t, store, mixed); !ok {
			t.Error("refused 0 and 2 units where 1 and 9 are left")
		}
	}
	mixed.Costs = []int64{2, 0}
	if ok, status := take(t, store, mixed); ok || status[1].Remaining != 5 {
		t.Errorf("allowed %v, %+v; want a refusal and 5 left of ten", ok, status)
	}
	if ok, _ := take(t, store, Call{Cost: 1, Charges: both.Charges}); !ok {
		t.Error("refused 1 unit where 1 is left")
	}
}

// TestWhatIsRecalledIsWhatTheStoreWouldSay compares answers from memory with those
// of a store to which nothing else was charged, at the same time.
func TestWhatIsRecalledIsWhatTheStoreWouldSay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		clock := newClock(epoch)
		truth := NewMemory(MemoryOptions{Now: clock.Now})
		var memory refusals
		start := time.Now()
		local := func() time.Time { return start.Add(time.Duration(clock.ms.Load()-epoch) * time.Millisecond) }
		c := Call{}
		for i := range rapid.IntRange(1, 3).Draw(t, "limits") {
			c.Charges = append(c.Charges, Charge{
				Counter: CounterOf(string(rune('a' + i))), Limit: drawLimit(t), Shadow: rapid.IntRange(0, 4).Draw(t, "shadow") == 0,
			})
		}
		for range 30 {
			clock.ms.Add(rapid.Int64Range(0, 900).Draw(t, "tick"))
			c.Cost = rapid.Int64Range(0, 5).Draw(t, "cost")
			want, got := make([]Status, len(c.Charges)), make([]Status, len(c.Charges))
			out, known := memory.recall(c, got, local())
			wantOut, err := truth.Take(context.Background(), c, want)
			if err != nil {
				continue
			}
			if known {
				if out != wantOut || !equal(got, want) {
					t.Fatalf("recalled %+v %+v\nstore    %+v %+v", out, got, wantOut, want)
				}
				continue
			}
			if wantOut.Allowed {
				memory.forget(c)
			} else {
				states := make([]state, len(c.Charges))
				for i, charge := range c.Charges {
					states[i] = charge.Limit.roll(truth.table(&charge.Counter).get(&charge.Counter), clock.ms.Load())
					if l := charge.Limit; l.Algorithm == quotad.SlidingWindowLog && !want[i].Allowed {
						states[i].b = fitsAt(states[i], c.Cost, l.Units, l.windowMS())
					}
				}
				memory.remember(c, want, states, clock.ms.Load()-1, local()) // it allows for a millisecond
			}
		}
	})
}

func equal(a, b []Status) bool {
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// TestAHammeringCallerBehindAShadow: what refuses is remembered, not a shadow that would
// refuse for longer.
func TestAHammeringCallerBehindAShadow(t *testing.T) {
	t.Parallel()
	client, prefix := dial(t)
	store := NewRedis(client, RedisOptions{Prefix: prefix, Timeout: patience})
	for try := 0; ; try++ {
		c := Call{Cost: 1, Charges: []Charge{
			{Counter: CounterOf("shadow", fmt.Sprint(try)), Limit: yearly(quotad.TokenBucket, 1), Shadow: true},
			{Counter: CounterOf("enforced", fmt.Sprint(try)), Limit: limit(quotad.FixedWindow, 1, long)},
		}}
		if ok, _ := take(t, store, c); !ok {
			t.Fatal("refused within the limit")
		}
		begun := time.Now()
		if ok, _ := take(t, store, c); ok {
			t.Fatal("admitted beyond the limit")
		}
		for _, charge := range c.Charges {
			client.Del(t.Context(), key(prefix, 0, charge.Counter))
		}
		ok, _ := take(t, store, c)
		if time.Since(begun) >= refusalOfManyHolds { // on a busy machine: it was right to ask again
			continue
		}
		if ok {
			t.Error("asked Redis again")
		}
		return
	}
}

// lateReplies are servers whose replies take a while on the way back.
type lateReplies struct {
	nodes
	by time.Duration
}

func (n lateReplies) process(ctx context.Context, key string, make func() *redis.IntSliceCmd) *redis.IntSliceCmd {
	cmd := n.nodes.process(ctx, key, make)
	time.Sleep(n.by)
	return cmd
}

// TestARefusalEndsWhenItSaid: however late the refusal came, the call is admitted as soon
// as Redis's clock has come to the time that it named.
func TestARefusalEndsWhenItSaid(t *testing.T) {
	t.Parallel()
	client, prefix := dial(t)
	store := NewRedis(client, RedisOptions{Prefix: prefix, Timeout: patience})
	store.nodes = lateReplies{store.nodes, 300 * time.Millisecond}
	c := call("second", limit(quotad.TokenBucket, 1, time.Second), 1)
	status := make([]Status, 1)
	var out Outcome
	eventually(t, "a call is refused", func() bool { // the second, unless the machine is so busy that the bucket fills meanwhile
		var err error
		if out, err = store.Take(t.Context(), c, status); err != nil {
			t.Fatal(err)
		}
		return !out.Allowed
	})
	ends := out.Now.Add(status[0].Retry)
	eventually(t, "Redis's clock is there", func() bool { return !client.Time(t.Context()).Val().Before(ends) })
	if ok, status := take(t, store, c); !ok {
		t.Errorf("refused after the time that was named: %+v", status)
	}
}

// TestARefusalEndsWithItsPeriod: of the next one it says nothing.
func TestARefusalEndsWithItsPeriod(t *testing.T) {
	var r refusals
	now := time.Now()
	c := call("quota", Limit{Algorithm: quotad.CalendarQuota, Units: 1, From: epoch, Until: epoch + 1000}, 1)
	r.remember(c, []Status{{Retry: time.Second}}, []state{{a: 1, present: true}}, epoch, now)
	if _, ok := r.recall(c, make([]Status, 1), now.Add(998*time.Millisecond)); !ok {
		t.Error("forgotten within the period")
	}
	if _, ok := r.recall(c, make([]Status, 1), now.Add(time.Second)); ok {
		t.Error("told in the next period")
	}
}

// TestRefusalsAreBounded: neither in number nor in time do they grow.
func TestRefusalsAreBounded(t *testing.T) {
	var r refusals
	now := time.Now()
	status := []Status{{Retry: time.Hour}}
	states := []state{{epoch: epoch / 86_400_000, a: 1, present: true}}
	l := limit(quotad.FixedWindow, 1, 24*time.Hour)
	for i := range 200_000 {
		c := Call{Cost: 1, Charges: []Charge{{Counter: CounterOf("many", string(rune(i))), Limit: l}}}
		r.remember(c, status, states, epoch, now)
	}
	if n := r.kept.Load(); n > 64*refusalsPerShard {
		t.Errorf("%d kept", n)
	}
	c := call("one", l, 1)
	r.remember(c, status, states, epoch, now)
	if _, ok := r.recall(c, status, now.Add(refusalHolds-time.Millisecond)); !ok {
		t.Error("forgotten too early")
	}
	if _, ok := r.recall(c, status, now.Add(refusalHolds)); ok {
		t.Error("told for too long")
	}
	many := Call{Cost: 1, Charges: append([]Charge{{Counter: CounterOf("two"), Limit: l}}, c.Charges...)}
	r.remember(many, append(status, Status{}), append(states, state{}), epoch, now)
	if _, ok := r.recall(many, make([]Status, 2), now.Add(refusalOfManyHolds-time.Millisecond)); !ok {
		t.Error("forgotten too early where another limit is told of")
	}
	if _, ok := r.recall(many, make([]Status, 2), now.Add(refusalOfManyHolds)); ok {
		t.Error("told for too long where another limit is told of")
	}
}

// TestACallThatBeganBeforeARefusalIsJudgedNoEarlier: a call that is held up between its
// look at the clock and its look at what is known meets a refusal from after that. At
// the time of that refusal one unit is left, 2 s before it none would be.
func TestACallThatBeganBeforeARefusalIsJudgedNoEarlier(t *testing.T) {
	l := limit(quotad.SlidingWindowCounter, 10, 10*time.Second)
	met := state{epoch: 1000, a: 10, b: 5, present: true}
	now, sent := 1000*l.windowMS()+6000, time.Now()
	var known refusals
	known.remember(call("api", l, 2), []Status{l.status(met, now, 2, false)}, []state{met}, now, sent)
	began := sent.Add(-2 * time.Second)
	if out, ok := known.recall(call("api", l, 1), make([]Status, 1), began); ok {
		t.Errorf("a unit is left, and from memory: %+v", out)
	}
	status := make([]Status, 1)
	if out, ok := known.recall(call("api", l, 2), status, began); !ok || out.Now.UnixMilli() < now || status[0].Remaining != 1 {
		t.Errorf("%v %+v %+v, want it refused with a unit left, not before %d", ok, out, status, now)
	}
}

// TestALateRefusalDoesNotReplaceALaterOne: of two that come back in the other order, what
// was said last is told.
func TestALateRefusalDoesNotReplaceALaterOne(t *testing.T) {
	l := limit(quotad.FixedWindow, 10, 10*time.Second)
	c, sent := call("api", l, 5), time.Now()
	var known refusals
	for _, after := range []int64{2, 1} {
		met := state{epoch: 1000, a: 6 + after, present: true}
		now := 1000*l.windowMS() + after
		known.remember(c, []Status{l.status(met, now, 5, false)}, []state{met}, now, sent)
	}
	status := make([]Status, 1)
	if _, ok := known.recall(c, status, sent); !ok || status[0].Remaining != 2 {
		t.Errorf("%v %+v, want it refused with 2 units left", ok, status)
	}
}
