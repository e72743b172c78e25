package httpapi

import (
	"errors"
	"log/slog"
	"sync"
	"time"
)

// seldom lets a thing be said once in a while, by kind. Kinds come from a small
// fixed set.
type seldom struct {
	mu    sync.Mutex
	next  map[string]time.Time
	muted map[string]int
}

// due reports whether the kind is to be said now, and how often it was not since
// the last time.
func (s *seldom) due(kind string, now time.Time, every time.Duration) (muted int, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.next == nil {
		s.next, s.muted = map[string]time.Time{}, map[string]int{}
	}
	if now.Before(s.next[kind]) {
		s.muted[kind]++
		return 0, false
	}
	muted = s.muted[kind]
	s.next[kind], s.muted[kind] = now.Add(every), 0
	return muted, true
}

// logFailure logs what nobody foresaw: every panic, and one line in a second of
// other errors. Stores that are away are the Checker's to log.
func (x *exchange) logFailure(err error) {
	attrs := []any{
		slog.String("door", x.door.String()), slog.String("request_id", x.id), slog.String("error", err.Error()),
	}
	var p *panicked
	if errors.As(err, &p) {
		x.logger.Error("handler panicked", append(attrs, slog.String("stack", string(p.stack)))...)
		return
	}
	if muted, ok := x.seldom.due("failed", x.now(), time.Second); ok {
		x.logger.Error("call failed", append(attrs, slog.Int("muted", muted))...)
	}
}
