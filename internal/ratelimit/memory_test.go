package ratelimit

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/quotad/quotad"
)

func TestMemoryIsBounded(t *testing.T) {
	clock := newClock(epoch)
	m := NewMemory(MemoryOptions{Now: clock.Now, MaxCounters: 25_600})
	l := limit(quotad.FixedWindow, 5, time.Minute)
	for i := range 1_000_000 {
		c := call(fmt.Sprint(i), l, 1)
		c.Shard = Shard(i)
		if ok, _ := take(t, m, c); !ok {
			t.Fatalf("call %d refused", i)
		}
		if i%1000 == 0 {
			clock.ms.Add(1)
		}
	}
	if n := m.Len(); n > 25_600 {
		t.Errorf("%d counters kept, want at most 25,600", n)
	}
	if n := m.Evicted(); n < 900_000 {
		t.Errorf("%d counters gave way, want nearly all of a million", n)
	}
}

// TestMemoryHasRoomForOneTenant: the bound is that of all counters, so that one
// tenant who makes many, such as one for each of its users, loses none before.
func TestMemoryHasRoomForOneTenant(t *testing.T) {
	clock := newClock(epoch)
	m := NewMemory(MemoryOptions{Now: clock.Now, MaxCounters: 50_000})
	once := limit(quotad.FixedWindow, 1, time.Hour)
	const used = 40_000
	for i := range used {
		if ok, _ := take(t, m, call(fmt.Sprint(i), once, 1)); !ok {
			t.Fatalf("call %d refused", i)
		}
	}
	again := 0
	for i := range used {
		if ok, _ := take(t, m, call(fmt.Sprint(i), once, 1)); ok {
			again++
		}
	}
	if n := m.Len(); again > 0 || n != used {
		t.Errorf("%d of %d used limits admit again, %d counters are kept", again, used, n)
	}
	if n := m.Evicted(); n != 0 {
		t.Errorf("%d counters gave way below the bound", n)
	}
}

// TestMemorySweeps: counters that have nothing more to say make room for new ones
// long before the bound.
func TestMemorySweeps(t *testing.T) {
	clock := newClock(epoch)
	m := NewMemory(MemoryOptions{Now: clock.Now})
	for i := range 200_000 {
		clock.ms.Add(1) // each counter lives two seconds: 2,000 are alive at a time
		c := call(fmt.Sprint(i), limit(quotad.SlidingWindowCounter, 5, time.Second), 1)
		c.Shard = Shard(i)
		take(t, m, c)
	}
	if n := m.Len(); n > 64*Shards+4000 {
		t.Errorf("%d counters kept of which about 2,000 are alive", n)
	}
}

// TestMemoryKeepsLiveCountersWhileItSweeps: a counter in use is never swept.
func TestMemoryKeepsLiveCountersWhileItSweeps(t *testing.T) {
	clock := newClock(epoch)
	m := NewMemory(MemoryOptions{Now: clock.Now})
	hour := limit(quotad.FixedWindow, 1_000_000, time.Hour)
	for i := range 100_000 {
		clock.ms.Add(10)
		if _, status := take(t, m, call("live", hour, 1)); status[0].Remaining != 999_999-int64(i) && clock.ms.Load() < epoch+3_600_000 {
			t.Fatalf("after %d calls %d are left", i+1, status[0].Remaining)
		}
		take(t, m, call(fmt.Sprint(i), limit(quotad.FixedWindow, 5, time.Second), 1))
	}
}

// TestMemoryClockIsMonotonic: the store's time runs on from its start.
func TestMemoryClockIsMonotonic(t *testing.T) {
	m := NewMemory(MemoryOptions{})
	before := time.Now().Add(-time.Second)
	out, err := m.Take(context.Background(), Call{}, nil)
	if err != nil || !out.Allowed || out.Now.Before(before) || out.Now.After(time.Now().Add(time.Second)) {
		t.Errorf("%+v %v", out, err)
	}
}

func TestMemoryTakeDoesNotAllocate(t *testing.T) {
	m := NewMemory(MemoryOptions{})
	c := Call{Cost: 1}
	for i, a := range everyAlgorithm {
		c.Charges = append(c.Charges, Charge{Counter: CounterOf("k", fmt.Sprint(i)), Limit: limit(a, 1_000_000, time.Hour)})
	}
	status := make([]Status, len(c.Charges))
	if n := testing.AllocsPerRun(1000, func() { _, _ = m.Take(context.Background(), c, status) }); n != 0 {
		t.Errorf("%v allocations per call", n)
	}
}
