package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Engine is the kind of database behind a DB.
type Engine string

// The engines.
const (
	Postgres Engine = "postgres"
	SQLite   Engine = "sqlite"
)

// Options bound what a DB takes. The zero value works.
type Options struct {
	// Timeout is the longest that a statement, or a transaction as a whole, takes; 4 s by default.
	Timeout time.Duration
	// MaxConns is the most connections to Postgres; by default what pool_max_conns in the address says, else the
	// greater of 4 and the number of CPUs. SQLite has one writer and as many readers as this, 4 by default.
	MaxConns int
	// ConnectTimeout is the longest that making one connection to Postgres takes; by default what connect_timeout in
	// the address says, else 3 s.
	ConnectTimeout time.Duration
}

const (
	defaultTimeout        = 4 * time.Second
	defaultConnectTimeout = 3 * time.Second
	defaultReaders        = 4
)

// DB is an open database. Its methods may be called at once from many goroutines.
type DB struct {
	engine  Engine
	timeout time.Duration
	read    *sql.DB
	write   *sql.DB // the same as read in Postgres
	// Of Postgres only.
	pool   *pgxpool.Pool
	direct *pgx.ConnConfig
}

// EngineOf returns the engine that an address names.
func EngineOf(url string) (Engine, error) {
	scheme, _, _ := strings.Cut(url, "://")
	switch scheme {
	case "postgres", "postgresql":
		return Postgres, nil
	case "sqlite":
		return SQLite, nil
	}
	// The address may hold a password: it is not repeated.
	return "", errors.New("database address must start with postgres:// or sqlite://")
}

// Open opens the database at url. Postgres need not answer yet.
func Open(ctx context.Context, url string, o Options) (*DB, error) {
	if o.Timeout <= 0 {
		o.Timeout = defaultTimeout
	}
	engine, err := EngineOf(url)
	if err != nil {
		return nil, err
	}
	db := &DB{engine: engine, timeout: o.Timeout}
	if engine == Postgres {
		err = db.openPostgres(ctx, url, o)
	} else {
		err = db.openSQLite(url, o)
	}
	if err != nil {
		return nil, err
	}
	return db, nil
}

// OpenDirect opens the database at url by itself, without time bounds: for migrations. The caller closes it.
func OpenDirect(url string) (*sql.DB, error) {
	engine, err := EngineOf(url)
	if err != nil {
		return nil, err
	}
	if engine == Postgres {
		return directPostgres(url)
	}
	return directSQLite(url)
}

// Engine returns the kind of database.
func (db *DB) Engine() Engine { return db.engine }

// Close closes all connections; what still runs on them fails.
func (db *DB) Close() error {
	err := db.read.Close()
	if db.write != db.read {
		err = errors.Join(err, db.write.Close())
	}
	if db.pool != nil {
		db.pool.Close()
	}
	if err != nil {
		return fmt.Errorf("close the database: %w", err)
	}
	return nil
}

// Stats are the connections of a DB: of its pool in Postgres, of its readers and writer in SQLite.
type Stats struct {
	Max, InUse, Idle int
	// Waits counts those who had to wait for a connection since Open, Waited is how long they did together.
	Waits  int64
	Waited time.Duration
}

// Stats returns the state of the connections now.
func (db *DB) Stats() Stats {
	if db.pool != nil {
		s := db.pool.Stat()
		return Stats{
			Max: int(s.MaxConns()), InUse: int(s.AcquiredConns()), Idle: int(s.IdleConns()),
			Waits: s.EmptyAcquireCount(), Waited: s.EmptyAcquireWaitTime(),
		}
	}
	r, w := db.read.Stats(), db.write.Stats()
	return Stats{
		Max:   r.MaxOpenConnections + w.MaxOpenConnections,
		InUse: r.InUse + w.InUse, Idle: r.Idle + w.Idle,
		Waits: r.WaitCount + w.WaitCount, Waited: r.WaitDuration + w.WaitDuration,
	}
}

// Time is t as both engines keep it: UTC, cut to microseconds.
func Time(t time.Time) time.Time { return t.UTC().Truncate(time.Microsecond) }
