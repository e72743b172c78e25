// Package databasetest gives tests of stores a migrated database on each engine. Test-only: nothing that ships imports it.
//
//	func TestTiers(t *testing.T) {
//		databasetest.Each(t, func(t *testing.T, db *database.DB) {
//			store := tiers.NewStore(db, …)
//			…
//		})
//	}
package databasetest

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quotad/quotad/internal/database"
	"github.com/quotad/quotad/internal/testenv"
	"github.com/quotad/quotad/migrations"
)

// Each runs f as two parallel subtests, "sqlite" and "postgres", each on a fresh migrated database of its own.
func Each(t *testing.T, f func(t *testing.T, db *database.DB)) {
	t.Helper()
	for name, open := range map[string]func(testing.TB) *database.DB{"sqlite": SQLite, "postgres": Postgres} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(t, open(t))
		})
	}
}

// SQLite returns a fresh migrated SQLite database.
func SQLite(t testing.TB) *database.DB {
	t.Helper()
	url := "sqlite://" + filepath.Join(t.TempDir(), "quotad.db")
	if err := migrations.Up(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	return Open(t, url)
}

// Postgres returns a fresh migrated Postgres database.
func Postgres(t testing.TB) *database.DB {
	t.Helper()
	return Open(t, PostgresURL(t))
}

// PostgresURL returns the address of a fresh migrated Postgres database, for tests that open it more than once.
func PostgresURL(t testing.TB) string {
	t.Helper()
	fingerprint, err := migrations.Fingerprint()
	if err != nil {
		t.Fatal(err)
	}
	return testenv.PostgresTemplate(t, "migrated_"+fingerprint, func(url string) error {
		join := "?"
		if strings.Contains(url, "?") {
			join = "&"
		}
		return migrations.Up(t.Context(), fmt.Sprint(url, join, "connect_timeout=", int(testenv.Patience.Seconds())))
	})
}

// Open opens the database at url, with so much time for all it does that only a test which breaks it meets the end of
// that, and closes it when the test ends.
func Open(t testing.TB, url string) *database.DB {
	t.Helper()
	o := database.Options{Timeout: testenv.Patience}
	if !strings.Contains(url, "connect_timeout=") {
		o.ConnectTimeout = testenv.Patience
	}
	db, err := database.Open(t.Context(), url, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}
