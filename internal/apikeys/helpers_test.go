package apikeys_test

import (
	"sync"
	"testing"
	"time"
)

var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// patience is how long a test that is not about time waits on a busy machine.
const patience = 5 * time.Minute

// eventually waits for get to return something.
func eventually[T any](t *testing.T, get func() []T) []T {
	t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if got := get(); len(got) > 0 {
			return got
		}
	}
	t.Fatalf("nothing came within %v", patience)
	return nil
}

// lines is a writer that can be read while it is written to.
type lines struct {
	mu  sync.Mutex
	all []string
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, string(b))
	return len(b), nil
}

func (l *lines) taken() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.all
	l.all = nil
	return all
}
