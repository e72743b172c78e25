package testenv

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

func TestPostgresGivesEachTestAnEmptyDatabaseOfItsOwn(t *testing.T) {
	t.Parallel()
	first, second := Postgres(t), Postgres(t)
	mustExecute(t, first, "CREATE TABLE tiers (name text)")
	mustExecute(t, second, "CREATE TABLE tiers (name text)") // would fail if it were there already
}

func TestPostgresDropsTheDatabaseWhenTheTestEnds(t *testing.T) {
	t.Parallel()
	var database string
	t.Run("user", func(t *testing.T) { database = Postgres(t) })
	if err := pingPostgres(t.Context(), database); err == nil || !strings.Contains(err.Error(), "3D000") {
		t.Errorf("connecting to a dropped database: got %v, want SQLSTATE 3D000", err)
	}
}

func TestPostgresTemplateIsBuiltOnceAndClonedForEach(t *testing.T) {
	t.Parallel()
	name := uniqueTemplate(t)
	var built atomic.Int32
	build := func(database string) error {
		built.Add(1)
		return execute(t.Context(), database, "CREATE TABLE tiers AS SELECT 'pro' AS name")
	}
	clones := make([]string, 8)
	var all sync.WaitGroup
	for i := range clones {
		all.Go(func() { clones[i] = PostgresTemplate(t, name, build) })
	}
	all.Wait()
	if n := built.Load(); n != 1 {
		t.Errorf("the template was built %d times, want 1", n)
	}
	for _, clone := range clones {
		// Fails where the table is missing, or where another clone's change shows.
		mustExecute(t, clone, "ALTER TABLE tiers ADD PRIMARY KEY (name)")
	}
}

func TestPostgresTemplateStartsAgainAfterAFailedBuild(t *testing.T) {
	t.Parallel()
	name := uniqueTemplate(t)
	server := sharedPostgres(t)
	broken := errors.New("out of ideas")
	err := ensureTemplate(t.Context(), server, "quotad_template_"+name, func(database string) error {
		return errors.Join(broken, execute(t.Context(), database, "CREATE TABLE half (done int)"))
	})
	if !errors.Is(err, broken) {
		t.Fatalf("a failed build: got %v, want its error", err)
	}
	clone := PostgresTemplate(t, name, func(database string) error {
		return execute(t.Context(), database, "CREATE TABLE whole (done int)")
	})
	mustExecute(t, clone, "CREATE TABLE half (done int)") // nothing of the first try is left
	mustExecute(t, clone, "SELECT done FROM whole")
}

// uniqueTemplate returns a template name that no other run uses and drops that template when the test ends.
func uniqueTemplate(t *testing.T) string {
	name := strings.ToLower(rand.Text())
	t.Cleanup(func() {
		server := sharedPostgres(t)
		for _, sql := range []string{"ALTER DATABASE quotad_template_" + name + " IS_TEMPLATE false", "DROP DATABASE quotad_template_" + name} {
			if err := execute(context.Background(), server, sql); err != nil {
				t.Error(err)
			}
		}
	})
	return name
}

func mustExecute(t *testing.T, database, sql string) {
	t.Helper()
	if err := execute(t.Context(), database, sql); err != nil {
		t.Fatal(err)
	}
}
