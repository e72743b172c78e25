package migrations

import (
	"context"
	"database/sql"
	"errors"

	migratedb "github.com/golang-migrate/migrate/v4/database"
	pgxmigrate "github.com/golang-migrate/migrate/v4/database/pgx/v5"

	"github.com/quotad/quotad/internal/database"
)

// postgres holds an advisory lock of its session, beside the one that golang-migrate takes for each of its steps.
type postgres struct {
	url  string
	db   *sql.DB
	conn *sql.Conn
}

func newPostgres(url string) (*postgres, error) {
	db, err := database.OpenDirect(url)
	return &postgres{url: url, db: db}, err
}

func (p *postgres) lock(ctx context.Context) (held bool, err error) {
	if p.conn == nil {
		if p.conn, err = p.db.Conn(ctx); err != nil {
			return false, err
		}
	}
	err = p.conn.QueryRowContext(ctx,
		"SELECT pg_try_advisory_lock(hashtextextended('quotad migrations in ' || current_schema(), 0))").Scan(&held)
	return held, err
}

// driver opens a second connection: golang-migrate closes what it was given.
func (p *postgres) driver(context.Context) (migratedb.Driver, error) {
	db, err := database.OpenDirect(p.url)
	if err != nil {
		return nil, err
	}
	driver, err := pgxmigrate.WithInstance(db, &pgxmigrate.Config{})
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return driver, nil
}

func (p *postgres) recorded(ctx context.Context) (version int, dirty bool, err error) {
	there, err := p.has(ctx, pgxmigrate.DefaultMigrationsTable)
	if err != nil || !there {
		return migratedb.NilVersion, false, err
	}
	return recorded(p.db.QueryRowContext(ctx, "SELECT version, dirty FROM schema_migrations"))
}

func (p *postgres) holds(ctx context.Context) (int, error) {
	there, err := p.has(ctx, "schema_history")
	if err != nil || !there {
		return migratedb.NilVersion, err
	}
	return holds(p.db.QueryRowContext(ctx, "SELECT max(version) FROM schema_history"))
}

func (p *postgres) has(ctx context.Context, table string) (there bool, err error) {
	err = p.db.QueryRowContext(ctx, "SELECT to_regclass(quote_ident(current_schema()) || '.' || $1) IS NOT NULL", table).Scan(&there)
	return there, err
}

func (p *postgres) close() error {
	if p.conn == nil {
		return p.db.Close()
	}
	// Said, because the server may notice the end of a session late.
	_, err := p.conn.ExecContext(context.Background(), "SELECT pg_advisory_unlock_all()")
	return errors.Join(err, p.conn.Close(), p.db.Close())
}

// recorded reads the one row of schema_migrations.
func recorded(row *sql.Row) (version int, dirty bool, err error) {
	err = row.Scan(&version, &dirty)
	if errors.Is(err, sql.ErrNoRows) {
		return migratedb.NilVersion, false, nil
	}
	return version, dirty, err
}

// holds reads the greatest version of schema_history.
func holds(row *sql.Row) (int, error) {
	var version sql.NullInt64
	if err := row.Scan(&version); err != nil || !version.Valid {
		return migratedb.NilVersion, err
	}
	return int(version.Int64), nil
}
