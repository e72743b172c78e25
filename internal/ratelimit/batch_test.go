package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/quotad/quotad"
	"pgregory.net/rapid"
)

// TestBatches sends random lists of calls, many of them alike, as one batch, and
// wants what memory answers when it is asked one call after the other.
func TestBatches(t *testing.T) {
	client, prefix := dial(t)
	runs := 0
	rapid.Check(t, func(t *rapid.T) {
		runs++
		clock := newClock(epoch + rapid.Int64Range(0, 200_000).Draw(t, "start"))
		memory := NewMemory(MemoryOptions{Now: clock.Now})
		redis := NewRedis(client, RedisOptions{Prefix: fmt.Sprintf("%s%d:", prefix, runs), Now: clock.Now, Timeout: patience})
		limits := make([]Limit, rapid.IntRange(1, 4).Draw(t, "limits"))
		for i := range limits {
			limits[i] = drawLimit(t)
		}
		for range rapid.IntRange(1, 4).Draw(t, "batches") {
			clock.ms.Add(rapid.Int64Range(0, 5_000).Draw(t, "tick"))
			b := &batch{}
			var calls []Call
			var trace strings.Builder
			for range rapid.IntRange(1, 30).Draw(t, "calls") {
				c := Call{Cost: rapid.Int64Range(0, 3).Draw(t, "cost")}
				if n := len(calls); n > 0 && rapid.IntRange(0, 2).Draw(t, "alike") > 0 {
					c = calls[rapid.IntRange(0, n-1).Draw(t, "as")]
				} else {
					owner := rapid.IntRange(0, 5).Draw(t, "owner")
					for k, l := range limits {
						if len(c.Charges) > 0 && rapid.Bool().Draw(t, "left out") {
							continue
						}
						if rapid.IntRange(0, 9).Draw(t, "edited") == 0 {
							l = drawUnits(t, l)
						}
						shadow := rapid.IntRange(0, 4).Draw(t, "shadow") == 0
						c.Charges = append(c.Charges, Charge{Counter: CounterOf(fmt.Sprint(owner, k)), Limit: l, Shadow: shadow})
					}
					drawCosts(t, &c)
				}
				if c.fits() == nil {
					calls = append(calls, c)
					b.add(c)
					fmt.Fprintf(&trace, "%+v\n", c)
				}
			}
			if len(calls) == 0 {
				continue
			}
			redis.send(context.Background(), b)
			if b.err != nil {
				t.Fatal(b.err)
			}
			for i, c := range calls {
				want, got := make([]Status, len(c.Charges)), make([]Status, len(c.Charges))
				wantOut, err := memory.Take(context.Background(), c, want)
				if err != nil {
					t.Fatal(err)
				}
				if gotOut, err := b.outcome(i, got); err != nil || gotOut != wantOut {
					t.Fatalf("%scall %d: %+v %v, want %+v", &trace, i, gotOut, err, wantOut)
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Fatalf("%scall %d (-alone +in the batch):\n%s", &trace, i, diff)
				}
			}
		}
	})
}

// TestAnEditThatChargesNothingChangesNothing: in one list a bucket is charged, and then
// looked at by a node that knows of a smaller one. The larger keeps what it had.
func TestAnEditThatChargesNothingChangesNothing(t *testing.T) {
	t.Parallel()
	client, prefix := dial(t)
	store := NewRedis(client, RedisOptions{Prefix: prefix})
	for _, a := range everyAlgorithm {
		large, small := limit(a, 10, long), limit(a, 5, long)
		b := &batch{}
		b.add(call(string(a), large, 1))
		b.add(call(string(a), small, 0))
		if store.send(t.Context(), b); b.err != nil {
			t.Fatal(b.err)
		}
		expect(t, store, string(a), large, 0, true, 9)
	}
}

