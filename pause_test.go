package quotad

import (
	"testing"
	"time"
)

func TestAPauseLetsOneCallThroughAtATime(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	var p pause
	ordinary, probe, barred := turn{}, turn{probe: true}, turn{barred: true}
	enter := func(want turn) {
		t.Helper()
		if got := p.enter(now); got != want {
			t.Fatalf("entered as %+v, want %+v", got, want)
		}
	}
	leave := func(as turn, r result, begins, ends bool) {
		t.Helper()
		if b, e := p.leave(as, r, now); b != begins || e != ends {
			t.Fatalf("begins %v, ends %v; want %v, %v", b, e, begins, ends)
		}
	}
	for range 4 {
		enter(ordinary)
		leave(ordinary, failed, false, false)
	}
	enter(ordinary)
	leave(ordinary, answered, false, false) // in a row only
	for range 4 {
		leave(ordinary, failed, false, false)
	}
	leave(ordinary, abandoned, false, false)
	enter(ordinary)
	leave(ordinary, failed, true, false)
	leave(ordinary, failed, false, false) // one that was on its way

	now = now.Add(pauseLength - 1)
	enter(barred)
	now = now.Add(1)
	enter(probe)
	enter(barred)
	leave(probe, failed, false, false)
	enter(barred)
	now = now.Add(pauseLength)
	enter(probe)
	leave(probe, abandoned, false, false)
	enter(probe)
	leave(ordinary, answered, false, true) // late, but an answer
	before := ordinary
	ordinary.after++
	enter(ordinary)
	leave(probe, failed, false, false) // the probe was sent before
	for range toleratedFailures {
		leave(before, failed, false, false) // and so were these
	}
	enter(ordinary)
	for i := range toleratedFailures {
		leave(ordinary, failed, i == toleratedFailures-1, false)
	}
	now = now.Add(pauseLength)
	enter(turn{probe: true, after: 1})
	leave(probe, failed, false, false) // that of the first pause, at last
	enter(barred)
}
