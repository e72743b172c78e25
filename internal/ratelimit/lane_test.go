package ratelimit

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/quotad/quotad"
)

// TestALateListDoesNotHoldItsSlot: while one list stalls, those behind it go.
func TestALateListDoesNotHoldItsSlot(t *testing.T) {
	g, l := newGate(1)
	l.timeout = 50 * time.Millisecond
	stalled := ask(l, t.Context(), 1)
	<-g.arrived
	for i := range int64(3) { // none of these is released either
		behind := ask(l, t.Context(), 10+i)
		defer func() { <-behind }()
		<-g.arrived
	}
	for range 4 {
		g.release <- nil
	}
	<-stalled
	for _, costs := range g.batches {
		if len(costs) != 1 {
			t.Errorf("batches %v, want each call in one of its own", g.batches)
		}
	}
}

// TestASlotIsHeldUntilAllHaveWoken: those who are woken by a list, and ask again, find its
// slot taken until the last of them has woken. So they go together.
func TestASlotIsHeldUntilAllHaveWoken(t *testing.T) {
	g, l := newGate(1)
	first := ask(l, t.Context(), 1)
	<-g.arrived
	one, two := ask(l, t.Context(), 2), ask(l, t.Context(), 2)
	eventually(t, "the calls wait", func() bool { return l.waiting() == 2 })
	l.mu.Lock()
	asleep := l.queue[0]
	asleep.holders.Add(1) // a third caller, who sleeps on
	l.mu.Unlock()
	for _, answers := range [][]chan error{{first}, {one, two}} {
		g.release <- nil
		for _, answer := range answers {
			if err := <-answer; err != nil {
				t.Error(err)
			}
		}
	}
	<-g.arrived
	again := []chan error{ask(l, t.Context(), 3), ask(l, t.Context(), 3)}
	eventually(t, "they wait", func() bool { return l.waiting() == 2 })
	l.release(asleep)
	<-g.arrived
	g.release <- nil
	for _, answer := range again {
		if err := <-answer; err != nil {
			t.Error(err)
		}
	}
	if diff := cmp.Diff([][]int64{{1}, {2, 2}, {3, 3}}, g.batches); diff != "" {
		t.Errorf("batches (-want +got):\n%s", diff)
	}
}

// TestASenderThatPanicsGivesItsSlotBack: the next call finds it free.
func TestASenderThatPanicsGivesItsSlotBack(t *testing.T) {
	_, l := newGate(1)
	l.send = func(context.Context, *batch) { panic("broken") }
	func() {
		defer func() { _ = recover() }()
		_, _, _ = l.take(t.Context(), call("api", limit(quotad.FixedWindow, 1000, long), 1), time.Now())
	}()
	if len(l.away) != 0 {
		t.Errorf("%d lists are under way, want none", len(l.away))
	}
}

// TestAnAnswerThatIsThereIsTaken, even by a caller whose context ended meanwhile: its call
// was charged.
func TestAnAnswerThatIsThereIsTaken(t *testing.T) {
	l := &lane{slots: 1, timeout: patience}
	ended, end := context.WithCancel(t.Context())
	end()
	for range 100 { // a select takes either
		b := &batch{done: make(chan struct{})}
		b.holders.Store(2)
		close(b.done)
		if err := l.await(ended, b, 0, 1, false); err != nil {
			t.Fatal(err)
		}
	}
}

// TestListsUnderWayAreBounded: where every list stalls no more than so many go, the
// calls behind them wait together, and go once one comes back.
func TestListsUnderWayAreBounded(t *testing.T) {
	g, l := newGate(slots)
	l.timeout = 10 * time.Millisecond
	var answers []chan error
	for range mostAway {
		answers = append(answers, ask(l, t.Context(), 1))
		<-g.arrived
	}
	eventually(t, "all are late", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.overdue(time.Now()) == mostAway
	})
	for range 5 {
		answers = append(answers, ask(l, t.Context(), 2))
	}
	eventually(t, "the rest waits", func() bool { return l.waiting() == 5 })
	time.Sleep(5 * l.late()) // what a timer would need
	select {
	case <-g.arrived:
		t.Error("more lists under way than the bound")
	default:
	}
	g.release <- nil
	<-g.arrived // the five
	for range mostAway {
		g.release <- nil
	}
	for _, answer := range answers {
		if err := <-answer; err != nil {
			t.Error(err)
		}
	}
	if last := g.batches[len(g.batches)-1]; len(last) != 5 {
		t.Errorf("the last batch has %d calls, want 5", len(last))
	}
}

// TestNobodyJumpsTheQueue: a call that comes when there is a slot, but others wait for it
// already, goes with them.
func TestNobodyJumpsTheQueue(t *testing.T) {
	g, l := newGate(1)
	l.away, l.looking = []*batch{{}}, true // late: sent in the year 1
	waiting := l.open(1, 1)
	waiting.add(call("api", endless, 1))
	answer := ask(l, t.Context(), 2)
	eventually(t, "the call waits", func() bool { return l.waiting() == 2 })
	go l.drain()
	<-g.arrived
	g.release <- nil
	if err := <-answer; err != nil {
		t.Error(err)
	}
}

// TestAListThatFailsIsOneFailure: the breaker stays closed when a stalled list fails a
// hundred calls at once, and opens when list after list fails.
func TestAListThatFailsIsOneFailure(t *testing.T) {
	g, l := newGate(1)
	store := NewRedis(nil, RedisOptions{})
	store.lanes = []*lane{l}
	// Without its prober: every list is a caller's.
	f := NewFailover(store, NewMemory(MemoryOptions{}), FailoverOptions{Budget: patience, Retry: time.Hour})
	ask := func() chan Outcome {
		answer := make(chan Outcome, 1)
		go func() {
			out, err := f.TakeOr(t.Context(), call("api", endless, 1), make([]Status, 1), quotad.FailOpen)
			if err != nil {
				t.Error(err)
			}
			answer <- out
		}()
		return answer
	}
	stalled := errors.New("stalled")
	first := ask()
	<-g.arrived
	var rest []chan Outcome
	for range 100 {
		rest = append(rest, ask())
	}
	eventually(t, "the calls wait", func() bool { return l.waiting() == 100 })
	g.release <- stalled
	<-g.arrived
	g.release <- stalled
	for _, answer := range append(rest, first) {
		if out := <-answer; out.Degraded != quotad.FailOpen {
			t.Errorf("%+v, want the policy's answer", out)
		}
	}
	for list := 2; list < tripInARow; list++ {
		if f.State() != "closed" {
			t.Fatalf("%s after %d lists that failed", f.State(), list)
		}
		next := ask()
		<-g.arrived
		g.release <- stalled
		<-next
	}
	if f.State() != "open" {
		t.Errorf("%s after %d lists in a row that failed", f.State(), tripInARow)
	}
}
