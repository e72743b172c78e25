package tiers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/database"
	"github.com/quotad/quotad/internal/events"
)

// Store keeps tiers, tenants and route groups. Its methods may be called at once
// from many goroutines, and on many nodes.
type Store struct {
	db  *database.DB
	log *events.Log
	now func() time.Time
}

// Options of a Store. The zero value works.
type Options struct {
	// Now is the clock for created_at and updated_at; time.Now by default.
	Now func() time.Time
}

// NewStore returns a Store in db that leaves its events in log.
func NewStore(db *database.DB, log *events.Log, o Options) *Store {
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Store{db: db, log: log, now: o.Now}
}

// write is one successful write, for the log.
type write struct {
	by       quotad.Actor
	resource quotad.Resource
	verb     string // created, updated or deleted
	target   string
	tenant   string // "" where there is none
	version  int64  // of the resource after the write
	before   any    // nil on creation
	after    any    // nil on deletion
}

func (s *Store) record(ctx context.Context, tx *database.Tx, w write) error {
	return s.log.Record(ctx, tx, w.by, string(w.resource)+"."+w.verb, w.resource, w.target, w.tenant, w.version, w.before, w.after)
}

// lockRow waits until no other transaction writes the row, and keeps others from
// it until this one ends: what is read of it from then on stays true. update is
// a statement that changes nothing in the row of its one argument.
func lockRow(ctx context.Context, tx *database.Tx, update, id string, resource quotad.Resource) error {
	n, err := tx.ExecContext(ctx, update, id)
	if err == nil && n == 0 {
		return notFound(resource, id)
	}
	return err
}

// Revision is one state of a resource. A resource that is deleted and made again under
// its name has the same versions once more, and is told apart by when it was made.
type Revision struct {
	CreatedAt time.Time
	Version   int64
}

// check says whether a write may go on that was asked for with If-Match, or without (nil).
func (r *Revision) check(createdAt time.Time, version int64) error {
	if r == nil {
		return nil
	}
	if r.Version == version && !r.CreatedAt.Equal(createdAt) {
		return quotad.NewError(quotad.CodePreconditionFailed, "If-Match names one that is gone: it has been made anew")
	}
	return database.CheckVersion(&r.Version, version)
}

// same reports whether two specs say the same as JSON, which is how clients see them.
func same(a, b any) (bool, error) {
	x, err := json.Marshal(a)
	if err != nil {
		return false, fmt.Errorf("encode: %w", err)
	}
	y, err := json.Marshal(b)
	if err != nil {
		return false, fmt.Errorf("encode: %w", err)
	}
	return string(x) == string(y), nil
}

// noun is what a person calls the resource.
func noun(r quotad.Resource) string {
	if r == quotad.ResourceRouteGroup {
		return "route group"
	}
	return string(r)
}

func notFound(r quotad.Resource, id string) error {
	return quotad.NewError(quotad.CodeNotFound, fmt.Sprintf("there is no %s %q", noun(r), id))
}

// detailed gives an error of the code a detail, and leaves any other one alone.
func detailed(err error, code quotad.Code, detail string) error {
	if !errors.Is(err, &quotad.Error{Code: code}) {
		return err
	}
	return &quotad.Error{Code: code, Detail: detail, Cause: err}
}

// failed says what was attempted, in front of what went wrong.
func failed(verb string, r quotad.Resource, id string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s %s %q: %w", verb, noun(r), id, err)
}

// start reads a page of a list that is ordered by name.
func start(page database.Page, list string) (rows int, after string, err error) {
	rows, given, err := page.Start(list, &after)
	if err == nil && given && !quotad.ValidName(after) {
		err = database.ErrCursor
	}
	return rows, after, err
}
