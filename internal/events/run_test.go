package events_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/database"
	"github.com/quotad/quotad/internal/database/databasetest"
	"github.com/quotad/quotad/internal/events"
	"github.com/quotad/quotad/internal/testenv"
	"github.com/quotad/quotad/migrations"
)

// node is another node that listens.
type node struct {
	log     *events.Log
	resyncs atomic.Int64
	mu      sync.Mutex
	heard   []events.Notice
}

// startNode opens url once more and runs a log on it until the test ends.
func startNode(t *testing.T, url string, o events.Options) *node {
	t.Helper()
	n := &node{log: events.NewLog(databasetest.Open(t, url), o)}
	n.log.Subscribe(func(notice events.Notice) {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.heard = append(n.heard, notice)
	}, func() { n.resyncs.Add(1) })
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- n.log.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("Run returned %v", err)
			}
			if n.log.Connected() {
				t.Error("connected after the end of Run")
			}
		case <-time.After(testenv.Patience):
			t.Error("Run did not end with its context")
		}
	})
	return n
}

// ids are the targets of the notices heard so far.
func (n *node) ids() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	var ids []string
	for _, notice := range n.heard {
		ids = append(ids, notice.ID)
	}
	return ids
}

func (n *node) hears(id string) func() bool {
	return func() bool {
		for _, heard := range n.ids() {
			if heard == id {
				return true
			}
		}
		return false
	}
}

// hearsAnew records the target until it is heard: on a busy machine the connection may be given up once more meanwhile.
func (n *node) hearsAnew(t *testing.T, db *database.DB, log *events.Log, id string) func() bool {
	return func() bool {
		mustRecord(t, db, log, id, "")
		return n.hears(id)()
	}
}

// resynced waits for a call of resync beyond those that were seen.
func (n *node) resynced(seen int64) func() bool {
	return func() bool { return n.resyncs.Load() > seen && n.log.Connected() }
}

func TestOtherNodesHear(t *testing.T) {
	for engine, open := range map[string]func(t *testing.T) string{
		"postgres": func(t *testing.T) string { return databasetest.PostgresURL(t) },
		// Two processes on one file.
		"sqlite": func(t *testing.T) string {
			url := "sqlite://" + t.TempDir() + "/quotad.db"
			if err := migrations.Up(t.Context(), url); err != nil {
				t.Fatal(err)
			}
			return url
		},
	} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			url := open(t)
			db := databasetest.Open(t, url)
			log := newLog(db)
			mustRecord(t, db, log, "before", "") // nobody listens yet
			other := startNode(t, url, events.Options{})
			testenv.Eventually(t, "begin to listen", other.resynced(0))

			want := []string{}
			for i := range 5 {
				want = append(want, fmt.Sprint(i))
				mustRecord(t, db, log, fmt.Sprint(i), "acme")
			}
			testenv.Eventually(t, "hear the last", other.hears("4"))
			if diff := cmp.Diff(want, other.ids()); diff != "" {
				t.Errorf("heard (-want +got):\n%s", diff)
			}
			other.mu.Lock()
			defer other.mu.Unlock()
			if diff := cmp.Diff(events.Notice{Resource: quotad.ResourceTier, ID: "4", Tenant: "acme", Version: 2}, other.heard[4]); diff != "" {
				t.Errorf("notice (-want +got):\n%s", diff)
			}
			if n := other.resyncs.Load(); n != 1 {
				t.Errorf("%d resyncs, want 1", n)
			}
		})
	}
}

func TestRolledBackWriteIsNotHeard(t *testing.T) {
	t.Parallel()
	url := databasetest.PostgresURL(t)
	db := databasetest.Open(t, url)
	log := newLog(db)
	other := startNode(t, url, events.Options{})
	testenv.Eventually(t, "begin to listen", other.resynced(0))
	err := db.InTx(t.Context(), func(tx *database.Tx) error {
		if err := log.Record(t.Context(), tx, anna, "tier.updated", quotad.ResourceTier, "lost", "", 1, nil, nil); err != nil {
			t.Error(err)
		}
		return io.ErrUnexpectedEOF
	})
	if err == nil {
		t.Fatal("the transaction was committed")
	}
	mustRecord(t, db, log, "kept", "")
	testenv.Eventually(t, "hear the next", other.hears("kept"))
	if other.hears("lost")() {
		t.Error("heard of a write that was rolled back")
	}
}

func TestCancelledSubscriberHearsNothing(t *testing.T) {
	t.Parallel()
	db := databasetest.SQLite(t)
	log := newLog(db)
	heard := 0
	cancel := log.Subscribe(func(events.Notice) { heard++ }, func() {})
	mustRecord(t, db, log, "one", "")
	cancel()
	cancel()
	mustRecord(t, db, log, "two", "")
	if heard != 1 {
		t.Errorf("heard %d notices, want 1", heard)
	}
}

