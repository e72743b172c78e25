package database_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quotad/quotad/internal/database"
	"github.com/quotad/quotad/internal/database/databasetest"
	"github.com/quotad/quotad/migrations"
)

func migrate(t testing.TB, url string) {
	t.Helper()
	if err := migrations.Up(t.Context(), url); err != nil {
		t.Fatal(err)
	}
}

func TestSQLiteFileIsForItsOwnerAlone(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "made", "here")
	// Characters that mean something in an address mean nothing in a path.
	path := filepath.Join(dir, "quota d%20+&=.db")
	url := "sqlite://" + path
	migrate(t, url)
	mustAddTier(t, databasetest.Open(t, url), "pro")
	for name, want := range map[string]os.FileMode{dir: 0o700, path: 0o600, path + "-wal": 0o600, path + "-shm": 0o600} {
		info, err := os.Stat(name)
		if err != nil {
			t.Error(err)
		} else if got := info.Mode().Perm(); got != want {
			t.Errorf("%s has mode %o, want %o", filepath.Base(name), got, want)
		}
	}
	if n := countTiers(t, databasetest.Open(t, url)); n != 1 {
		t.Errorf("opened again: %d tiers, want 1", n)
	}
}

func TestSQLitePathMayBeRelative(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	url := "sqlite://quotad-data/quotad.db"
	migrate(t, url)
	db := databasetest.Open(t, url)
	t.Chdir(t.TempDir()) // the file stays the same
	mustAddTier(t, db, "pro")
	if _, err := os.Stat(filepath.Join(dir, "quotad-data", "quotad.db")); err != nil {
		t.Error(err)
	}
}

func TestAddressesThatMeanNothingAreRefused(t *testing.T) {
	t.Parallel()
	for _, url := range []string{
		"", "quotad.db", "mysql://u:hunter2@h/db", "sqlite://", "sqlite://dir/", "sqlite://:memory:", "sqlite://a.db?mode=ro",
		"postgres://u:hunter2@h:port/db", "postgres://u:hunter2@h/db?pool_max_conns=many", "postgres://u:hunter2@h/%zz",
	} {
		db, err := database.Open(t.Context(), url, database.Options{})
		if err == nil {
			db.Close()
			t.Errorf("%q was opened", url)
			continue
		}
		if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: the error shows the password: %v", url, err)
		}
	}
}

func TestPoolParametersOfTheAddressHold(t *testing.T) {
	t.Parallel()
	url := databasetest.PostgresURL(t)
	join := "?"
	if strings.Contains(url, "?") {
		join = "&"
	}
	url += join + "pool_max_conns=3&connect_timeout=7&application_name=nine"
	db := databasetest.Open(t, url)
	if got := db.Stats().Max; got != 3 {
		t.Errorf("at most %d connections, want 3", got)
	}
	var name string
	if err := db.QueryRowContext(t.Context(), "SELECT current_setting('application_name')").Scan(&name); err != nil || name != "nine" {
		t.Errorf("application_name is %q (%v), want nine", name, err)
	}
	migrate(t, url) // the pool's parameters are not sent to the server
}

func TestStatementsAreNotPreparedUnderAName(t *testing.T) {
	t.Parallel()
	db := databasetest.Postgres(t)
	err := db.InTx(t.Context(), func(tx *database.Tx) error {
		for range 10 {
			if err := tx.QueryRowContext(t.Context(), "SELECT count(*) FROM tiers WHERE name = $1", "pro").Scan(new(int)); err != nil {
				return err
			}
		}
		var n int
		if err := tx.QueryRowContext(t.Context(), "SELECT count(*) FROM pg_prepared_statements").Scan(&n); err != nil || n != 0 {
			t.Errorf("%d prepared statements (%v), want 0: a pooler's next connection would not know them", n, err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