// TestACallThatIsGoneIsNotCharged, and a list of nothing else is not sent.
func TestACallThatIsGoneIsNotCharged(t *testing.T) {
	t.Parallel()
	client, prefix := dial(t)
	store := NewRedis(client, RedisOptions{Prefix: prefix, Timeout: patience})
	l := limit(quotad.FixedWindow, 10, long)
	b := &batch{}
	for range 3 {
		b.add(call("api", l, 1))
	}
	b.calls[0].gone, b.calls[2].gone = true, true
	if store.send(t.Context(), b); b.err != nil {
		t.Fatal(b.err)
	}
	b.calls[1].gone = true
	closed := connect(t, "redis://127.0.0.1:1", ConnectOptions{})
	if NewRedis(closed, RedisOptions{}).send(t.Context(), b); b.err != nil {
		t.Errorf("an empty list was sent: %v", b.err)
	}
	expect(t, store, "api", l, 0, true, 9)
}

// TestAlikeCallsAreOneEntry: the calls of a busy key cost one load and one store of each
// counter; a call that is not alike makes a new entry, and so does what comes after it.
func TestAlikeCallsAreOneEntry(t *testing.T) {
	l, edited := limit(quotad.FixedWindow, 10, time.Minute), limit(quotad.FixedWindow, 11, time.Minute)
	two := Call{Cost: 1, Charges: []Charge{{Counter: CounterOf("key"), Limit: l}, {Counter: CounterOf("tenant"), Limit: l}}}
	each := Call{Cost: 1, Charges: two.Charges, Costs: []int64{1, 1}}
	shadow := call("key", l, 1)
	shadow.Charges[0].Shadow = true
	for name, c := range map[string]struct {
		calls []Call
		want  []int64 // calls of each entry
	}{
		"all alike":                {[]Call{two, two, two}, []int64{3}},
		"others in between":        {[]Call{two, call("other", l, 1), two, call("other", l, 1)}, []int64{2, 2}},
		"another cost":             {[]Call{call("key", l, 1), call("key", l, 2), call("key", l, 1)}, []int64{1, 1, 1}},
		"an edited limit":          {[]Call{call("key", l, 1), call("key", edited, 1), call("key", edited, 1)}, []int64{1, 2}},
		"a cost for each charge":   {[]Call{two, each, each, two, two}, []int64{1, 1, 1, 2}},
		"a shadow":                 {[]Call{shadow, call("key", l, 1), call("key", l, 1)}, []int64{1, 2}},
		"one counter of two":       {[]Call{two, call("tenant", l, 1), two}, []int64{1, 1, 1}},
		"the other counter of two": {[]Call{two, call("key", l, 1), two}, []int64{1, 1, 1}},
	} {
		b, e := &batch{}, &encoder{counters: map[Counter]int32{}}
		for _, one := range c.calls {
			b.add(one)
		}
		e.encode(b, "q:", -1, 0, "evalsha")
		var got []int64
		for _, one := range e.entries {
			got = append(got, one.calls)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: calls of each entry (-want +got):\n%s", name, diff)
		}
	}
}

// gate is a lane's far side that the test opens.
type gate struct {
	mu      sync.Mutex
	batches [][]int64 // the costs of each batch sent
	arrived chan struct{}
	release chan error
}

func (g *gate) send(_ context.Context, b *batch) {
	g.mu.Lock()
	costs := []int64{}
	for _, c := range b.calls {
		if !c.gone {
			costs = append(costs, c.cost)
		}
	}
	g.batches = append(g.batches, costs)
	g.mu.Unlock()
	g.arrived <- struct{}{}
	b.err = <-g.release
}

func newGate(slots int) (*gate, *lane) {
	g := &gate{arrived: make(chan struct{}, 100), release: make(chan error)}
	return g, &lane{send: g.send, slots: slots, timeout: 10 * patience}
}

func (l *lane) waiting() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, b := range l.queue {
		n += len(b.calls)
	}
	return n
}

