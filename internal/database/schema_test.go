package database_test

import (
	"context"
	"testing"
	"time"

	"github.com/quotad/quotad/internal/database"
	"github.com/quotad/quotad/internal/testenv"
)

// The statements that the tests write with, on tables of the real schema.
const (
	insertTier = `INSERT INTO tiers (name, description, rate_limit, rate_window, algorithm, shadow, version, created_at, updated_at)
		VALUES ($1, '', $2, 60, 'fixed_window', $3, 1, $4, $4)`
	insertTenant = `INSERT INTO tenants (id, name, tier, status, time_zone, billing_anchor_day, metadata, version, created_at, updated_at)
		VALUES ($1, $1, $2, 'active', 'UTC', 1, '{}', 1, $3, $3)`
)

var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func addTier(ctx context.Context, db *database.DB, name string) error {
	return db.InTx(ctx, func(tx *database.Tx) error {
		_, err := tx.ExecContext(ctx, insertTier, name, 10, false, noon)
		return err
	})
}

func mustAddTier(t *testing.T, db *database.DB, name string) {
	t.Helper()
	if err := addTier(t.Context(), db, name); err != nil {
		t.Fatal(err)
	}
}

func countTiers(t *testing.T, db *database.DB) (n int) {
	t.Helper()
	if err := db.QueryRowContext(t.Context(), "SELECT count(*) FROM tiers").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// ask asks the database for an answer.
func ask(ctx context.Context, db *database.DB) error {
	return db.QueryRowContext(ctx, "SELECT 1").Scan(new(int))
}

// eventually fails the test unless f succeeds; it tries again and again.
func eventually(t *testing.T, what string, f func() error) {
	t.Helper()
	deadline := time.Now().Add(testenv.Patience)
	for {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v: %v", what, testenv.Patience, err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}
