package events

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/quotad/quotad/internal/database"
)

// The pauses between attempts to listen: they double from the first to the longest.
const (
	firstPause   = 250 * time.Millisecond
	longestPause = 2 * time.Second
)

// The longest that each step of listening may take.
const (
	connectTimeout = 5 * time.Second
	pingTimeout    = time.Second
	probeTimeout   = 5 * time.Second
)

// message is what travels on the channel: a notice, or the probe of a node that begins to listen.
type message struct {
	Notice
	Probe string `json:"probe,omitempty"`
}

// Run hears what other nodes write and tells the subscribers, until ctx ends; then it returns nil. It lives through every
// failure of the database.
func (l *Log) Run(ctx context.Context) error {
	listen := l.listen
	if l.db.Engine() == database.SQLite {
		listen = l.poll
	}
	pause := firstPause
	for {
		err := listen(ctx)
		if l.connected.Swap(false) {
			pause = firstPause
		}
		if ctx.Err() != nil {
			return nil
		}
		l.o.Logger.Warn("notices of other nodes do not arrive", "error", err, "retry_in", pause)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil
		}
		pause = min(2*pause, longestPause)
	}
}

// begun is called when whatever is written from now on will be heard.
func (l *Log) begun() {
	l.resync()
	l.connected.Store(true)
	l.o.Logger.Info("notices of other nodes arrive")
}

// listen hears the channel until something fails.
func (l *Log) listen(ctx context.Context) error {
	connecting, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	conn, err := l.db.Connect(connecting, l.o.ListenURL)
	if err != nil {
		return err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), pingTimeout)
		defer cancel()
		_ = conn.Close(closing) // it only listened
	}()
	if _, err := conn.Exec(connecting, "LISTEN "+channel); err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	if err := l.probe(ctx, conn); err != nil {
		return err
	}
	l.begun()
	for {
		waiting, cancel := context.WithTimeout(ctx, l.o.Idle)
		heard, err := conn.WaitForNotification(waiting)
		cancel()
		switch {
		case err == nil:
			l.hear(heard)
		case ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded):
			return fmt.Errorf("wait for a notification: %w", err)
		default:
			if err := ping(ctx, conn); err != nil {
				return fmt.Errorf("ping the listening connection: %w", err)
			}
		}
	}
}

// probe sends a notification through the database's own connections and waits for it to arrive: behind a pooler that
// gives each transaction another connection, LISTEN succeeds and nothing is ever heard.
func (l *Log) probe(ctx context.Context, conn *pgx.Conn) error {
	token := rand.Text()
	err := l.db.InTx(ctx, func(tx *database.Tx) error { return notify(ctx, tx, message{Probe: token}) })
	if err != nil {
		return fmt.Errorf("send a probe: %w", err)
	}
	waiting, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	for {
		heard, err := conn.WaitForNotification(waiting)
		if err != nil {
			return fmt.Errorf("a probe does not arrive (is the address that of a pooler in transaction mode?): %w", err)
		}
		if l.hear(heard) == token {
			return nil
		}
	}
}

// hear delivers a notification; one that is a probe it returns.
func (l *Log) hear(n *pgconn.Notification) (probe string) {
	var m message
	if err := json.Unmarshal([]byte(n.Payload), &m); err != nil {
		// Somebody else speaks on the channel; what he means nobody knows.
		l.resync()
		return ""
	}
	if m.Probe == "" {
		l.deliver(m.Notice)
	}
	return m.Probe
}

func ping(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	return conn.Ping(ctx)
}

// poll looks for rows that other processes wrote into the same SQLite file, until something fails. Rows of this process
// come by again.
func (l *Log) poll(ctx context.Context) error {
	var last int64
	if err := l.db.QueryRowContext(ctx, "SELECT coalesce(max(id), 0) FROM events").Scan(&last); err != nil {
		return fmt.Errorf("find the last event: %w", err)
	}
	l.begun()
	tick := time.NewTicker(l.o.Poll)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		notices, now, err := l.since(ctx, last)
		if err != nil {
			return fmt.Errorf("look for new events: %w", err)
		}
		for _, n := range notices {
			l.deliver(n)
		}
		last = now
	}
}

// since returns the notices of the events behind last, and the id of the last one.
func (l *Log) since(ctx context.Context, last int64) ([]Notice, int64, error) {
	rows, err := l.db.QueryContext(ctx, "SELECT id, resource, target, tenant, version FROM events WHERE id > $1 ORDER BY id", last)
	if err != nil {
		return nil, last, err
	}
	var notices []Notice
	err = rows.Each(func() error {
		var n Notice
		err := rows.Scan(&last, &n.Resource, &n.ID, &n.Tenant, &n.Version)
		notices = append(notices, n)
		return err
	})
	return notices, last, err
}
