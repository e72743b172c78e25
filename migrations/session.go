package migrations

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/golang-migrate/migrate/v4"
	migratedb "github.com/golang-migrate/migrate/v4/database"
	"github.com/golang-migrate/migrate/v4/source"
	"github.com/golang-migrate/migrate/v4/source/iofs"

	"github.com/quotad/quotad/internal/database"
)

// retryLock is how often somebody who waits for the lock looks whether it is free. He looks, rather than wait inside
// the database, because Postgres lets no index be built concurrently while a statement waits.
const retryLock = 100 * time.Millisecond

// session is the one holder of the lock.
type session struct {
	ctx     context.Context // of the one call that the session is for, never cancelled
	engine  engine
	migrate *migrate.Migrate
	latest  uint
}

// engine is what the two databases do each in its own way, on a connection of its own.
type engine interface {
	// lock returns false when somebody else holds the lock.
	lock(ctx context.Context) (bool, error)
	// driver returns what golang-migrate works on; called under the lock.
	driver(ctx context.Context) (migratedb.Driver, error)
	// recorded is the version in schema_migrations, migratedb.NilVersion where there is none; it makes nothing.
	recorded(ctx context.Context) (version int, dirty bool, err error)
	// holds is the latest version in schema_history, migratedb.NilVersion where there is none.
	holds(ctx context.Context) (version int, err error)
	// close gives up the lock and the connection.
	close() error
}

// open waits for the lock.
func open(ctx context.Context, url string, files fs.FS) (*session, error) {
	e, src, latest, err := prepare(url, files)
	if err != nil {
		return nil, err
	}
	s := &session{ctx: context.WithoutCancel(ctx), engine: e, latest: latest}
	if err := s.begin(ctx, src); err != nil {
		return nil, errors.Join(err, e.close())
	}
	return s, nil
}

func (s *session) begin(ctx context.Context, src source.Driver) error {
	for {
		held, err := s.engine.lock(ctx)
		if err != nil {
			return fmt.Errorf("take the migration lock: %w", err)
		}
		if held {
			break
		}
		select {
		case <-time.After(retryLock):
		case <-ctx.Done():
			return fmt.Errorf("wait for another node that is migrating: %w", ctx.Err())
		}
	}
	driver, err := s.engine.driver(s.ctx)
	if err != nil {
		return fmt.Errorf("prepare to migrate: %w", err)
	}
	s.migrate, err = migrate.NewWithInstance("iofs", src, "quotad", driver)
	return err
}

func (s *session) close() error {
	_, err := s.migrate.Close()
	return errors.Join(err, s.engine.close())
}

func (s *session) state() (State, error) { return read(s.ctx, s.engine, s.latest) }

// status reads the state without the lock.
func status(ctx context.Context, url string, files fs.FS) (state State, err error) {
	e, _, latest, err := prepare(url, files)
	if err != nil {
		return State{}, err
	}
	defer func() { err = errors.Join(err, e.close()) }()
	return read(ctx, e, latest)
}

func read(ctx context.Context, e engine, latest uint) (State, error) {
	version, dirty, err := e.recorded(ctx)
	if err != nil {
		return State{}, fmt.Errorf("read the schema version: %w", err)
	}
	return State{Version: uint(max(version, 0)), Latest: latest, Dirty: dirty}, nil
}

// prepare finds the engine of the address and the files for it.
func prepare(url string, files fs.FS) (engine, source.Driver, uint, error) {
	name, err := database.EngineOf(url)
	if err != nil {
		return nil, nil, 0, err
	}
	src, latest, err := sources(name, files)
	if err != nil {
		return nil, nil, 0, err
	}
	var e engine
	if name == database.Postgres {
		e, err = newPostgres(url)
	} else {
		e, err = newSQLite(url)
	}
	return e, src, latest, err
}

// sources reads the files for an engine, and the latest version that they make.
func sources(engine database.Engine, files fs.FS) (source.Driver, uint, error) {
	src, err := iofs.New(files, string(engine))
	if err != nil {
		return nil, 0, fmt.Errorf("read the migration files: %w", err)
	}
	latest, err := latestOf(src)
	if err != nil {
		return nil, 0, fmt.Errorf("read the migration files: %w", err)
	}
	return src, latest, nil
}

func latestOf(src source.Driver) (uint, error) {
	v, err := src.First()
	for err == nil {
		var next uint
		if next, err = src.Next(v); err == nil {
			v = next
		}
	}
	if errors.Is(err, os.ErrNotExist) {
		return v, nil
	}
	return 0, err
}
