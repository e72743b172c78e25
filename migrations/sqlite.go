package migrations

import (
	"context"
	"database/sql"
	"errors"
	"io"

	migratedb "github.com/golang-migrate/migrate/v4/database"

	"github.com/quotad/quotad/internal/database"
)

// sqlite works in one transaction that excludes all other writers, of other processes too: that is its lock. It is
// golang-migrate's driver at the same time, because the one that comes with it locks nobody but itself out, and takes
// every failure to read the version for "no version yet".
type sqlite struct {
	url  string
	ctx  context.Context // of the one session; golang-migrate passes none
	db   *sql.DB         // nil while the file may be missing
	conn *sql.Conn       // in the transaction; nil before it
}

func newSQLite(url string) (*sqlite, error) {
	s := &sqlite{url: url}
	there, err := database.SQLiteExists(url)
	if err == nil && there {
		s.db, err = database.OpenDirect(url)
	}
	return s, err
}

func (s *sqlite) lock(ctx context.Context) (held bool, err error) {
	if s.db == nil {
		if s.db, err = database.OpenDirect(s.url); err != nil {
			return false, err
		}
	}
	conn, err := s.db.Conn(ctx)
	if database.Busy(err) {
		return false, nil // another one is just making the file
	}
	if err != nil {
		return false, err
	}
	if _, err := conn.ExecContext(ctx, "BEGIN IMMEDIATE"); err != nil {
		closed := conn.Close()
		if database.Busy(err) {
			return false, closed
		}
		return false, errors.Join(err, closed)
	}
	s.conn = conn
	return true, nil
}

func (s *sqlite) driver(ctx context.Context) (migratedb.Driver, error) {
	s.ctx = ctx
	_, err := s.conn.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS schema_migrations (version bigint PRIMARY KEY, dirty boolean NOT NULL)")
	return s, err
}

func (s *sqlite) recorded(ctx context.Context) (version int, dirty bool, err error) {
	if s.db == nil {
		return migratedb.NilVersion, false, nil
	}
	there, err := s.has(ctx, "schema_migrations")
	if err != nil || !there {
		return migratedb.NilVersion, false, err
	}
	return recorded(s.row(ctx, "SELECT version, dirty FROM schema_migrations"))
}

func (s *sqlite) holds(ctx context.Context) (int, error) {
	there, err := s.has(ctx, "schema_history")
	if err != nil || !there {
		return migratedb.NilVersion, err
	}
	return holds(s.row(ctx, "SELECT max(version) FROM schema_history"))
}

func (s *sqlite) has(ctx context.Context, table string) (there bool, err error) {
	err = s.row(ctx, "SELECT EXISTS (SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = $1)", table).Scan(&there)
	return there, err
}

func (s *sqlite) row(ctx context.Context, query string, args ...any) *sql.Row {
	if s.conn != nil {
		return s.conn.QueryRowContext(ctx, query, args...)
	}
	return s.db.QueryRowContext(ctx, query, args...)
}

func (s *sqlite) close() error {
	var err error
	if s.conn != nil {
		_, err = s.conn.ExecContext(context.Background(), "COMMIT")
		err = errors.Join(err, s.conn.Close())
	}
	if s.db != nil {
		err = errors.Join(err, s.db.Close())
	}
	return err
}

// Run runs a file, all of it or nothing.
func (s *sqlite) Run(file io.Reader) error {
	text, err := io.ReadAll(file)
	if err != nil {
		return err
	}
	if err := s.exec("SAVEPOINT migration"); err != nil {
		return err
	}
	if err := s.exec(string(text)); err != nil {
		return errors.Join(err, s.exec("ROLLBACK TO migration"), s.exec("RELEASE migration"))
	}
	return s.exec("RELEASE migration")
}

// SetVersion records the version and whether a file is at work on it.
func (s *sqlite) SetVersion(version int, dirty bool) error {
	if err := s.exec("DELETE FROM schema_migrations"); err != nil {
		return err
	}
	if version < 0 && !dirty {
		return nil
	}
	return s.exec("INSERT INTO schema_migrations (version, dirty) VALUES ($1, $2)", version, dirty)
}

// Version returns what SetVersion recorded.
func (s *sqlite) Version() (version int, dirty bool, err error) { return s.recorded(s.ctx) }

func (s *sqlite) exec(query string, args ...any) error {
	_, err := s.conn.ExecContext(s.ctx, query, args...)
	return err
}

// Lock and Unlock have nothing to do: the session has the lock before golang-migrate begins and keeps it after.
func (s *sqlite) Lock() error { return nil }

// Unlock does nothing: see Lock.
func (s *sqlite) Unlock() error { return nil }

// Close does nothing: the session's close does it.
func (s *sqlite) Close() error { return nil }

// Open is never called: the session makes the driver itself.
func (s *sqlite) Open(string) (migratedb.Driver, error) { return nil, errors.ErrUnsupported }

// Drop is never called.
func (s *sqlite) Drop() error { return errors.ErrUnsupported }
