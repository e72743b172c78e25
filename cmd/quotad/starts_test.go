package main

import (
	"database/sql"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/quotad/quotad/internal/database"
	"github.com/quotad/quotad/internal/testenv"
	"github.com/quotad/quotad/migrations"
)

// Five nodes that start at once on an empty database all come to serve; one of them makes the schema, and one makes the
// first admin token.
func TestFiveNodesStartAtOnce(t *testing.T) {
	t.Parallel()
	stores := append(shared(t), "QUOTAD_ADMIN_TOKEN=")
	url := strings.TrimPrefix(stores[0], "QUOTAD_DATABASE_URL=")
	var nodes []beginning
	for range 5 {
		nodes = append(nodes, begin(t, stores))
	}
	token := ""
	for _, n := range nodes {
		select {
		case <-n.serving:
		case <-n.done:
			t.Fatalf("a node did not start: exit code %d\n%s", n.code, n.stderr)
		}
		soon(t, "the node is ready", status(http.StatusOK, func() answer {
			a, _ := send(testClient, http.MethodGet, n.api+"/readyz", nil)
			return a
		}))
		if printed := n.stdout.String(); printed != "" {
			if token != "" {
				t.Errorf("two nodes made a token: %s", printed)
			}
			token = regexp.MustCompile(`admin token +(qa_\w+)`).FindStringSubmatch(printed)[1]
		}
	}
	for _, n := range nodes {
		a, err := send(testClient, http.MethodGet, n.admin+"/admin/v1/tiers", nil, "Authorization", "Bearer "+token)
		if err != nil || a.status != http.StatusOK {
			t.Errorf("the token that one node printed, at another: %d %s %v", a.status, a.body, err)
		}
	}
	state, err := migrations.Status(t.Context(), url)
	if err != nil || state.Version != state.Latest || state.Dirty {
		t.Errorf("schema %+v, %v", state, err)
	}
	db, err := database.OpenDirect(url)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var entered, versions uint
	if err := db.QueryRow("SELECT count(*), count(DISTINCT version) FROM schema_history").Scan(&entered, &versions); err != nil || entered != state.Latest || versions != state.Latest {
		t.Errorf("%d migrations were entered, %d different ones, want %d: %v", entered, versions, state.Latest, err)
	}
}

// A node does not serve on a schema that is half-made or newer than it; it says which and what to do, and leaves all as it is.
func TestServeRefusesAForeignSchema(t *testing.T) {
	each(t, func(t *testing.T, stores []string) {
		url := strings.TrimPrefix(stores[0], "QUOTAD_DATABASE_URL=")
		if err := migrations.Up(t.Context(), url); err != nil {
			t.Fatal(err)
		}
		db, err := database.OpenDirect(url)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		for _, c := range []struct{ set, undo, want string }{
			{"UPDATE schema_migrations SET dirty = true", "UPDATE schema_migrations SET dirty = false", "quotad migrate up --repair"},
			{"UPDATE schema_migrations SET version = version + 7", "UPDATE schema_migrations SET version = version - 7", "run a newer quotad"},
		} {
			mustExec(t, db, c.set)
			n := begin(t, stores)
			<-n.done
			if n.code != exitFailed || !strings.Contains(n.stderr.String(), c.want) {
				t.Errorf("after %s: exit code %d\n%s", c.set, n.code, n.stderr)
			}
			if got := runProgram(t, stores[:1], "migrate", "status"); got.code != exitFailed || !strings.Contains(got.stderr, c.want) {
				t.Errorf("migrate status after %s: %+v", c.set, got)
			}
			mustExec(t, db, c.undo)
		}
		start(t, stores)
	})
}

func mustExec(t *testing.T, db *sql.DB, query string) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), query); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

// The schema changes under a node that serves: what it can't work on makes it not ready, what is newer it notes.
func TestReadinessShowsTheSchema(t *testing.T) {
	each(t, func(t *testing.T, stores []string) {
		n := start(t, stores)
		db, err := database.OpenDirect(strings.TrimPrefix(stores[0], "QUOTAD_DATABASE_URL="))
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		for _, c := range []struct {
			set    string
			status int
			body   string
		}{
			{"UPDATE schema_migrations SET version = version - 1", http.StatusServiceUnavailable, "and this quotad needs"},
			{"UPDATE schema_migrations SET version = version + 2", http.StatusOK, "and this quotad knows versions up to"},
			{"UPDATE schema_migrations SET version = version - 1", http.StatusOK, `{"status":"ready"}`},
		} {
			mustExec(t, db, c.set)
			soon(t, c.set, func() error {
				a, err := send(testClient, http.MethodGet, n.api+"/readyz", nil)
				if err != nil || a.status != c.status || !strings.Contains(a.body, c.body) {
					return errors.New("it says: " + a.body)
				}
				return nil
			})
		}
	})
}

