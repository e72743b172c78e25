package quota

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/quotad/quotad"
)

// failuresToOpen is how many loads in a row must find the database away before
// further ones are spared.
const failuresToOpen = 3

// guard keeps loads off a database that is away, so that one that hangs slows
// a few calls and not every call. Once it is open it lets a single load through
// each time pause has gone by; the first that succeeds closes it.
//
// Only a database that is away counts: a row that is missing is an answer, and
// a row that cannot be read says nothing about the others.
type guard struct {
	breaker *gobreaker.CircuitBreaker[struct{}]
	pause   time.Duration

	// answers counts what was heard of the database, and silence is that count as
	// it stood when a load began that was waited for in vain.
	answers, silence atomic.Uint64
}

// newGuard returns a closed guard. onChange may be nil; it runs under the
// guard's lock and must not call it.
func newGuard(pause time.Duration, onChange func(from, to string)) *guard {
	settings := gobreaker.Settings{
		Name:         "database",
		Timeout:      pause,
		ReadyToTrip:  func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= failuresToOpen },
		IsSuccessful: func(err error) bool { return err == nil || errors.Is(err, quotad.ErrNotFound) },
		IsExcluded:   func(err error) bool { return err != nil && !errors.Is(err, quotad.ErrNotFound) && !isAway(err) },
	}
	if onChange != nil {
		settings.OnStateChange = func(_ string, from, to gobreaker.State) { onChange(from.String(), to.String()) }
	}
	g := &guard{breaker: gobreaker.NewCircuitBreaker[struct{}](settings), pause: pause}
	g.answered() // so that it is not silent from the beginning
	return g
}

// isAway reports whether the error means that the database did not answer.
func isAway(err error) bool {
	return errors.Is(err, quotad.ErrStoreUnavailable) || errors.Is(err, context.DeadlineExceeded)
}

// guarded runs the load unless the guard is open.
func guarded[V any](g *guard, load func() (V, error)) (v V, err error) {
	_, err = g.breaker.Execute(func() (_ struct{}, err error) {
		v, err = load()
		if !isAway(err) {
			g.answered()
		}
		return struct{}{}, err
	})
	return v, err
}

// closed reports whether the database is taken to answer.
func (g *guard) closed() bool { return g.breaker.State() == gobreaker.StateClosed }

// open reports whether a load would be refused outright.
func (g *guard) open() bool { return g.breaker.State() == gobreaker.StateOpen }

func (g *guard) answered() { g.answers.Add(1) }

// overdue notes that a load is not waited for any longer, which began when answers
// had been heard.
func (g *guard) overdue(answers uint64) { g.silence.Store(answers) }

// hangs reports whether a load was overdue, and nothing has been heard of the
// database since that load began. It is known long before the load has failed.
func (g *guard) hangs() bool { return g.silence.Load() == g.answers.Load() }
