package database_test

import (
	"context"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/database"
	"github.com/quotad/quotad/internal/database/databasetest"
	"github.com/quotad/quotad/internal/testenv"
	"github.com/quotad/quotad/migrations"
)

func TestViolationsBecomeKinds(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		ctx := t.Context()
		mustAddTier(t, db, "pro")
		exec := func(query string, args ...any) error {
			return db.InTx(ctx, func(tx *database.Tx) error {
				_, err := tx.ExecContext(ctx, query, args...)
				return err
			})
		}
		if err := exec(insertTenant, "acme", "pro", noon); err != nil {
			t.Fatal(err)
		}
		hash := make([]byte, 32)
		const insertToken = `INSERT INTO admin_tokens (id, name, role, hash, hint, version, created_at) VALUES ($1, $1, 'owner', $2, '', 1, $3)`
		if err := exec(insertToken, "one", hash, noon); err != nil {
			t.Fatal(err)
		}
		for name, c := range map[string]struct {
			err     error
			want    error
			missing bool
		}{
			"primary key twice":              {exec(insertTier, "pro", 1, false, noon), quotad.ErrExists, false},
			"unique column twice":            {exec(insertToken, "two", hash, noon), quotad.ErrExists, false},
			"delete of what is referred to":  {exec("DELETE FROM tiers WHERE name = $1", "pro"), quotad.ErrInUse, false},
			"the same, in another hand":      {exec("\n\t delete FROM tiers WHERE name = $1", "pro"), quotad.ErrInUse, false},
			"insert that refers to nothing":  {exec(insertTenant, "beta", "none", noon), quotad.ErrInvalidFields, true},
			"update that refers to nothing":  {exec("UPDATE tenants SET tier = $1", "none"), quotad.ErrInvalidFields, true},
			"a check":                        {exec(insertTier, "minus", -1, false, noon), quotad.ErrInvalidFields, false},
			"a name that does not match":     {exec(insertTier, "Pro", 1, false, noon), quotad.ErrInvalidFields, false},
			"null where there must be one":   {exec(insertTier, "null", 1, nil, noon), quotad.ErrInvalidFields, false},
			"a number that is too large":     {exec(insertTier, "large", quotad.MaxUnits+1, false, noon), quotad.ErrInvalidFields, false},
			"JSON that is none":              {exec("UPDATE tenants SET metadata = $1", "{"), quotad.ErrInvalidFields, false},
			"a hash of another length":       {exec(insertToken, "three", []byte("short"), noon), quotad.ErrInvalidFields, false},
			"a row that is not there":        {db.QueryRowContext(ctx, "SELECT name FROM tiers WHERE name = $1", "x").Scan(new(string)), quotad.ErrNotFound, false},
			"a changed event":                {changeEvent(ctx, db), quotad.ErrInvalidFields, false},
			"a second current secret of key": {twoSecrets(ctx, db), quotad.ErrExists, false},
		} {
			if !errors.Is(c.err, c.want) {
				t.Errorf("%s: got %v, want %v", name, c.err, c.want)
			}
			if got := errors.Is(c.err, database.ErrMissingReference); got != c.missing {
				t.Errorf("%s: is ErrMissingReference = %v, want %v", name, got, c.missing)
			}
		}
		if n := countTiers(t, db); n != 1 {
			t.Errorf("refused writes left %d tiers, want 1", n)
		}
	})
}

func changeEvent(ctx context.Context, db *database.DB) error {
	return db.InTx(ctx, func(tx *database.Tx) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO events (at, action, actor_type, actor_id, actor_name, request_id, address, resource, target, tenant, version)
			VALUES ($1, 'tier.created', 'system', '', '', '', '', 'tier', 'pro', '', 1)`, noon)
		if err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, "UPDATE events SET action = 'tier.deleted'")
		return err
	})
}

func twoSecrets(ctx context.Context, db *database.DB) error {
	return db.InTx(ctx, func(tx *database.Tx) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO keys (id, tenant, name, all_route_groups, allowed_cidrs, status, version, created_at, updated_at)
			VALUES ('k', 'acme', '', $1, '[]', 'active', 1, $2, $2)`, true, noon)
		if err != nil {
			return err
		}
		for i := range 2 {
			hash := make([]byte, 32)
			hash[0] = byte(i)
			if _, err := tx.ExecContext(ctx, "INSERT INTO key_secrets (hash, key_id, hint, created_at) VALUES ($1, 'k', '', $2)", hash, noon); err != nil {
				if i == 0 {
					return errors.New("the first secret is refused: " + err.Error())
				}
				return err
			}
		}
		return nil
	})
}

func TestOurOwnFaultsAreNoKind(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		err := db.QueryRowContext(t.Context(), "SELECT no_such_column FROM tiers").Scan(new(string))
		var known *quotad.Error
		if err == nil || errors.As(err, &known) {
			t.Errorf("a wrong statement: got %v, want an error without a kind", err)
		}
	})
}

