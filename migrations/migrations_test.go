package migrations

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quotad/quotad/internal/database"
)

func TestFilesComeInPairsThatRecordThemselves(t *testing.T) {
	t.Parallel()
	names := map[string][]string{}
	for _, engine := range []string{"postgres", "sqlite"} {
		entries, err := fs.ReadDir(files, engine)
		if err != nil {
			t.Fatal(err)
		}
		for i, e := range entries {
			names[engine] = append(names[engine], e.Name())
			text, err := fs.ReadFile(files, engine+"/"+e.Name())
			if err != nil {
				t.Fatal(err)
			}
			// Sorted, each .down.sql comes before its .up.sql.
			version := i/2 + 1
			way, record := "down", fmt.Sprintf(`DELETE FROM schema_history WHERE version = %d;`, version)
			if i%2 == 1 {
				way, record = "up", fmt.Sprintf(`INSERT INTO schema_history \(version, applied_at\) VALUES \(%d, `, version)
			} else if version == 1 {
				record = `DROP TABLE schema_history;`
			}
			if !regexp.MustCompile(fmt.Sprintf(`^%04d_[a-z_]+\.%s\.sql$`, version, way)).MatchString(e.Name()) {
				t.Errorf("%s/%s: want version %d, %s", engine, e.Name(), version, way)
			}
			if !regexp.MustCompile(record).Match(text) {
				t.Errorf("%s/%s has no %s", engine, e.Name(), record)
			}
		}
	}
	if diff := cmp.Diff(names["postgres"], names["sqlite"]); diff != "" {
		t.Errorf("the engines have different files (-postgres +sqlite):\n%s", diff)
	}
}

func TestUpAndDownAndUpAgain(t *testing.T) {
	all := map[string][]string{}
	var mu sync.Mutex
	t.Run("engines", func(t *testing.T) {
		each(t, func(t *testing.T, url string) {
			ctx := t.Context()
			latest, err := Status(ctx, url)
			if err != nil || latest.Version != 0 || latest.Latest == 0 || latest.Dirty {
				t.Fatalf("an empty database: %+v and %v", latest, err)
			}
			for range 2 { // the second one finds nothing to do
				if err := Up(ctx, url); err != nil {
					t.Fatal(err)
				}
				wantState(t, url, files, State{Version: latest.Latest, Latest: latest.Latest})
			}
			up := columns(t, url)
			mu.Lock()
			all[t.Name()] = up
			mu.Unlock()
			if err := Down(ctx, url, 1); err != nil {
				t.Fatal(err)
			}
			wantState(t, url, files, State{Version: latest.Latest - 1, Latest: latest.Latest})
			for range 2 { // more steps than there are, and no step at all
				if err := Down(ctx, url, 100); err != nil {
					t.Fatal(err)
				}
				wantState(t, url, files, State{Latest: latest.Latest})
			}
			if diff := cmp.Diff([]string{"schema_migrations.dirty", "schema_migrations.version"}, columns(t, url),
				cmp.Transformer("sorted", func(s []string) []string { return slices.Sorted(slices.Values(s)) })); diff != "" {
				t.Errorf("left after all the way down (-want +got):\n%s", diff)
			}
			if err := Up(ctx, url); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(up, columns(t, url)); diff != "" {
				t.Errorf("up again makes another schema (-first +second):\n%s", diff)
			}
			if err := Down(ctx, url, 0); err == nil {
				t.Error("down by 0 steps is not refused")
			}
		})
	})
	if diff := cmp.Diff(all["TestUpAndDownAndUpAgain/engines/postgres"], all["TestUpAndDownAndUpAgain/engines/sqlite"]); diff != "" {
		t.Errorf("the engines have different columns (-postgres +sqlite):\n%s", diff)
	}
}

func TestStatusMakesNothing(t *testing.T) {
	t.Parallel()
	url := emptySQLite(t)
	wantState(t, url, withThird(working), State{Latest: 3})
	if there, err := database.SQLiteExists(url); err != nil || there {
		t.Errorf("the file exists: %v, %v", there, err)
	}
	url = emptyPostgres(t)
	wantState(t, url, withThird(working), State{Latest: 3})
	if got := columns(t, url); len(got) > 0 {
		t.Errorf("it made %v", got)
	}
}

// Each trial starts five nodes at once on an empty database.
func TestNodesThatStartTogetherAllBecomeReady(t *testing.T) {
	const nodes, trials = 5, 20
	latest := latestOfAll(t)
	for trial := range trials {
		t.Run(fmt.Sprint(trial), func(t *testing.T) {
			t.Parallel()
			url := emptyPostgres(t)
			failed := make([]error, nodes)
			var all sync.WaitGroup
			for i := range nodes {
				all.Go(func() { failed[i] = Up(t.Context(), url) })
			}
			all.Wait()
			if err := errors.Join(failed...); err != nil {
				t.Error(err)
			}
			wantEachOnce(t, url, latest)
		})
	}
}

