package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quotad/quotad/internal/testenv"
	"github.com/quotad/quotad/migrations"
)

// outcome is what a process leaves behind.
type outcome struct {
	code           int
	stdout, stderr string
}

// runProgram runs quotad with a command line until it is done.
func runProgram(t *testing.T, environ []string, args ...string) outcome {
	t.Helper()
	var stdout, stderr strings.Builder
	p := program{stdout: &stdout, stderr: &stderr, environ: environ, hurry: make(chan struct{})}
	code := p.run(context.WithoutCancel(t.Context()), args)
	return outcome{code, stdout.String(), stderr.String()}
}

func TestWrongUsage(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{}, {"frobnicate"}, {"migrate"}, {"migrate", "sideways"}, {"migrate", "up", "postgres://u:s3cret@db/q"},
		{"migrate", "up", "--databse", "postgres://u:s3cret@db/q"}, {"migrate", "up", "--databse=postgres://u:s3cret@db/q"},
		{"migrate", "up", "-database=postgres://u:s3cret@db/q"}, {"migrate", "up", "--database"},
		{"migrate", "up", "--database", "postgre://u:s3cret@db/q"}, {"s3cret"}, {"migrate", "s3cret"},
		{"migrate", "down"}, {"migrate", "down", "--steps", "0"}, {"migrate", "down", "--steps", "all"}, {"version", "s3cret"},
	} {
		got := runProgram(t, nil, args...)
		if got.code != exitUsage {
			t.Errorf("quotad %q: exit code %d, want %d", args, got.code, exitUsage)
		}
		if strings.Contains(got.stderr+got.stdout, "s3cret") {
			t.Errorf("quotad %q repeats a secret: %s%s", args, got.stdout, got.stderr)
		}
		if !strings.HasPrefix(got.stderr, "quotad: ") {
			t.Errorf("quotad %q says %q", args, got.stderr)
		}
	}
}

func TestVersionAndHelp(t *testing.T) {
	t.Parallel()
	if got := runProgram(t, nil, "version"); got.code != exitDone || !strings.HasPrefix(got.stdout, "quotad ") || got.stderr != "" {
		t.Errorf("version: %+v", got)
	}
	for _, args := range [][]string{{"--help"}, {"migrate", "--help"}, {"migrate", "up", "--help"}} {
		if got := runProgram(t, nil, args...); got.code != exitDone || !strings.Contains(got.stdout, "Usage:") || got.stderr != "" {
			t.Errorf("%v: %+v", args, got)
		}
	}
}

func TestMigrate(t *testing.T) {
	t.Parallel()
	for engine, url := range map[string]string{
		"sqlite":   "sqlite://" + filepath.Join(t.TempDir(), "data", "quotad.db"),
		"postgres": testenv.Postgres(t),
	} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			environ := []string{"QUOTAD_DATABASE_URL=" + url}
			state, err := migrations.Status(t.Context(), url)
			if err != nil {
				t.Fatal(err)
			}
			at := func(version uint, word string) string {
				return fmt.Sprintf("schema version %d of %d, %s", version, state.Latest, word)
			}
			for _, step := range []struct {
				args []string
				want string
			}{
				{[]string{"status"}, at(0, "behind")},
				{[]string{"up"}, at(state.Latest, "up to date")},
				{[]string{"up"}, at(state.Latest, "up to date")},
				{[]string{"down", "--steps", "2"}, at(state.Latest-2, "behind")},
				{[]string{"status"}, at(state.Latest-2, "behind")},
				{[]string{"up", "--repair"}, at(state.Latest, "up to date")},
				{[]string{"down", "--steps", "99"}, at(0, "behind")},
			} {
				got := runProgram(t, environ, append([]string{"migrate"}, step.args...)...)
				if got.code != exitDone || !strings.HasPrefix(got.stdout, step.want) {
					t.Fatalf("migrate %v: exit code %d, %s%s, want %s", step.args, got.code, got.stdout, got.stderr, step.want)
				}
			}
		})
	}
}

func TestMigrateWithoutADatabase(t *testing.T) {
	t.Parallel()
	got := runProgram(t, []string{"QUOTAD_DATABASE_URL=postgres://quotad:s3cret@127.0.0.1:1/quotad"}, "migrate", "up")
	if got.code != exitFailed || strings.Contains(got.stderr, "s3cret") || !strings.Contains(got.stderr, "127.0.0.1:1") {
		t.Errorf("%+v", got)
	}
}
