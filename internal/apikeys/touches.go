package apikeys

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// Toucher stores when keys were last used, such as *Store.
type Toucher interface {
	Touch(ctx context.Context, used map[string]time.Time) error
}

// TouchesOptions set how often and how much Touches writes; the zero value works.
type TouchesOptions struct {
	// Interval is the time between two flushes; 30 s by default.
	Interval time.Duration
	// Step is how much newer a use must be than the last one written before it
	// is written too; 1 min by default. It is what last_used_at is exact to.
	Step time.Duration
	// MaxKeys is the most keys remembered at once; 100 000 by default (about
	// 100 bytes each). With more in use a flush is made at once, and uses of
	// further keys are not noted until it is done.
	MaxKeys int
	// Now is the clock; time.Now by default.
	Now func() time.Time
	// Logger gets a warning for each flush that failed; none by default.
	Logger *slog.Logger
}

// Touches remembers the newest use of each key and writes them together, so
// that a call costs no write. What was not flushed is lost with the process.
type Touches struct {
	store   Toucher
	options TouchesOptions
	// full asks Run for a flush ahead of time.
	full chan struct{}

	mu    sync.RWMutex // guards the map; the notes themselves are atomic
	notes map[string]*note
}

// note is in microseconds since 1970; 0 is never.
type note struct {
	used    atomic.Int64
	written atomic.Int64
}

// NewTouches returns Touches that write to store once Run runs.
func NewTouches(store Toucher, options TouchesOptions) *Touches {
	if options.Interval <= 0 {
		options.Interval = 30 * time.Second
	}
	if options.Step <= 0 {
		options.Step = time.Minute
	}
	if options.MaxKeys <= 0 {
		options.MaxKeys = 100_000
	}
	if options.Now == nil {
		options.Now = time.Now
	}
	if options.Logger == nil {
		options.Logger = slog.New(slog.DiscardHandler)
	}
	return &Touches{store: store, options: options, full: make(chan struct{}, 1), notes: map[string]*note{}}
}

// Note records that a key was used; an older time than the one noted changes
// nothing. It does no I/O, and for a key that is remembered it does not allocate.
func (t *Touches) Note(id string, now time.Time) {
	used := now.UnixMicro()
	t.mu.RLock()
	n, known := t.notes[id]
	if known {
		n.raise(used)
	}
	t.mu.RUnlock()
	if !known {
		t.add(id, used)
	}
}

func (t *Touches) add(id string, used int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n, known := t.notes[id]
	if !known {
		if len(t.notes) >= t.options.MaxKeys {
			select {
			case t.full <- struct{}{}:
			default: // a flush is asked for already
			}
			return
		}
		n = &note{}
		t.notes[id] = n
	}
	n.raise(used)
}

func (n *note) raise(used int64) {
	for {
		old := n.used.Load()
		if old >= used || n.used.CompareAndSwap(old, used) {
			return
		}
	}
}

// Run flushes at every interval until ctx is done, and once more then. It
// returns the error of that last flush; one that failed before it was logged,
// and what it had to write is in the next.
func (t *Touches) Run(ctx context.Context) error {
	ticker := time.NewTicker(t.options.Interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			// The store bounds the time of its own statements.
			return t.Flush(context.WithoutCancel(ctx))
		case <-ticker.C:
		case <-t.full:
		}
		if err := t.Flush(ctx); err != nil && ctx.Err() == nil {
			t.options.Logger.WarnContext(ctx, "last uses of keys were not written", "error", err)
		}
	}
}

// Flush writes the uses that are at least a step newer than what was written.
// After an error all of them are still there for the next flush. Flushes must
// not overlap: where Run runs, it alone calls Flush.
func (t *Touches) Flush(ctx context.Context) error {
	due := map[string]time.Time{}
	t.mu.RLock()
	for id, n := range t.notes {
		if used := n.used.Load(); t.due(used, n.written.Load()) {
			due[id] = time.UnixMicro(used).UTC()
		}
	}
	t.mu.RUnlock()
	if len(due) > 0 {
		if err := t.store.Touch(ctx, due); err != nil {
			return fmt.Errorf("write the last use of %d keys: %w", len(due), err)
		}
	}
	t.forget(due)
	return nil
}

// Pending is how many keys have a use that the next flush would write.
func (t *Touches) Pending() int {
	t.mu.RLock()
	defer t.mu.RUnlock()
	pending := 0
	for _, n := range t.notes {
		if t.due(n.used.Load(), n.written.Load()) {
			pending++
		}
	}
	return pending
}

func (t *Touches) due(used, written int64) bool {
	return written == 0 || used-written >= t.options.Step.Microseconds()
}

// forget marks what was written and drops the notes that have nothing left to
// say: those of keys that fell idle or, where there is no room for other keys,
// all that are written.
func (t *Touches) forget(written map[string]time.Time) {
	idle := t.options.Now().Add(-t.options.Step).UnixMicro()
	t.mu.Lock()
	defer t.mu.Unlock()
	for id, at := range written {
		t.notes[id].written.Store(at.UnixMicro())
	}
	full := len(t.notes) >= t.options.MaxKeys
	for id, n := range t.notes {
		if w := n.written.Load(); !t.due(n.used.Load(), w) && (full || w <= idle) {
			delete(t.notes, id)
		}
	}
}
