package apikeys_test

import (
	"sync"
	"testing"
	"time"

	"github.com/quotad/quotad/internal/testenv"
)

// eventually waits for get to return something.
func eventually[T any](t *testing.T, get func() []T) []T {
	t.Helper()
	for deadline := time.Now().Add(testenv.Patience); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if got := get(); len(got) > 0 {
			return got
		}
	}
	t.Fatalf("nothing came within %v", testenv.Patience)
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
