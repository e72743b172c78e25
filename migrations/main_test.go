package migrations

import (
	"context"
	"database/sql"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/quotad/quotad/internal/database"
	"github.com/quotad/quotad/internal/testenv"
)

// A test that needs a node of its own, to start beside others or to be killed, runs this program again as one.
const (
	nodeURL  = "QUOTAD_TEST_MIGRATE_URL"
	nodeSlow = "QUOTAD_TEST_MIGRATE_SLOW"
)

func TestMain(m *testing.M) {
	url := os.Getenv(nodeURL)
	if url == "" {
		os.Exit(m.Run())
	}
	var source fs.FS = files
	if os.Getenv(nodeSlow) != "" {
		source = withThird(slow)
	}
	if err := run(context.Background(), url, source, (*session).up); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// node is a process that migrates url up.
func node(t *testing.T, url string, env ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), append(env, nodeURL+"="+url)...)
	return cmd
}

// third is a migration that follows two small ones, for each engine.
type third struct{ postgres, sqlite string }

var (
	slow = third{
		postgres: "CREATE TABLE third (x bigint); SELECT pg_sleep(60);",
		sqlite:   "CREATE TABLE third (x bigint); INSERT INTO third WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 1000000000) SELECT count(*) FROM n;",
	}
	failing = third{
		postgres: "CREATE TABLE third (x bigint); INSERT INTO third VALUES (1); SELECT 1 / (SELECT count(*) - 1 FROM third);",
		sqlite:   "CREATE TABLE third (x bigint CHECK (x < 1)); INSERT INTO third VALUES (0); INSERT INTO third VALUES (1);",
	}
	working = third{postgres: "CREATE TABLE third (x bigint);", sqlite: "CREATE TABLE third (x bigint);"}
)

// withThird are three small migrations.
func withThird(t third) fs.FS {
	m := fstest.MapFS{}
	for engine, sql := range map[string]string{"postgres": t.postgres, "sqlite": t.sqlite} {
		m[engine+"/0001_first.up.sql"] = file("CREATE TABLE schema_history (version bigint PRIMARY KEY); INSERT INTO schema_history VALUES (1);")
		m[engine+"/0001_first.down.sql"] = file("DROP TABLE schema_history;")
		m[engine+"/0002_second.up.sql"] = file("INSERT INTO schema_history VALUES (2); CREATE TABLE second (x bigint);")
		m[engine+"/0002_second.down.sql"] = file("DELETE FROM schema_history WHERE version = 2; DROP TABLE second;")
		m[engine+"/0003_third.up.sql"] = file("INSERT INTO schema_history VALUES (3); " + sql)
		m[engine+"/0003_third.down.sql"] = file("DELETE FROM schema_history WHERE version = 3; DROP TABLE third;")
	}
	return m
}

func file(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text), Mode: 0o444} }

// each runs f on an empty database of each engine.
func each(t *testing.T, f func(t *testing.T, url string)) {
	t.Helper()
	for engine, empty := range map[string]func(testing.TB) string{"sqlite": emptySQLite, "postgres": emptyPostgres} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			f(t, empty(t))
		})
	}
}

// emptyPostgres lets connections take their time, however busy the machine is.
func emptyPostgres(t testing.TB) string {
	url, join := testenv.Postgres(t), "?"
	if strings.Contains(url, "?") {
		join = "&"
	}
	return url + join + "connect_timeout=300"
}

func emptySQLite(t testing.TB) string { return "sqlite://" + filepath.Join(t.TempDir(), "quotad.db") }

// look opens a database to look at.
func look(t *testing.T, url string) *sql.DB {
	t.Helper()
	db, err := database.OpenDirect(url)
	if err != nil {
		t.Fatal(err)
	}
	return db
}

func execute(t *testing.T, url, query string) {
	t.Helper()
	db := look(t, url)
	defer db.Close()
	if _, err := db.ExecContext(t.Context(), query); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

// column returns the first column of a query as text.
func column(t *testing.T, url, query string) (values []string) {
	t.Helper()
	db := look(t, url)
	defer db.Close()
	rows, err := db.QueryContext(t.Context(), query)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	defer rows.Close()
	for rows.Next() {
		var v string
		if err := rows.Scan(&v); err != nil {
			t.Fatal(err)
		}
		values = append(values, v)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return values
}

// columns lists the columns of all tables as table.column.
func columns(t *testing.T, url string) []string {
	t.Helper()
	query := `SELECT table_name || '.' || column_name FROM information_schema.columns WHERE table_schema = current_schema() ORDER BY (table_name || '.' || column_name) COLLATE "C"`
	if engine, err := database.EngineOf(url); err != nil {
		t.Fatal(err)
	} else if engine == database.SQLite {
		query = `SELECT m.name || '.' || c.name FROM sqlite_master m, pragma_table_info(m.name) c WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite_%' ORDER BY 1`
	}
	return column(t, url, query)
}

func wantState(t *testing.T, url string, source fs.FS, want State) {
	t.Helper()
	got, err := status(t.Context(), url, source)
	if err != nil {
		t.Fatal(err)
	}
	if got != want {
		t.Errorf("the state is %+v, want %+v", got, want)
	}
}
