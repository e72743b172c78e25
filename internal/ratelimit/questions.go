package ratelimit

import (
	"context"
	"slices"
	"sync"

	"github.com/quotad/quotad"
)

// Question is one call of a list, and its answer. The calls of a list are judged in
// their order: each sees what those before it have charged.
type Question struct {
	Call Call
	// Status is as long as Call.Charges, and is written to.
	Status []Status
	// Policy answers where the store fails. Only TakeAllOr looks at it.
	Policy quotad.FailurePolicy
	// Outcome and Err are what Take, or TakeOr, would return for the call by itself.
	Outcome Outcome
	Err     error
}

// takeEach asks one question after the other.
func takeEach(ctx context.Context, s Store, list []*Question) {
	for _, q := range list {
		q.Outcome, q.Err = s.Take(ctx, q.Call, q.Status)
	}
}

// eachPart calls f once for the questions of each part of the store, in their order
// within it; at once where there are several, for no part shares a counter with
// another.
func eachPart(list []*Question, parts int, f func(part int, list []*Question)) {
	if len(list) == 0 {
		return
	}
	of := func(q *Question) int { return int(tagOf(q.Call.Shard)) % parts }
	first := of(list[0])
	if parts == 1 || !slices.ContainsFunc(list, func(q *Question) bool { return of(q) != first }) {
		f(first, list)
		return
	}
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(a, b *Question) int { return of(a) - of(b) })
	var others sync.WaitGroup
	for len(list) > 0 {
		part, n := of(list[0]), 1
		for n < len(list) && of(list[n]) == part {
			n++
		}
		one := list[:n]
		if list = list[n:]; len(list) > 0 {
			others.Go(func() { f(part, one) })
			continue
		}
		f(part, one)
	}
	others.Wait()
}

// fitting is how many of the questions, from the first, one list of calls takes, and
// the charges of them that it keeps.
func fitting(list []*Question) (n, charges int) {
	for n < len(list) && n < maxCalls {
		c := &list[n].Call
		more := len(c.Charges)
		if n > 0 && list[n-1].Call.Shard == c.Shard && slices.Equal(list[n-1].Call.Charges, c.Charges) {
			more = 0
		}
		if n > 0 && charges+more > maxBatch {
			break
		}
		n, charges = n+1, charges+more
	}
	return n, charges
}

// concerns reports whether one of the questions charges a counter of the call.
func concerns(list []*Question, call *Call) bool {
	for _, q := range list {
		if q.Call.Shard != call.Shard {
			continue
		}
		for i := range q.Call.Charges {
			for k := range call.Charges {
				if q.Call.Charges[i].Counter == call.Charges[k].Counter {
					return true
				}
			}
		}
	}
	return false
}
