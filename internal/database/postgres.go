package database

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
)

// pingTimeout is how long a pooled connection that was idle may take to show that it lives before another one is tried.
const pingTimeout = time.Second

func (db *DB) openPostgres(ctx context.Context, url string, o Options) error {
	config, err := parsePostgres(url, o.ConnectTimeout)
	if err != nil {
		return err
	}
	if o.MaxConns > 0 {
		config.MaxConns = int32(o.MaxConns)
	}
	config.PingTimeout = pingTimeout
	config.AfterConnect = timesInUTC
	if config.MaxConnLifetimeJitter == 0 {
		config.MaxConnLifetimeJitter = config.MaxConnLifetime / 10
	}
	db.pool, err = pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return fmt.Errorf("open postgres: %w", err)
	}
	db.direct = config.ConnConfig.Copy()
	db.read = stdlib.OpenDBFromPool(db.pool)
	db.write = db.read
	return nil
}

// parsePostgres reads an address. Statements are not prepared under a name unless the address asks for it: a pooler in
// transaction mode gives each transaction another connection, which does not know the name.
func parsePostgres(url string, connectTimeout time.Duration) (*pgxpool.Config, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("read the postgres address: %w", err) // pgx leaves the password out of its error
	}
	if !strings.Contains(url, "default_query_exec_mode=") {
		config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	}
	switch {
	case connectTimeout > 0:
		config.ConnConfig.ConnectTimeout = connectTimeout
	case !strings.Contains(url, "connect_timeout="):
		config.ConnConfig.ConnectTimeout = defaultConnectTimeout
	}
	if config.ConnConfig.RuntimeParams["application_name"] == "" {
		config.ConnConfig.RuntimeParams["application_name"] = "quotad"
	}
	return config, nil
}

// timesInUTC makes a connection return times in UTC, as SQLite's do.
func timesInUTC(_ context.Context, conn *pgx.Conn) error {
	conn.TypeMap().RegisterType(&pgtype.Type{
		Name: "timestamptz", OID: pgtype.TimestamptzOID, Codec: &pgtype.TimestamptzCodec{ScanLocation: time.UTC},
	})
	return nil
}

func directPostgres(url string) (*sql.DB, error) {
	config, err := parsePostgres(url, 0)
	if err != nil {
		return nil, err
	}
	return stdlib.OpenDB(*config.ConnConfig, stdlib.OptionAfterConnect(endWithClient)), nil
}

// endWithClient has the server (from version 14 on) give up what it does for a client that is gone, rather than finish
// it: nobody would learn how it ended, and everybody would wait for its locks.
func endWithClient(ctx context.Context, conn *pgx.Conn) error {
	_, err := conn.Exec(ctx, "SELECT set_config(name, '1000', false) FROM pg_settings WHERE name = 'client_connection_check_interval'") // ms
	return err
}

// Connect makes a connection to Postgres outside the pool, to LISTEN on: to the address of Open, or to url where that
// one is a pooler's. The caller closes it.
func (db *DB) Connect(ctx context.Context, url string) (*pgx.Conn, error) {
	if db.engine != Postgres {
		return nil, fmt.Errorf("connect to postgres: the database is %s", db.engine)
	}
	direct := db.direct
	if url != "" {
		config, err := parsePostgres(url, 0)
		if err != nil {
			return nil, err
		}
		direct = config.ConnConfig
	}
	conn, err := pgx.ConnectConfig(ctx, direct)
	if err != nil {
		return nil, fmt.Errorf("connect to postgres: %w", mapError(ctx, "", err))
	}
	return conn, nil
}