func TestPostgresThatRefusesIsUnavailable(t *testing.T) {
	t.Parallel()
	db := databasetest.Open(t, "postgres://quotad:hunter2@127.0.0.1:1/quotad?sslmode=disable") // nobody listens there
	for name, err := range map[string]error{
		"ping":        ask(t.Context(), db),
		"transaction": addTier(t.Context(), db, "pro"),
	} {
		wantUnavailable(t, name, err)
		if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: the error shows the password: %v", name, err)
		}
	}
	_, err := db.Connect(t.Context(), "")
	wantUnavailable(t, "connect", err)
}

func TestPostgresWithoutTheDatabaseIsUnavailable(t *testing.T) {
	t.Parallel()
	address := strings.Replace(testenv.Postgres(t), "/quotad_test_", "/quotad_nowhere_", 1)
	wantUnavailable(t, "ping", ask(t.Context(), databasetest.Open(t, address)))
}

// As a Postgres does that is being restored or maintained: its code (55000) says nothing of a connection.
func TestPostgresThatTakesNoConnectionsIsUnavailable(t *testing.T) {
	t.Parallel()
	address, err := url.Parse(testenv.Postgres(t))
	if err != nil {
		t.Fatal(err)
	}
	elsewhere := *address
	elsewhere.Path = "/postgres"
	server, err := database.OpenDirect(elsewhere.String())
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	if _, err := server.ExecContext(t.Context(), "ALTER DATABASE "+strings.TrimPrefix(address.Path, "/")+" ALLOW_CONNECTIONS false"); err != nil {
		t.Fatal(err)
	}
	wantUnavailable(t, "ping", ask(t.Context(), databasetest.Open(t, address.String())))
}

func TestPostgresComesBack(t *testing.T) {
	t.Parallel()
	server := testenv.OwnPostgres(t)
	if err := migrations.Up(t.Context(), server.URL()); err != nil {
		t.Fatal(err)
	}
	const timeout = 5 * time.Second // short, as two calls wait for it, and yet enough on a busy machine
	db, err := database.Open(t.Context(), server.URL(), database.Options{Timeout: timeout})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	mustAddTier(t, db, "before")

	server.Freeze()
	for name, f := range map[string]func() error{
		"query":       func() error { return ask(t.Context(), db) },
		"transaction": func() error { return addTier(t.Context(), db, "frozen") },
	} {
		began := time.Now()
		wantUnavailable(t, name+" on a frozen server", f())
		if took := time.Since(began); took > 10*timeout {
			t.Errorf("%s on a frozen server took %v, want about %v", name, took, timeout)
		}
	}
	server.Resume()
	eventually(t, "answer after the freeze", func() error { return ask(t.Context(), db) })

	server.Stop()
	wantUnavailable(t, "query on a stopped server", ask(t.Context(), db))
	wantUnavailable(t, "transaction on a stopped server", addTier(t.Context(), db, "stopped"))
	server.Start()
	eventually(t, "write after the restart", func() error { return addTier(t.Context(), db, "after") })
}

func TestSQLiteThatCannotBeWrittenIsUnavailable(t *testing.T) {
	t.Parallel()
	t.Run("locked by another process", func(t *testing.T) {
		t.Parallel()
		url := "sqlite://" + filepath.Join(t.TempDir(), "quotad.db")
		if err := migrations.Up(t.Context(), url); err != nil {
			t.Fatal(err)
		}
		other, err := database.OpenDirect(url)
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close()
		conn, err := other.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := conn.ExecContext(t.Context(), "BEGIN IMMEDIATE"); err != nil {
			t.Fatal(err)
		}
		db := databasetest.Open(t, url)
		began := time.Now()
		wantUnavailable(t, "write", addTier(t.Context(), db, "pro"))
		if took := time.Since(began); took > time.Minute {
			t.Errorf("it took %v to say so, want about 3s", took)
		}
		if n := countTiers(t, db); n != 0 { // reading goes on meanwhile
			t.Errorf("%d tiers, want 0", n)
		}
		if _, err := conn.ExecContext(t.Context(), "ROLLBACK"); err != nil {
			t.Fatal(err)
		}
		mustAddTier(t, db, "pro")
	})
	t.Run("not a database", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "quotad.db")
		if err := os.WriteFile(path, []byte(strings.Repeat("no database ", 1000)), 0o600); err != nil {
			t.Fatal(err)
		}
		wantUnavailable(t, "ping", ask(t.Context(), databasetest.Open(t, "sqlite://"+path)))
	})
}

func TestClosedDatabaseIsUnavailable(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		wantUnavailable(t, "ping", ask(t.Context(), db))
		wantUnavailable(t, "transaction", addTier(t.Context(), db, "pro"))
	})
}

func wantUnavailable(t *testing.T, what string, err error) {
	t.Helper()
	var known *quotad.Error
	if !errors.As(err, &known) || known.Code != quotad.CodeStoreUnavailable {
		t.Errorf("%s: got %v, want %s", what, err, quotad.CodeStoreUnavailable)
		return
	}
	if known.RetryAfter < time.Second || known.Cause == nil {
		t.Errorf("%s: got retry after %v and cause %v, want at least 1s and one", what, known.RetryAfter, known.Cause)
	}
}
