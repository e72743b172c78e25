package ratelimit

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/quotad/quotad"
	"pgregory.net/rapid"
)

// TestSequences holds memory (Go), Redis (Lua) and the model against each other
// over random sequences: calls of mixed algorithms and costs on shared counters,
// edits of the limits in between, a clock that runs, leaps and steps back.
func TestSequences(t *testing.T) {
	client, prefix := dial(t)
	runs := 0
	rapid.Check(t, func(t *rapid.T) {
		runs++
		clock := newClock(epoch + rapid.Int64Range(0, 200_000).Draw(t, "start"))
		memory := NewMemory(MemoryOptions{Now: clock.Now})
		redis := NewRedis(client, RedisOptions{Prefix: fmt.Sprintf("%s%d:", prefix, runs), Now: clock.Now, Timeout: patience})

		type counter struct {
			name  string
			limit Limit
			model *model
		}
		counters := make([]counter, rapid.IntRange(1, 4).Draw(t, "counters"))
		for i := range counters {
			l := drawLimit(t)
			counters[i] = counter{fmt.Sprint("c", i), l, newModel(l)}
		}
		var trace strings.Builder
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			switch rapid.IntRange(0, 9).Draw(t, "step") {
			case 0: // edit the units and the burst of one limit
				c := &counters[rapid.IntRange(0, len(counters)-1).Draw(t, "edited")]
				edited := drawUnits(t, c.limit)
				c.limit = edited
				c.model.edit(edited)
				fmt.Fprintf(&trace, "edit %s to %+v\n", c.name, edited)
				continue
			case 1: // the clock steps back
				clock.ms.Add(-rapid.Int64Range(0, 5_000).Draw(t, "back"))
			case 2: // or leaps
				clock.ms.Add(rapid.Int64Range(0, 300_000).Draw(t, "leap"))
			default:
				clock.ms.Add(rapid.Int64Range(0, 700).Draw(t, "tick"))
			}
			now := clock.ms.Load()
			c := Call{Cost: rapid.OneOf(rapid.Int64Range(0, 4), rapid.Int64Range(0, 30)).Draw(t, "cost")}
			chosen := []counter{}
			want := true
			for _, k := range counters {
				if len(chosen) > 0 && rapid.Bool().Draw(t, "left out") {
					continue
				}
				shadow := rapid.IntRange(0, 4).Draw(t, "shadow") == 0
				chosen = append(chosen, k)
				c.Charges = append(c.Charges, Charge{Counter: CounterOf(k.name), Limit: k.limit, Shadow: shadow})
			}
			drawCosts(t, &c)
			for i, k := range chosen {
				want = want && (c.Charges[i].Shadow || k.model.allows(now, c.cost(i)))
			}
			fmt.Fprintf(&trace, "at %d %+v\n", now, c)

			got, inRedis := make([]Status, len(chosen)), make([]Status, len(chosen))
			out, err := memory.Take(context.Background(), c, got)
			out2, err2 := redis.Take(context.Background(), c, inRedis)
			if fmt.Sprint(err) != fmt.Sprint(err2) || out != out2 {
				t.Fatalf("%smemory %+v %v\nredis  %+v %v", &trace, out, err, out2, err2)
			}
			if err != nil {
				if c.fits() == nil {
					t.Fatalf("%sunexpected error %v", &trace, err)
				}
				continue
			}
			if diff := cmp.Diff(got, inRedis); diff != "" {
				t.Fatalf("%smemory and redis differ (-memory +redis):\n%s", &trace, diff)
			}
			if out.Allowed != want {
				t.Fatalf("%sallowed %v, model says %v", &trace, out.Allowed, want)
			}
			for i, k := range chosen {
				cost := c.cost(i)
				fits := k.model.allows(now, cost)
				if got[i].Allowed != fits {
					t.Fatalf("%slimit %d allowed %v, model says %v", &trace, i, got[i].Allowed, fits)
				}
				if !fits && k.limit.Units > 0 && cost <= k.limit.Size() {
					if w := milliseconds(k.model.wait(now, cost)); got[i].Retry != w {
						t.Fatalf("%slimit %d retry %v, model says %v", &trace, i, got[i].Retry, w)
					}
				} else if got[i].Retry != 0 {
					t.Fatalf("%slimit %d retry %v, want none", &trace, i, got[i].Retry)
				}
				if out.Allowed && fits {
					k.model.charge(now, cost)
				}
				if out.Allowed && fits && cost > 0 && got[i].Delay != k.model.delay() {
					t.Fatalf("%slimit %d delay %v, model says %v", &trace, i, got[i].Delay, k.model.delay())
				}
				if left := k.model.remaining(now); k.limit.Units > 0 && got[i].Remaining != left {
					t.Fatalf("%slimit %d remaining %d, model says %d", &trace, i, got[i].Remaining, left)
				}
				if got[i].Reset < 0 {
					t.Fatalf("%slimit %d resets in the past: %v", &trace, i, got[i].Reset)
				}
			}
		}
	})
}

