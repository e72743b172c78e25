package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/quotad/quotad"
)

// attempts is how often InTx runs a transaction that loses against others, and firstPause the longest pause after the
// first loss; it doubles with each one.
const (
	attempts   = 6
	firstPause = 10 * time.Millisecond
)

// Tx is a transaction.
type Tx struct {
	tx          *sql.Tx
	engine      Engine
	end         time.Time // of the transaction as a whole
	afterCommit []func()
}

// InTx runs f in a transaction, and commits it if f returns nil, else rolls it back and returns f's error. A transaction
// that Postgres gives up in favour of another one (a serialization failure, a deadlock) is run again, f included, a
// bounded number of times: f must have no effect outside tx, except through AfterCommit.
func (db *DB) InTx(ctx context.Context, f func(tx *Tx) error) error {
	end := time.Now().Add(db.timeout)
	for attempt := 1; ; attempt++ {
		err := db.try(ctx, end, f)
		if attempt == attempts || !errors.Is(err, errLost) {
			return err
		}
		pause := rand.N(firstPause << (attempt - 1))
		if time.Until(end) < pause {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return fmt.Errorf("repeat the transaction: %w", ctx.Err())
		}
	}
}

func (db *DB) try(ctx context.Context, end time.Time, f func(tx *Tx) error) (err error) {
	bound, cancel := bounded(ctx, end)
	defer cancel()
	begun, err := db.write.BeginTx(bound, nil)
	if err != nil {
		return fmt.Errorf("begin a transaction: %w", mapError(bound, "", err))
	}
	tx := &Tx{tx: begun, engine: db.engine, end: end}
	defer func() {
		if p := recover(); p != nil {
			_ = begun.Rollback() // the panic goes on
			panic(p)
		}
	}()
	if err := f(tx); err != nil {
		if rolledBack := begun.Rollback(); rolledBack != nil && !errors.Is(rolledBack, sql.ErrTxDone) {
			return errors.Join(err, fmt.Errorf("roll back: %w", mapError(bound, "", rolledBack)))
		}
		return err
	}
	if err := begun.Commit(); err != nil {
		return fmt.Errorf("commit: %w", mapError(bound, "", err))
	}
	for _, g := range tx.afterCommit {
		g()
	}
	return nil
}

// Engine returns the kind of database.
func (tx *Tx) Engine() Engine { return tx.engine }

// ExecContext runs a statement and returns how many rows it inserted, updated or deleted.
func (tx *Tx) ExecContext(ctx context.Context, query string, args ...any) (rows int64, err error) {
	return exec(ctx, tx.tx, tx.end, query, args)
}

// QueryContext runs a query; it may write, with RETURNING. The caller closes the rows before the next statement.
func (tx *Tx) QueryContext(ctx context.Context, query string, args ...any) (*Rows, error) {
	return queryRows(ctx, tx.tx, tx.end, query, args)
}

// QueryRowContext runs a query for one row; it may write, with RETURNING.
func (tx *Tx) QueryRowContext(ctx context.Context, query string, args ...any) *Row {
	return queryRow(ctx, tx.tx, tx.end, query, args)
}

// AfterCommit has f called when the transaction has been committed, before InTx returns: in the order of the calls, on
// the goroutine of InTx. After a rollback f is forgotten.
func (tx *Tx) AfterCommit(f func()) { tx.afterCommit = append(tx.afterCommit, f) }

// CheckVersion refuses a write that was made for another version of a resource than it has. A nil ifMatch fits any.
func CheckVersion(ifMatch *int64, version int64) error {
	if ifMatch == nil || *ifMatch == version {
		return nil
	}
	return quotad.NewError(quotad.CodePreconditionFailed, fmt.Sprintf("If-Match names version %d, and the version is %d", *ifMatch, version))
}

// Lock waits until no other transaction holds the named lock, a row of the table locks, and holds it until this
// transaction ends. It is for decisions over a whole table, such as whether the last owner may go.
func (tx *Tx) Lock(ctx context.Context, name string) error {
	n, err := tx.ExecContext(ctx, "UPDATE locks SET taken = taken + 1 WHERE name = $1", name)
	if err != nil {
		return fmt.Errorf("take the lock %s: %w", name, err)
	}
	if n != 1 {
		return fmt.Errorf("take the lock %s: there is none of this name", name)
	}
	return nil
}
