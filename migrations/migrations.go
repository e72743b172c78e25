package migrations

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/golang-migrate/migrate/v4"
	migratedb "github.com/golang-migrate/migrate/v4/database"
)

//go:embed postgres/*.sql sqlite/*.sql
var files embed.FS

// State is where a schema stands.
type State struct {
	// Version is the schema's, 0 where there is none; Latest is the one that this build needs.
	Version, Latest uint
	// Dirty is true when the migration to Version was begun and not finished.
	Dirty bool
}

// Err is what keeps the schema from being worked on, nil when nothing does.
func (s State) Err() error {
	switch {
	case s.Version > s.Latest:
		return &NewerError{Version: s.Version, Latest: s.Latest}
	case s.Dirty:
		return &DirtyError{Version: s.Version}
	}
	return nil
}

// DirtyError says that a migration was begun and not finished, so that the version does not tell what the schema holds.
type DirtyError struct{ Version uint }

// Error names the version and the command that repairs it.
func (e *DirtyError) Error() string {
	return fmt.Sprintf("the migration to schema version %d was begun and not finished: "+
		`run "quotad migrate up --repair", then start again`, e.Version)
}

// NewerError says that the schema was made by a later build.
type NewerError struct{ Version, Latest uint }

// Error names both versions.
func (e *NewerError) Error() string {
	return fmt.Sprintf("the schema is at version %d and this quotad knows versions up to %d: "+
		"run a newer quotad, or migrate down with the one that made the schema", e.Version, e.Latest)
}

// Up brings the schema at url to the latest version.
func Up(ctx context.Context, url string) error {
	return wrap("migrate up", run(ctx, url, files, (*session).up))
}

// Down takes back the last steps migrations, with all that their tables hold; fewer where there are fewer.
func Down(ctx context.Context, url string, steps int) error {
	if steps < 1 {
		return fmt.Errorf("migrate down: steps must be at least 1, not %d", steps)
	}
	return wrap("migrate down", run(ctx, url, files, func(s *session) error { return s.down(steps) }))
}

// Repair sets the version of a dirty schema to what the schema really holds; one that is clean it leaves alone.
// Migrations that are missing then are Up's to run.
func Repair(ctx context.Context, url string) error {
	return wrap("repair the schema version", run(ctx, url, files, (*session).repair))
}

// Status returns where the schema at url stands and changes nothing.
func Status(ctx context.Context, url string) (State, error) {
	state, err := status(ctx, url, files)
	return state, wrap("read the schema version", err)
}

// Fingerprint names the migrations of this build: another one for any change of a file.
func Fingerprint() (string, error) {
	sum := sha256.New()
	err := fs.WalkDir(files, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := files.ReadFile(path)
		fmt.Fprintf(sum, "%s %d\n%s", path, len(text), text)
		return err
	})
	return hex.EncodeToString(sum.Sum(nil)[:8]), err
}

func wrap(what string, err error) error {
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// run lets f work on the schema under the lock.
func run(ctx context.Context, url string, files fs.FS, f func(*session) error) (err error) {
	s, err := open(ctx, url, files)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	// Between two files is the place to stop when ctx ends.
	stop := context.AfterFunc(ctx, func() { s.migrate.GracefulStop <- true })
	defer stop()
	return f(s)
}

func (s *session) up() error {
	before, err := s.state()
	if err != nil {
		return err
	}
	if err := before.Err(); err != nil {
		return err
	}
	if err := s.migrate.Up(); err != nil && !errors.Is(err, migrate.ErrNoChange) {
		return brief(err)
	}
	after, err := s.state()
	if err != nil {
		return err
	}
	if after.Version != after.Latest {
		return errors.Join(fmt.Errorf("stopped at version %d of %d", after.Version, after.Latest), s.ctx.Err())
	}
	return nil
}

func (s *session) down(steps int) error {
	before, err := s.state()
	if err != nil {
		return err
	}
	if err := before.Err(); err != nil {
		return err
	}
	var short migrate.ErrShortLimit
	err = s.migrate.Steps(-steps)
	if errors.As(err, &short) || (before.Version == 0 && errors.Is(err, os.ErrNotExist)) {
		return nil // fewer than steps
	}
	return brief(err)
}

// brief is a failure without the text of the file, which golang-migrate puts into its errors whole.
func brief(err error) error {
	var failed migratedb.Error
	if !errors.As(err, &failed) || failed.OrigErr == nil {
		return err
	}
	return fmt.Errorf("line %d of the file: %w", failed.Line, failed.OrigErr)
}

func (s *session) repair() error {
	state, err := s.state()
	if err != nil {
		return err
	}
	if state.Version > state.Latest {
		return state.Err()
	}
	if !state.Dirty {
		return nil
	}
	holds, err := s.engine.holds(s.ctx)
	if err != nil {
		return fmt.Errorf("read what the schema holds: %w", err)
	}
	return s.migrate.Force(holds)
}
