package apikeys_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quotad/quotad/internal/apikeys"
	"github.com/quotad/quotad/internal/testenv"
)

// ledger keeps what Touches writes, and fails while err is set.
type ledger struct {
	mu     sync.Mutex
	err    error
	writes []map[string]time.Time
}

func (l *ledger) Touch(_ context.Context, used map[string]time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return l.err
	}
	l.writes = append(l.writes, maps.Clone(used))
	return nil
}

func (l *ledger) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err = err
}

// taken returns what was written since the last call.
func (l *ledger) taken() []map[string]time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := l.writes
	l.writes = nil
	return w
}

func TestTheNewestUseOfEachKeyIsWrittenOnce(t *testing.T) {
	t.Parallel()
	now := testenv.Noon
	l := &ledger{}
	touches := apikeys.NewTouches(l, apikeys.TouchesOptions{Now: func() time.Time { return now }})
	flush := func() []map[string]time.Time {
		t.Helper()
		if err := touches.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		return l.taken()
	}

	if got := flush(); got != nil {
		t.Errorf("nothing was used, yet %v was written", got)
	}
	touches.Note("a", testenv.Noon.Add(2*time.Second))
	touches.Note("a", testenv.Noon)
	touches.Note("b", testenv.Noon.Add(time.Second))
	touches.Note("a", testenv.Noon.Add(time.Second))
	if diff := cmp.Diff([]map[string]time.Time{{"a": testenv.Noon.Add(2 * time.Second), "b": testenv.Noon.Add(time.Second)}}, flush()); diff != "" {
		t.Errorf("first flush (-want +got):\n%s", diff)
	}

	now = testenv.Noon.Add(30 * time.Second)
	touches.Note("a", testenv.Noon.Add(61*time.Second))
	touches.Note("b", testenv.Noon.Add(61*time.Second))
	if diff := cmp.Diff([]map[string]time.Time{{"b": testenv.Noon.Add(61 * time.Second)}}, flush()); diff != "" {
		t.Errorf("only b is a minute newer than what was written (-want +got):\n%s", diff)
	}

	// What fell idle takes no memory: nothing is known of when it was written.
	now = testenv.Noon.Add(time.Hour)
	flush()
	touches.Note("a", testenv.Noon.Add(3*time.Second))
	if diff := cmp.Diff([]map[string]time.Time{{"a": testenv.Noon.Add(3 * time.Second)}}, flush()); diff != "" {
		t.Errorf("after an hour (-want +got):\n%s", diff)
	}
	if got := flush(); got != nil {
		t.Errorf("nothing new was used, yet %v was written", got)
	}
}

func TestAFailedFlushLosesNothing(t *testing.T) {
	t.Parallel()
	l := &ledger{}
	touches := apikeys.NewTouches(l, apikeys.TouchesOptions{Now: func() time.Time { return testenv.Noon }})
	away := errors.New("the database is away")
	l.fail(away)
	touches.Note("a", testenv.Noon)
	for range 3 {
		if err := touches.Flush(t.Context()); !errors.Is(err, away) {
			t.Fatalf("flush says %v", err)
		}
	}
	touches.Note("b", testenv.Noon.Add(time.Second))
	l.fail(nil)
	if err := touches.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]map[string]time.Time{{"a": testenv.Noon, "b": testenv.Noon.Add(time.Second)}}, l.taken()); diff != "" {
		t.Errorf("after the database came back (-want +got):\n%s", diff)
	}
}

func TestMemoryIsBoundedAndEveryKeyGetsItsTurn(t *testing.T) {
	t.Parallel()
	l := &ledger{}
	touches := apikeys.NewTouches(l, apikeys.TouchesOptions{MaxKeys: 10, Now: func() time.Time { return testenv.Noon }})
	seen := map[string]bool{}
	for round := range 30 {
		for i := range 25 {
			// Another key is first in each round.
			touches.Note(fmt.Sprint("key", (i+round)%25), testenv.Noon)
		}
		if err := touches.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, written := range l.taken() {
			if len(written) > 10 {
				t.Fatalf("%d keys were remembered, want at most 10", len(written))
			}
			for id := range written {
				seen[id] = true
			}
		}
	}
	if len(seen) != 25 {
		t.Errorf("%d of 25 keys were ever written", len(seen))
	}
}