func ask(l *lane, ctx context.Context, cost int64) chan error {
	answer := make(chan error, 1)
	go func() {
		_, _, err := l.take(ctx, call("api", limit(quotad.FixedWindow, 1000, time.Minute), cost), time.Now())
		answer <- err
	}()
	return answer
}

// TestCallsTravelTogether: a call goes at once while there is a slot; those that
// come meanwhile wait and go as one, in their order; one whose caller leaves before
// does not go at all.
func TestCallsTravelTogether(t *testing.T) {
	g, l := newGate(1)
	first := ask(l, t.Context(), 1)
	<-g.arrived
	var rest []chan error
	for i := range int64(3) {
		rest = append(rest, ask(l, t.Context(), 10+i))
		eventually(t, "the call waits", func() bool { return l.waiting() == int(i)+1 })
	}
	leaving, leave := context.WithCancel(t.Context())
	gone := ask(l, leaving, 99)
	eventually(t, "the call waits", func() bool { return l.waiting() == 4 })
	leave()
	if err := <-gone; !errors.Is(err, context.Canceled) {
		t.Errorf("the caller who left got %v", err)
	}
	g.release <- nil
	if err := <-first; err != nil {
		t.Error(err)
	}
	<-g.arrived
	broken := errors.New("broken")
	g.release <- broken
	for _, answer := range rest {
		if err := <-answer; !errors.Is(err, broken) {
			t.Errorf("a call of the broken batch got %v", err)
		}
	}
	if diff := cmp.Diff([][]int64{{1}, {10, 11, 12}}, g.batches); diff != "" {
		t.Errorf("batches (-want +got):\n%s", diff)
	}
	eventually(t, "the slot is free", func() bool { l.mu.Lock(); defer l.mu.Unlock(); return len(l.away) == 0 })
}

// TestACallerWaitsNoLongerThanItsContext: a list that hangs holds nobody.
func TestACallerWaitsNoLongerThanItsContext(t *testing.T) {
	g, l := newGate(1)
	first := ask(l, t.Context(), 1)
	<-g.arrived
	waiting, cancel := context.WithCancel(t.Context())
	second := ask(l, waiting, 2)
	eventually(t, "the call waits", func() bool { return l.waiting() == 1 })
	g.release <- nil
	<-first
	<-g.arrived // the second is under way
	cancel()
	if err := <-second; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	g.release <- nil
}

// TestBatchesAreBounded: one list holds no more charges, and no more calls that are
// alike, than its bounds.
func TestBatchesAreBounded(t *testing.T) {
	l := limit(quotad.FixedWindow, 1000, time.Minute)
	for name, calls := range map[string]func(i int) Call{
		"alike":   func(int) Call { return call("one", l, 1) },
		"unalike": func(i int) Call { return call(fmt.Sprint(i), l, 1) },
	} {
		b := &batch{}
		n := 0
		for ; b.hasRoom(1, 1) && n < 10_000; n++ {
			b.add(calls(n))
		}
		if want := map[string]int{"alike": maxCalls, "unalike": maxBatch}[name]; n != want {
			t.Errorf("%s: a batch of %d calls, want %d", name, n, want)
		}
	}
}

// TestAPeekByAnEditedLimitChangesNothing: in one list a bucket is charged, and then looked
// at by a limit that has been lowered. What is kept is the charge.
func TestAPeekByAnEditedLimitChangesNothing(t *testing.T) {
	t.Parallel()
	client, prefix := dial(t)
	clock := newClock(epoch)
	store := NewRedis(client, RedisOptions{Prefix: prefix, Now: clock.Now, Timeout: patience})
	large, small := limit(quotad.TokenBucket, 20, time.Minute), limit(quotad.TokenBucket, 5, time.Minute)
	b := &batch{}
	b.add(call("api", large, 1))
	b.add(call("api", small, 0))
	if store.send(t.Context(), b); b.err != nil {
		t.Fatal(b.err)
	}
	expect(t, store, "api", large, 0, true, 19)
}