func TestKilledListenerComesBackAndResyncs(t *testing.T) {
	t.Parallel()
	url := databasetest.PostgresURL(t)
	db := databasetest.Open(t, url)
	log := newLog(db)
	other := startNode(t, url, events.Options{})
	testenv.Eventually(t, "begin to listen", other.resynced(0))
	for round := range 3 {
		var killed int
		seen := other.resyncs.Load()
		err := db.QueryRowContext(t.Context(), `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
			WHERE datname = current_database() AND query LIKE 'LISTEN%'`).Scan(&killed)
		if err != nil || killed != 1 {
			t.Fatalf("killed %d listening connections (%v), want 1", killed, err)
		}
		// Written while nobody listens: only the resync can cover it.
		mustRecord(t, db, log, fmt.Sprint("missed", round), "")
		testenv.Eventually(t, "resync", other.resynced(seen))
		testenv.Eventually(t, "hear again", other.hearsAnew(t, db, log, fmt.Sprint("after", round)))
	}
}

func TestListenerSurvivesTheServer(t *testing.T) {
	t.Parallel()
	server := testenv.OwnPostgres(t)
	if err := migrations.Up(t.Context(), server.URL()); err != nil {
		t.Fatal(err)
	}
	db := databasetest.Open(t, server.URL())
	log := newLog(db)
	other := startNode(t, server.URL(), events.Options{})
	testenv.Eventually(t, "begin to listen", other.resynced(0))

	server.Stop()
	testenv.Eventually(t, "notice the end", func() bool { return !other.log.Connected() })
	seen := other.resyncs.Load()
	server.Start()
	testenv.Eventually(t, "resync after the restart", other.resynced(seen))
	testenv.Eventually(t, "hear after the restart", other.hearsAnew(t, db, log, "restarted"))

	server.Freeze()
	testenv.Eventually(t, "notice the freeze", func() bool { return !other.log.Connected() })
	seen = other.resyncs.Load()
	server.Resume()
	testenv.Eventually(t, "resync after the freeze", other.resynced(seen))
	testenv.Eventually(t, "write after the freeze", func() bool { return record(t.Context(), db, log, "resumed", "") == nil })
	testenv.Eventually(t, "hear after the freeze", other.hearsAnew(t, db, log, "resumed again"))
}

func TestHalfDeadConnectionIsNoticed(t *testing.T) {
	t.Parallel()
	address := databasetest.PostgresURL(t)
	db := databasetest.Open(t, address)
	log := newLog(db)
	wire := newWire(t, address)
	other := startNode(t, address, events.Options{ListenURL: wire.url, Idle: 200 * time.Millisecond})
	testenv.Eventually(t, "begin to listen", other.resynced(0))

	wire.cut.Store(true) // both ends stay open, nothing arrives any more
	mustRecord(t, db, log, "swallowed", "")
	testenv.Eventually(t, "notice the silence", func() bool { return !other.log.Connected() })
	seen := other.resyncs.Load()
	wire.cut.Store(false)
	testenv.Eventually(t, "resync", other.resynced(seen))
	testenv.Eventually(t, "hear again", other.hearsAnew(t, db, log, "after"))
}

func TestListenerThatHearsNothingIsNotConnected(t *testing.T) {
	t.Parallel()
	address := databasetest.PostgresURL(t)
	// Another database stands for a pooler: LISTEN succeeds, notifications never arrive.
	elsewhere := testenv.Postgres(t)
	n := startNode(t, address, events.Options{ListenURL: elsewhere})
	listening := databasetest.Open(t, elsewhere)
	testenv.Eventually(t, "listen elsewhere", func() bool {
		var sessions int
		err := listening.QueryRowContext(t.Context(), `SELECT count(*) FROM pg_stat_activity
			WHERE datname = current_database() AND query LIKE 'LISTEN%'`).Scan(&sessions)
		return err == nil && sessions == 1
	})
	for end := time.Now().Add(time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if n.log.Connected() {
			t.Fatal("connected, and no notice arrives")
		}
	}
}

func TestStrangeNotificationCausesAResync(t *testing.T) {
	t.Parallel()
	url := databasetest.PostgresURL(t)
	db := databasetest.Open(t, url)
	other := startNode(t, url, events.Options{})
	testenv.Eventually(t, "begin to listen", other.resynced(0))
	err := db.InTx(t.Context(), func(tx *database.Tx) error {
		_, err := tx.ExecContext(t.Context(), "SELECT pg_notify('quotad', 'hello')")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "resync", other.resynced(1))
}

// wire forwards connections to a server until it is cut; then what it reads it drops.
type wire struct {
	url string
	cut atomic.Bool
}

func newWire(t *testing.T, address string) *wire {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	server := u.Host
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	u.Host = listener.Addr().String()
	w := &wire{url: u.String()}
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			upstream, err := net.Dial("tcp", server)
			if err != nil {
				client.Close()
				continue
			}
			go w.forward(client, upstream)
			go w.forward(upstream, client)
		}
	}()
	return w
}

func (w *wire) forward(from, to net.Conn) {
	defer from.Close()
	defer to.Close()
	buf := make([]byte, 4096)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		if w.cut.Load() {
			continue
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}