// Nodes that share a SQLite file are processes: inside one process other locks hold.
func TestProcessesThatStartTogetherAllBecomeReady(t *testing.T) {
	const nodes, trials = 5, 5
	latest := latestOfAll(t)
	each(t, func(t *testing.T, url string) {
		for trial := range trials {
			if trial > 0 {
				if err := Down(t.Context(), url, int(latest)); err != nil {
					t.Fatal(err)
				}
			}
			var all sync.WaitGroup
			for range nodes {
				cmd := node(t, url)
				all.Go(func() {
					if out, err := cmd.CombinedOutput(); err != nil {
						t.Errorf("a node: %v: %s", err, out)
					}
				})
			}
			all.Wait()
			wantEachOnce(t, url, latest)
		}
	})
}

func wantEachOnce(t *testing.T, url string, latest uint) {
	t.Helper()
	wantState(t, url, files, State{Version: latest, Latest: latest})
	if n := column(t, url, "SELECT count(*) FROM schema_migrations"); !slices.Equal(n, []string{"1"}) {
		t.Errorf("%v versions are recorded, want 1", n)
	}
	var want []string
	for v := range latest {
		want = append(want, fmt.Sprint(v+1))
	}
	if diff := cmp.Diff(want, column(t, url, "SELECT version FROM schema_history ORDER BY version")); diff != "" {
		t.Errorf("migrations that were run (-want +got):\n%s", diff)
	}
}

// A file that fails leaves nothing but the mark. Nodes that start then change nothing, and say what to do.
func TestHalfDoneMigrationIsReportedAndRepairedOnDemand(t *testing.T) {
	each(t, func(t *testing.T, url string) {
		err := run(t.Context(), url, withThird(failing), (*session).up)
		if err == nil {
			t.Fatal("the migration did not fail")
		}
		if strings.Contains(err.Error(), "INSERT INTO") {
			t.Errorf("the error repeats the file: %v", err)
		}
		halfDone(t, url, withThird(failing))
	})
}

// The same after the node was killed while the file ran.
func TestKilledMigrationIsReportedAndRepairedOnDemand(t *testing.T) {
	t.Parallel()
	url := emptyPostgres(t)
	kill(t, url, func() bool {
		asleep := column(t, url, "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'")
		return len(asleep) == 1
	})
	halfDone(t, url, withThird(slow))
}

// SQLite takes back the mark as well: the next node goes on as if nothing had been.
func TestKilledMigrationOfSQLiteLeavesNothing(t *testing.T) {
	t.Parallel()
	url := emptySQLite(t)
	kill(t, url, func() bool {
		another := &sqlite{url: url}
		held, err := another.lock(t.Context())
		if err := another.close(); err != nil {
			t.Error(err)
		}
		return err == nil && !held
	})
	wantState(t, url, withThird(working), State{Latest: 3})
	if err := run(t.Context(), url, withThird(working), (*session).up); err != nil {
		t.Fatal(err)
	}
	wantState(t, url, withThird(working), State{Version: 3, Latest: 3})
}

// kill starts a node on the slow migration and kills it when it is at work.
func kill(t *testing.T, url string, atWork func() bool) {
	t.Helper()
	cmd := node(t, url, nodeSlow+"=1")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(5 * time.Minute)
	for !atWork() {
		if time.Now().After(deadline) {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			t.Fatalf("the migration did not begin: %s", out.String())
		}
		time.Sleep(20 * time.Millisecond)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.Exited() {
		t.Fatalf("the node ended with %v, want killed: %s", err, out.String())
	}
}

func halfDone(t *testing.T, url string, source fs.FS) {
	t.Helper()
	ctx := t.Context()
	dirty := State{Version: 3, Latest: 3, Dirty: true}
	wantState(t, url, source, dirty)
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			err := run(ctx, url, source, (*session).up)
			var got *DirtyError
			if !errors.As(err, &got) || got.Version != 3 {
				t.Errorf("a node starts with %v, want a *DirtyError of version 3", err)
			} else if !strings.Contains(err.Error(), "version 3") || !strings.Contains(err.Error(), "quotad migrate up --repair") {
				t.Errorf("%q names no version or no command", err)
			}
		})
	}
	all.Wait()
	if err := run(ctx, url, source, func(s *session) error { return s.down(1) }); !errors.As(err, new(*DirtyError)) {
		t.Errorf("down: got %v, want a *DirtyError", err)
	}
	wantState(t, url, source, dirty)
	if slices.Contains(columns(t, url), "third.x") {
		t.Error("a part of the file that did not end is there")
	}

	if err := run(ctx, url, source, (*session).repair); err != nil {
		t.Fatal(err)
	}
	wantState(t, url, source, State{Version: 2, Latest: 3})
	for range 3 {
		all.Go(func() {
			if err := run(ctx, url, withThird(working), (*session).up); err != nil {
				t.Errorf("after the repair: %v", err)
			}
		})
	}
	all.Wait()
	wantState(t, url, source, State{Version: 3, Latest: 3})
	if !slices.Contains(columns(t, url), "third.x") {
		t.Error("the migration was not run again")
	}
}

