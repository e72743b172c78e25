package testenv

import (
	"sync"
	"testing"
	"time"
)

// Patience is how long a test, or a server that is to start, may take for what it does at once on an idle machine.
const Patience = 5 * time.Minute

// Eventually waits until the condition holds.
func Eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(Patience); !condition(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", Patience, what)
		}
	}
}

// Together runs the functions at once and returns their errors, in order.
func Together(fs ...func() error) []error {
	errs := make([]error, len(fs))
	start := make(chan struct{})
	var running sync.WaitGroup
	for i, f := range fs {
		running.Go(func() {
			<-start
			errs[i] = f()
		})
	}
	close(start)
	running.Wait()
	return errs
}