func TestServeFailsClearly(t *testing.T) {
	t.Parallel()
	taken := start(t, embedded(t))
	other := "127.0.0.1:" + taken.api[strings.LastIndex(taken.api, ":")+1:]
	for name, c := range map[string]struct {
		environ []string
		want    string
	}{
		"no database":      {[]string{"QUOTAD_DATABASE_URL=postgres://quotad:s3cret@127.0.0.1:1/quotad"}, "127.0.0.1:1"},
		"the port is used": {append(embedded(t), "QUOTAD_LISTEN="+other), "choose another with --listen or QUOTAD_LISTEN"},
		"the admin port is used": {append(embedded(t), "QUOTAD_ADMIN_LISTEN="+other), "listen for the admin API: listen tcp " + other +
			": bind: address already in use; choose another with --admin-listen or QUOTAD_ADMIN_LISTEN"},
		"two databases": {[]string{"QUOTAD_DATABASE_URL=" + testenv.Postgres(t), "QUOTAD_DATABASE_DIRECT_URL=" + testenv.Postgres(t)},
			"schema"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := begin(t, c.environ)
			<-n.done
			if n.code != exitFailed || !strings.Contains(n.stderr.String(), c.want) || strings.Contains(n.stderr.String(), "s3cret") {
				t.Errorf("exit code %d\n%s", n.code, n.stderr)
			}
			if n.stdout.String() != "" {
				t.Errorf("it printed %s", n.stdout)
			}
		})
	}
}

// A token that can't be the owner's is refused under the name of the variable that gave it, and is not repeated.
func TestServeRefusesTheTokenOfAnother(t *testing.T) {
	t.Parallel()
	stores := embedded(t)
	first := start(t, stores)
	viewer := first.must(http.MethodPost, "/admin-tokens", map[string]any{"name": "eye", "role": "viewer"})["secret"].(string)
	first.stop()
	n := begin(t, append(stores, "QUOTAD_ADMIN_TOKEN="+viewer))
	<-n.done
	if got := n.stderr.String(); n.code != exitFailed || !strings.Contains(got, "QUOTAD_ADMIN_TOKEN is the text of another admin token") ||
		!strings.Contains(got, "give a text of its own") || strings.Contains(got, viewer) {
		t.Errorf("exit code %d\n%s", n.code, got)
	}
}

// A process of its own, with real signals.
func TestProcess(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		signals  []syscall.Signal
		delay    string
		wantCode int
		want     string
	}{
		"SIGTERM":       {[]syscall.Signal{syscall.SIGTERM}, "1s", exitDone, `"msg":"shut down"`},
		"SIGINT":        {[]syscall.Signal{syscall.SIGINT}, "1s", exitDone, `"msg":"shut down"`},
		"SIGTERM twice": {[]syscall.Signal{syscall.SIGTERM, syscall.SIGTERM}, "5m", exitFailed, `"msg":"shutdown was cut short"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), os.Args[0], "serve", "--listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0",
				"--database=sqlite://"+filepath.Join(t.TempDir(), "q.db"))
			cmd.Env = append(os.Environ(), asProgram+"=1", "QUOTAD_SHUTDOWN_DELAY="+c.delay, "QUOTAD_SHUTDOWN_GRACE="+patience.String())
			var out buffer
			cmd.Stdout, cmd.Stderr = &out, &out
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			soon(t, "it serves", func() error {
				if strings.Contains(out.String(), `"msg":"serving"`) {
					return nil
				}
				return errors.New("it says: " + out.String())
			})
			for i, s := range c.signals {
				if i > 0 {
					soon(t, "it begins to shut down", func() error {
						if strings.Contains(out.String(), `"msg":"shutting down"`) {
							return nil
						}
						return errors.New("it says: " + out.String())
					})
				}
				if err := cmd.Process.Signal(s); err != nil {
					t.Fatal(err)
				}
			}
			_ = cmd.Wait()
			if code := cmd.ProcessState.ExitCode(); code != c.wantCode || !strings.Contains(out.String(), c.want) {
				t.Errorf("exit code %d, want %d\n%s", code, c.wantCode, out.String())
			}
		})
	}
}