func TestRunFlushesAtTheIntervalWhenFullAndAtTheEnd(t *testing.T) {
	t.Parallel()
	for name, options := range map[string]apikeys.TouchesOptions{
		"interval": {Interval: time.Millisecond},
		"full":     {Interval: time.Hour, MaxKeys: 1},
		"end":      {Interval: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := &ledger{}
			touches := apikeys.NewTouches(l, options)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			done := make(chan error, 1)
			go func() { done <- touches.Run(ctx) }()
			touches.Note("a", testenv.Noon)
			touches.Note("b", testenv.Noon)
			if name != "end" {
				written := eventually(t, l.taken)
				if written[0]["a"] != testenv.Noon {
					t.Errorf("written: %v", written)
				}
			}
			touches.Note("b", testenv.Noon.Add(time.Hour))
			cancel()
			if err := <-done; err != nil {
				t.Errorf("Run: %v", err)
			}
			last := l.taken()
			if name == "full" {
				return // there is no room to say more
			}
			if len(last) == 0 || last[len(last)-1]["b"] != testenv.Noon.Add(time.Hour) {
				t.Errorf("the last flush wrote %v", last)
			}
		})
	}
}

func TestRunLogsAFailedFlushAndReturnsTheLastOne(t *testing.T) {
	t.Parallel()
	l := &ledger{err: errors.New("the database is away")}
	out := &lines{}
	touches := apikeys.NewTouches(l, apikeys.TouchesOptions{
		Interval: time.Millisecond, Logger: slog.New(slog.NewTextHandler(out, nil)),
	})
	touches.Note("a", testenv.Noon)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- touches.Run(ctx) }()
	logged := eventually(t, out.taken)
	if !strings.Contains(logged[0], "the database is away") {
		t.Errorf("logged %q", logged[0])
	}
	cancel()
	if err := <-done; err == nil || !strings.Contains(err.Error(), "the database is away") {
		t.Errorf("Run says %v about the last flush", err)
	}
}

func TestNoteDoesNotAllocateForAKnownKey(t *testing.T) {
	touches := apikeys.NewTouches(&ledger{}, apikeys.TouchesOptions{})
	touches.Note("a", testenv.Noon)
	at := testenv.Noon
	if n := testing.AllocsPerRun(100, func() { at = at.Add(time.Second); touches.Note("a", at) }); n != 0 {
		t.Errorf("Note allocates %v times", n)
	}
}

func TestNotesOfManyCallersMeetFlushes(t *testing.T) {
	t.Parallel()
	l := &ledger{}
	touches := apikeys.NewTouches(l, apikeys.TouchesOptions{Step: time.Microsecond, Now: func() time.Time { return testenv.Noon.Add(time.Hour) }})
	const callers, uses = 8, 500
	var calling sync.WaitGroup
	for c := range callers {
		calling.Go(func() {
			for i := range uses {
				touches.Note(fmt.Sprint("key", (c+i)%5), testenv.Noon.Add(time.Duration(i)*time.Second))
			}
		})
	}
	done := make(chan struct{})
	go func() { calling.Wait(); close(done) }()
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		if err := touches.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	newest := map[string]time.Time{}
	for _, written := range l.taken() {
		for id, at := range written {
			if at.After(newest[id]) {
				newest[id] = at
			}
		}
	}
	for k := range 5 {
		id := fmt.Sprint("key", k)
		// Eight callers in step: some caller's last use of each key is among the last five.
		if newest[id].Before(testenv.Noon.Add((uses - 5) * time.Second)) {
			t.Errorf("the last use written of %s is %s", id, newest[id])
		}
	}
}

func BenchmarkNote(b *testing.B) {
	touches := apikeys.NewTouches(&ledger{}, apikeys.TouchesOptions{})
	ids := make([]string, 100)
	for i := range ids {
		ids[i] = fmt.Sprint("key", i)
	}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for i := 0; pb.Next(); i++ {
			touches.Note(ids[i%len(ids)], testenv.Noon)
		}
	})
}