// TestLoweredLimitsOfLongWindows: a sliding window that had room for a great many units
// counts them in seconds, and goes on to do so when the limit is edited to a few.
func TestLoweredLimitsOfLongWindows(t *testing.T) {
	t.Parallel()
	client, prefix := dial(t)
	for i, window := range []int64{60, 86_400, quotad.MaxWindow} {
		most := quotad.SlidingWindowCounter.MaxUnits(window)
		wide := limit(quotad.SlidingWindowCounter, most, time.Duration(window)*time.Second)
		start := epoch - epoch%(window*1000)
		clock := newClock(start + 500)
		memory := NewMemory(MemoryOptions{Now: clock.Now})
		redis := NewRedis(client, RedisOptions{Prefix: fmt.Sprint(prefix, i), Now: clock.Now, Timeout: patience})
		for _, store := range []Store{memory, redis} {
			if ok, _ := take(t, store, call("edited", wide, most-7)); !ok {
				t.Fatalf("%d s: refused within the limit", window)
			}
		}
		end := start + 2*window*1000
		for _, units := range []int64{30, most / 2000, most / 3, most - 1, most} {
			lowered := wide
			lowered.Units = units
			c := call("edited", lowered, 0)
			fits := end - int64(float64(window*1000)*float64(units)/float64(most)) // about when a peek is let in
			for around := int64(-3000); around <= 3000; around += 100 {
				clock.ms.Store(min(max(fits+around, start+window*1000), end-1))
				got, want := make([]Status, 1), make([]Status, 1)
				out, err := redis.Take(t.Context(), c, got)
				wantOut, _ := memory.Take(t.Context(), c, want)
				if err != nil || out != wantOut || got[0] != want[0] {
					t.Fatalf("%d units in %d s, %d ms before the end: redis %+v %+v %v, memory %+v %+v",
						units, window, end-clock.ms.Load(), out, got, err, wantOut, want)
				}
			}
		}
	}
}

// drawCosts has the charges of some calls cost each something else.
func drawCosts(t *rapid.T, c *Call) {
	if len(c.Charges) == 0 || rapid.IntRange(0, 3).Draw(t, "mixed") > 0 {
		return
	}
	for range c.Charges {
		c.Costs = append(c.Costs, rapid.Int64Range(0, c.Cost).Draw(t, "of a charge"))
	}
	c.Cost = slices.Max(c.Costs)
}

func drawLimit(t *rapid.T) Limit {
	return drawUnits(t, Limit{
		Algorithm: rapid.SampledFrom(everyAlgorithm).Draw(t, "algorithm"),
		Window:    time.Duration(rapid.SampledFrom([]int64{1, 2, 7, 60, 86_400, quotad.MaxWindow}).Draw(t, "window")) * time.Second,
	})
}

// drawUnits draws units and burst that admin validation would accept.
func drawUnits(t *rapid.T, l Limit) Limit {
	most := l.Algorithm.MaxUnits(int64(l.Window / time.Second))
	l.Units = rapid.OneOf(rapid.Int64Range(0, 30), rapid.Int64Range(0, 30), rapid.Int64Range(0, most)).Draw(t, "units")
	l.Burst = 0
	l.MaxDelay = 0
	if l.Algorithm == quotad.LeakyBucket && rapid.Bool().Draw(t, "delays") {
		l.MaxDelay = time.Duration(rapid.Int64Range(0, 5000).Draw(t, "delay")) * time.Millisecond
	}
	if (l.Algorithm == quotad.TokenBucket || l.Algorithm == quotad.LeakyBucket) && rapid.Bool().Draw(t, "bursts") {
		l.Burst = rapid.OneOf(rapid.Int64Range(1, 30), rapid.Int64Range(1, most)).Draw(t, "burst")
	}
	return l
}
