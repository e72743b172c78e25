package database

import (
	"context"
	"database/sql"
	"time"
)

// Reader is what a DB and a Tx have in common, for queries that run on either.
type Reader interface {
	QueryContext(ctx context.Context, query string, args ...any) (*Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *Row
}

// QueryContext runs a query that reads. The caller closes the rows.
func (db *DB) QueryContext(ctx context.Context, query string, args ...any) (*Rows, error) {
	return queryRows(ctx, db.read, time.Now().Add(db.timeout), query, args)
}

// QueryRowContext runs a query that reads one row.
func (db *DB) QueryRowContext(ctx context.Context, query string, args ...any) *Row {
	return queryRow(ctx, db.read, time.Now().Add(db.timeout), query, args)
}

// querier is a *sql.DB or *sql.Tx.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// bounded is the context of a statement: it ends at end or at ctx's own deadline, and not when ctx is cancelled, unless
// that has happened already.
func bounded(ctx context.Context, end time.Time) (context.Context, context.CancelFunc) {
	if ctx.Err() != nil {
		return context.WithCancel(ctx)
	}
	if own, ok := ctx.Deadline(); ok && own.Before(end) {
		end = own
	}
	return context.WithDeadline(context.WithoutCancel(ctx), end)
}

func queryRows(ctx context.Context, q querier, end time.Time, query string, args []any) (*Rows, error) {
	ctx, cancel := bounded(ctx, end)
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		defer cancel()
		return nil, mapError(ctx, query, err)
	}
	return &Rows{rows: rows, ctx: ctx, cancel: cancel, query: query}, nil
}

func queryRow(ctx context.Context, q querier, end time.Time, query string, args []any) *Row {
	rows, err := queryRows(ctx, q, end, query, args)
	return &Row{rows: rows, err: err}
}

func exec(ctx context.Context, q querier, end time.Time, query string, args []any) (int64, error) {
	ctx, cancel := bounded(ctx, end)
	defer cancel()
	result, err := q.ExecContext(ctx, query, args...)
	if err != nil {
		return 0, mapError(ctx, query, err)
	}
	n, err := result.RowsAffected()
	return n, mapError(ctx, query, err)
}

// Rows are sql.Rows whose errors are mapped.
type Rows struct {
	rows   *sql.Rows
	ctx    context.Context // of the one query, to tell its end from other failures
	cancel context.CancelFunc
	query  string
}

// Each calls f for each row, to Scan it, and closes the rows.
func (r *Rows) Each(f func() error) error {
	defer r.Close()
	for r.Next() {
		if err := f(); err != nil {
			return err
		}
	}
	if err := r.Err(); err != nil {
		return err
	}
	return r.Close()
}

// Next moves on to the next row.
func (r *Rows) Next() bool { return r.rows.Next() }

// Scan reads the row that Next moved to.
func (r *Rows) Scan(dest ...any) error { return mapError(r.ctx, r.query, r.rows.Scan(dest...)) }

// Err is why Next returned false, nil at the end of the rows.
func (r *Rows) Err() error { return mapError(r.ctx, r.query, r.rows.Err()) }

// Close gives the connection back.
func (r *Rows) Close() error {
	defer r.cancel()
	return mapError(r.ctx, r.query, r.rows.Close())
}

// Row is the one row of a query.
type Row struct {
	rows *Rows
	err  error
}

// Scan reads the row; quotad.ErrNotFound when there is none.
func (r *Row) Scan(dest ...any) error {
	if r.err != nil {
		return r.err
	}
	defer r.rows.Close()
	if !r.rows.Next() {
		if err := r.rows.Err(); err != nil {
			return err
		}
		return mapError(r.rows.ctx, r.rows.query, sql.ErrNoRows)
	}
	if err := r.rows.Scan(dest...); err != nil {
		return err
	}
	return r.rows.Close()
}
