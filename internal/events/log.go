package events

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/database"
)

// Notice says that a resource was written.
type Notice struct {
	Resource quotad.Resource `json:"resource"`
	// ID is the resource's id or name, Tenant the tenant concerned or "".
	ID     string `json:"id"`
	Tenant string `json:"tenant,omitempty"`
	// Version is the resource's after the write.
	Version int64 `json:"version"`
}

// Options of a Log. The zero value works.
type Options struct {
	// Now is the clock of the events; time.Now by default.
	Now func() time.Time
	// Logger hears when listening begins and is interrupted; nobody by default.
	Logger *slog.Logger
	// ListenURL is an address of the same Postgres that leads to the server itself, where the database's own address is
	// a pooler's; "" means that one.
	ListenURL string
	// Idle is how long the listening connection may be silent before it is pinged; 2 s by default.
	Idle time.Duration
	// Poll is how often a SQLite file is looked at for what other processes wrote; 500 ms by default.
	Poll time.Duration
}

// Log is the table of events.
type Log struct {
	db        *database.DB
	o         Options
	connected atomic.Bool

	mu          sync.Mutex
	next        int
	subscribers map[int]subscriber
}

type subscriber struct {
	notice func(Notice)
	resync func()
}

// NewLog returns the log of db.
func NewLog(db *database.DB, o Options) *Log {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Idle <= 0 {
		o.Idle = 2 * time.Second
	}
	if o.Poll <= 0 {
		o.Poll = 500 * time.Millisecond
	}
	return &Log{db: db, o: o, subscribers: map[int]subscriber{}}
}

// Subscribe has notice called for every write, of this node and others, and resync whenever notices may have been
// missed. Both are called on the goroutine of the writer or of Run, so they must be quick, and must not write. After
// cancel neither is called again, except by calls that have begun.
func (l *Log) Subscribe(notice func(Notice), resync func()) (cancel func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	id := l.next
	l.next++
	l.subscribers[id] = subscriber{notice: notice, resync: resync}
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.subscribers, id)
	}
}

// Connected reports whether notices of other nodes arrive.
func (l *Log) Connected() bool { return l.connected.Load() }

func (l *Log) deliver(n Notice) {
	for _, s := range l.all() {
		s.notice(n)
	}
}

func (l *Log) resync() {
	for _, s := range l.all() {
		s.resync()
	}
}

func (l *Log) all() []subscriber {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make([]subscriber, 0, len(l.subscribers))
	for _, s := range l.subscribers {
		all = append(all, s)
	}
	return all
}
