package ratelimit

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestCallsThatBeginTogetherShareABudget(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := budget{most: 100 * time.Millisecond}
		begun := time.Now()
		first := b.begin(begun)
		time.Sleep(time.Millisecond - 1)
		if b.begin(time.Now()) != first {
			t.Error("a call that began less than a hundredth later has a context of its own")
		}
		time.Sleep(time.Nanosecond)
		next := b.begin(time.Now())
		if deadline, _ := next.Deadline(); next == first || !deadline.Equal(time.Now().Add(100*time.Millisecond)) {
			t.Errorf("a hundredth later: the same context, or until %s", deadline)
		}
		time.Sleep(time.Until(begun.Add(100 * time.Millisecond)))
		synctest.Wait()
		if !errors.Is(first.Err(), context.DeadlineExceeded) || next.Err() != nil {
			t.Errorf("after the budget of the first: %v, %v", first.Err(), next.Err())
		}
		time.Sleep(time.Hour)
		if ctx := b.begin(time.Now()); ctx.Err() != nil {
			t.Errorf("after an idle hour: %v", ctx.Err())
		}
		time.Sleep(time.Second) // nothing is left behind
	})
}