// A node can also be killed between the file's end and the removal of the mark, and on the way down.
func TestRepairKnowsWhatTheSchemaHolds(t *testing.T) {
	each(t, func(t *testing.T, url string) {
		ctx := t.Context()
		source := withThird(working)
		if err := run(ctx, url, source, (*session).up); err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			name, recorded string
			want           uint
		}{
			{"the file to 3 had ended", "3", 3},
			{"the file from 3 down to 2 was rolled back", "2", 3},
			{"the mark before the first file", "-1", 3},
		} {
			execute(t, url, "DELETE FROM schema_migrations")
			execute(t, url, "INSERT INTO schema_migrations (version, dirty) VALUES ("+c.recorded+", true)")
			if err := run(ctx, url, source, (*session).up); !errors.As(err, new(*DirtyError)) {
				t.Errorf("%s: up returns %v, want a *DirtyError", c.name, err)
			}
			if err := run(ctx, url, source, (*session).repair); err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
			wantState(t, url, source, State{Version: c.want, Latest: 3})
		}
		if err := run(ctx, url, source, (*session).repair); err != nil { // nothing to do
			t.Error(err)
		}
		wantState(t, url, source, State{Version: 3, Latest: 3})
	})
}

func TestNewerSchemaIsRefused(t *testing.T) {
	each(t, func(t *testing.T, url string) {
		ctx := t.Context()
		latest := latestOfAll(t)
		if err := Up(ctx, url); err != nil {
			t.Fatal(err)
		}
		execute(t, url, "UPDATE schema_migrations SET version = 9001")
		before := columns(t, url)
		for name, err := range map[string]error{"up": Up(ctx, url), "down": Down(ctx, url, 1)} {
			var newer *NewerError
			if !errors.As(err, &newer) || newer.Version != 9001 || newer.Latest != latest {
				t.Errorf("%s: got %v, want a *NewerError of 9001 over %d", name, err, latest)
			} else if !strings.Contains(err.Error(), "9001") || !strings.Contains(err.Error(), fmt.Sprint(latest)) {
				t.Errorf("%s: %q does not name both versions", name, err)
			}
		}
		wantState(t, url, files, State{Version: 9001, Latest: latest})
		execute(t, url, "UPDATE schema_migrations SET dirty = true")
		if err := Repair(ctx, url); !errors.As(err, new(*NewerError)) {
			t.Errorf("repair: got %v, want a *NewerError", err)
		}
		wantState(t, url, files, State{Version: 9001, Latest: latest, Dirty: true})
		if diff := cmp.Diff(before, columns(t, url)); diff != "" {
			t.Errorf("the schema changed (-before +after):\n%s", diff)
		}
	})
}

func TestWaitForTheLockEndsWithTheContext(t *testing.T) {
	each(t, func(t *testing.T, url string) {
		holder, err := open(t.Context(), url, files)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		began := time.Now()
		if err := Up(ctx, url); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want %v", err, context.DeadlineExceeded)
		}
		if took := time.Since(began); took > time.Minute {
			t.Errorf("it took %v", took)
		}
		// Whoever waits longer gets it.
		done := make(chan error, 1)
		go func() { done <- Up(t.Context(), url) }()
		select {
		case err := <-done:
			t.Errorf("the lock was held, and up returned %v", err)
		case <-time.After(500 * time.Millisecond):
		}
		if err := holder.close(); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestUnreachableDatabaseIsAnErrorWithoutThePassword(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"postgres://u:hunter2@127.0.0.1:1/db?sslmode=disable", "mysql://u:hunter2@h/db", "postgres://u:hunter2@h:port/db"} {
		for name, err := range map[string]error{
			"up": Up(t.Context(), url), "down": Down(t.Context(), url, 1), "repair": Repair(t.Context(), url),
			"status": func() error { _, err := Status(t.Context(), url); return err }(),
		} {
			if err == nil || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("%s: got %v, want an error without the password", name, err)
			}
		}
	}
}

func latestOfAll(t *testing.T) uint {
	t.Helper()
	ups, err := fs.Glob(files, "postgres/*.up.sql")
	if err != nil || len(ups) == 0 {
		t.Fatalf("%d files and %v", len(ups), err)
	}
	return uint(len(ups))
}
