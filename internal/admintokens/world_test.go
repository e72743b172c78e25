package admintokens_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/admintokens"
	"github.com/quotad/quotad/internal/database"
	"github.com/quotad/quotad/internal/database/databasetest"
	"github.com/quotad/quotad/internal/events"
	"github.com/quotad/quotad/internal/testenv"
)

var operator = quotad.Actor{Type: "admin_token", ID: "op", Name: "an owner", RequestID: "r1", Address: "192.0.2.1"}

// world is a store of admin tokens in an empty database, at testenv.Noon.
type world struct {
	t      *testing.T
	db     *database.DB
	tokens *admintokens.Store
	clock  *testenv.Clock
}

// inEach runs f on each engine.
func inEach(t *testing.T, f func(w *world)) {
	t.Parallel()
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		w := &world{t: t, db: db, clock: testenv.NewClock()}
		w.tokens = admintokens.NewStore(db, events.NewLog(db, events.Options{Now: w.clock.Now}), admintokens.Options{Now: w.clock.Now})
		f(w)
	})
}

func (w *world) create(spec quotad.AdminTokenSpec) quotad.AdminToken {
	w.t.Helper()
	token, err := w.tokens.Create(w.t.Context(), operator, spec)
	if err != nil {
		w.t.Fatal(err)
	}
	return token
}

func (w *world) bootstrap(given string) (minted string) {
	w.t.Helper()
	minted, err := w.tokens.EnsureBootstrap(w.t.Context(), given)
	if err != nil {
		w.t.Fatal(err)
	}
	return minted
}

// isOwner checks that the text lets an owner in.
func (w *world) isOwner(text string) {
	w.t.Helper()
	found, err := w.tokens.Find(w.t.Context(), text)
	if err != nil || !found.Admits(text, time.Now()) || found.Token.Role != quotad.RoleOwner {
		w.t.Errorf("the text of %d characters is no owner's: %v, role %q", len(text), err, found.Token.Role)
	}
}

// isNobody checks that the text lets nobody in.
func (w *world) isNobody(text string) {
	w.t.Helper()
	_, err := w.tokens.Find(w.t.Context(), text)
	w.refused("a text that was replaced", err, quotad.ErrNotFound)
}

func (w *world) count(query string, args ...any) (n int) {
	w.t.Helper()
	if err := w.db.QueryRowContext(w.t.Context(), query, args...).Scan(&n); err != nil {
		w.t.Fatal(err)
	}
	return n
}

// actions are the recorded actions on a token, in order.
func (w *world) actions(id string) (actions []string) {
	w.t.Helper()
	rows, err := w.db.QueryContext(w.t.Context(), `SELECT action FROM events WHERE resource = 'admin_token' AND target = $1 ORDER BY id`, id)
	if err != nil {
		w.t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var action string
		if err := rows.Scan(&action); err != nil {
			w.t.Fatal(err)
		}
		actions = append(actions, action)
	}
	if err := rows.Err(); err != nil {
		w.t.Fatal(err)
	}
	return actions
}

// dump is every column of the tables that know of tokens.
func (w *world) dump() []byte {
	w.t.Helper()
	var all bytes.Buffer
	for table, columns := range map[string][]string{
		"admin_tokens": {"id", "name", "role", "hash", "hint", "expires_at", "version", "created_at"},
		"events": {"id", "at", "action", "actor_type", "actor_id", "actor_name", "request_id", "address",
			"resource", "target", "tenant", "version", "before", "after"},
	} {
		rows, err := w.db.QueryContext(w.t.Context(), `SELECT `+strings.Join(columns, ", ")+` FROM `+table)
		if err != nil {
			w.t.Fatal(err)
		}
		for rows.Next() {
			values, dest := make([]any, len(columns)), make([]any, len(columns))
			for i := range values {
				dest[i] = &values[i]
			}
			if err := rows.Scan(dest...); err != nil {
				w.t.Fatal(err)
			}
			for _, v := range values {
				fmt.Fprintf(&all, "%s\n", v)
			}
		}
		if err := errors.Join(rows.Err(), rows.Close()); err != nil {
			w.t.Fatal(err)
		}
	}
	return all.Bytes()
}

func (w *world) same(what string, want, got any) {
	w.t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		w.t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// refused checks that err is of the kind.
func (w *world) refused(what string, err, kind error) {
	w.t.Helper()
	if !errors.Is(err, kind) {
		w.t.Errorf("%s: %v, want %v", what, err, kind)
	}
}

// faulty checks that err names exactly these fields.
func (w *world) faulty(what string, err error, fields ...string) {
	w.t.Helper()
	var e *quotad.Error
	if !errors.As(err, &e) || e.Code != quotad.CodeInvalidFields || len(e.Fields) != len(fields) {
		w.t.Errorf("%s: %v, want faults of %v", what, err, fields)
		return
	}
	for _, f := range fields {
		if !e.Fields.Has(f) {
			w.t.Errorf("%s: %v, want a fault of %s", what, err, f)
		}
	}
}
