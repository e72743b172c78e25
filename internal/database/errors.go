package database

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/puddle/v2"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/quotad/quotad"
)

// ErrMissingReference is behind the quotad.ErrInvalidFields of a row that refers to one that is not there. The caller
// knows which field that is.
var ErrMissingReference = errors.New("a row refers to one that does not exist")

// errLost is behind the quotad.ErrConflict of a transaction that failed only because of others that ran beside it.
var errLost = errors.New("the transaction was given up in favour of another")

// retryAfter is what a caller who meets ErrStoreUnavailable is told to wait.
const retryAfter = time.Second

// mapError turns a driver's error into one of the root's kinds. ctx is the statement's own context.
func mapError(ctx context.Context, query string, err error) error {
	var known *quotad.Error
	if err == nil || errors.As(err, &known) {
		return err
	}
	var connect *pgconn.ConnectError
	var pg *pgconn.PgError
	var lite *sqlite.Error
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return &quotad.Error{Code: quotad.CodeNotFound, Cause: err}
	case errors.Is(err, context.Canceled):
		return err // the caller's doing, before the statement began
	case errors.Is(err, context.DeadlineExceeded):
		return unavailable(err)
	case errors.Is(err, sql.ErrTxDone) && over(ctx):
		return unavailable(errors.Join(err, cmp.Or(ctx.Err(), context.DeadlineExceeded))) // the transaction outlived its bound and was rolled back
	case errors.As(err, &connect):
		return unavailable(err) // whatever the server's reason: it was not our statement
	case errors.As(err, &pg):
		return mapPostgres(query, pg, err)
	case errors.As(err, &lite):
		return mapSQLite(query, lite, err)
	case connectionFailed(err):
		return unavailable(err)
	}
	return err
}

// over reports whether ctx has ended, or is about to: the transaction has the same deadline as its statements, and may
// be told of it before them.
func over(ctx context.Context) bool {
	deadline, bounded := ctx.Deadline()
	return ctx.Err() != nil || bounded && !time.Now().Before(deadline)
}

// Busy reports whether err is SQLite's "database is locked": another process writes.
func Busy(err error) bool {
	var lite *sqlite.Error
	return errors.As(err, &lite) && lite.Code()&0xff == sqlite3.SQLITE_BUSY
}

// connectionFailed reports whether there was no server to answer, in whatever way.
func connectionFailed(err error) bool {
	var network net.Error
	return errors.As(err, &network) || pgconn.SafeToRetry(err) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, driver.ErrBadConn) || errors.Is(err, sql.ErrConnDone) || errors.Is(err, puddle.ErrClosedPool) ||
		strings.HasSuffix(err.Error(), "sql: database is closed")
}

// mapPostgres goes by the SQLSTATE, whose first two characters are a class.
func mapPostgres(query string, pg *pgconn.PgError, err error) error {
	switch pg.Code {
	case "23505", "23P01": // unique_violation, exclusion_violation
		return kind(quotad.CodeExists, err)
	case "23503", "23001": // foreign_key_violation, restrict_violation
		return reference(query, err)
	case "40001", "40P01": // serialization_failure, deadlock_detected
		return kind(quotad.CodeConflict, fmt.Errorf("%w: %w", errLost, err))
	case "57014", "55P03", "25006": // query_canceled by a timeout of the server, lock_not_available, a read-only replica
		return unavailable(err)
	}
	switch pg.Code[:min(2, len(pg.Code))] {
	case "22", "23": // data exception; the other integrity constraints
		return kind(quotad.CodeInvalidFields, err)
	case "08", "28", "3D", "53", "57", "58": // connection, login, no such database, resources, operator's doing, system
		return unavailable(err)
	}
	return err
}

// mapSQLite goes by the extended result code, whose low byte is the primary one.
func mapSQLite(query string, lite *sqlite.Error, err error) error {
	switch lite.Code() {
	case sqlite3.SQLITE_CONSTRAINT_UNIQUE, sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY, sqlite3.SQLITE_CONSTRAINT_ROWID:
		return kind(quotad.CodeExists, err)
	case sqlite3.SQLITE_CONSTRAINT_FOREIGNKEY:
		return reference(query, err)
	}
	switch lite.Code() & 0xff {
	case sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_MISMATCH:
		return kind(quotad.CodeInvalidFields, err)
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_INTERRUPT,
		sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_FULL, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PROTOCOL,
		sqlite3.SQLITE_NOTADB:
		return unavailable(err)
	}
	return err
}

// reference is a violated foreign key: of a row that others still refer to when one is deleted, else of a row that
// refers to nothing. The engines do not tell the two apart in a way that can be relied on; the statement does.
func reference(query string, err error) error {
	if verb, _, _ := strings.Cut(strings.TrimSpace(query), " "); strings.EqualFold(verb, "DELETE") {
		return kind(quotad.CodeInUse, err)
	}
	return kind(quotad.CodeInvalidFields, fmt.Errorf("%w: %w", ErrMissingReference, err))
}

func kind(code quotad.Code, cause error) error { return &quotad.Error{Code: code, Cause: cause} }

func unavailable(err error) error {
	return &quotad.Error{Code: quotad.CodeStoreUnavailable, RetryAfter: retryAfter, Cause: err}
}
