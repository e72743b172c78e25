package testenv

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// Postgres returns the URL of a fresh, empty database that only this test uses. It is dropped when the test ends,
// whoever is still connected.
func Postgres(t testing.TB) string {
	t.Helper()
	return newDatabase(t, sharedPostgres(t), "template0")
}

// PostgresTemplate returns the URL of a fresh clone of a template database, private to this test like that of
// Postgres. The first call with a name on a server makes the template: build fills the empty database at the URL it
// is given. Every other call, in whatever test process, waits for that and clones. Whatever build depends on belongs
// into the name, as a hash: a template once made is never looked at again while its server lives.
func PostgresTemplate(t testing.TB, name string, build func(url string) error) string {
	t.Helper()
	server := sharedPostgres(t)
	template := "quotad_template_" + name
	if len(template) > 63 {
		t.Fatalf("testenv: the template name %q is longer than Postgres allows (63 bytes with its prefix)", template)
	}
	if err := ensureTemplate(t.Context(), server, template, build); err != nil {
		t.Fatalf("testenv: make the template database %s: %v", template, err)
	}
	return newDatabase(t, server, template)
}

// ensureTemplate makes the database template unless it is complete, which its mark as a template says. An advisory
// lock leaves the work to one of all processes; what a killed one left half done is dropped and made again.
func ensureTemplate(ctx context.Context, server, template string, build func(url string) error) error {
	conn, err := pgx.Connect(ctx, server)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx)) // gives the lock back too
	if _, err := conn.Exec(ctx, "SELECT pg_advisory_lock(hashtextextended($1, 0))", template); err != nil {
		return fmt.Errorf("wait for the lock: %w", err)
	}
	var complete bool
	err = conn.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1 AND datistemplate)", template).Scan(&complete)
	if err != nil || complete {
		return err
	}
	name := pgx.Identifier{template}.Sanitize()
	for _, sql := range []string{"DROP DATABASE IF EXISTS " + name + " WITH (FORCE)", "CREATE DATABASE " + name + " TEMPLATE template0"} {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
	}
	database, err := databaseURL(server, template)
	if err != nil {
		return err
	}
	if err := build(database); err != nil {
		return fmt.Errorf("build: %w", err)
	}
	// A database with connections can't be cloned: let nobody in again and put out whom build left behind.
	for _, sql := range []string{
		"ALTER DATABASE " + name + " ALLOW_CONNECTIONS false",
		"SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = '" + strings.ReplaceAll(template, "'", "''") + "'",
		"ALTER DATABASE " + name + " IS_TEMPLATE true",
	} {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
	}
	return nil
}

// newDatabase clones template under a new name and drops the clone when the test ends.
func newDatabase(t testing.TB, server, template string) string {
	t.Helper()
	name := pgx.Identifier{"quotad_test_" + strings.ToLower(rand.Text())}.Sanitize()
	if err := execute(t.Context(), server, "CREATE DATABASE "+name+" TEMPLATE "+pgx.Identifier{template}.Sanitize()); err != nil {
		t.Fatalf("testenv: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), Patience)
		defer cancel()
		if err := execute(ctx, server, "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)"); err != nil {
			t.Errorf("testenv: %v", err)
		}
	})
	database, err := databaseURL(server, strings.Trim(name, `"`))
	if err != nil {
		t.Fatalf("testenv: %v", err)
	}
	return database
}

// databaseURL is the server's URL with another database.
func databaseURL(server, database string) (string, error) {
	u, err := url.Parse(server)
	if err != nil {
		return "", fmt.Errorf("read the Postgres URL: %w", err)
	}
	u.Path = "/" + database
	return u.String(), nil
}

func execute(ctx context.Context, database, sql string) error {
	conn, err := pgx.Connect(ctx, database)
	if err != nil {
		return fmt.Errorf("connect to postgres: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if _, err := conn.Exec(ctx, sql); err != nil {
		return fmt.Errorf("%s: %w", sql, err)
	}
	return nil
}

func pingPostgres(ctx context.Context, database string) error {
	return execute(ctx, database, "SELECT 1")
}
