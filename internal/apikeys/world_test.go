package apikeys_test

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/apikeys"
	"github.com/quotad/quotad/internal/database"
	"github.com/quotad/quotad/internal/database/databasetest"
	"github.com/quotad/quotad/internal/events"
	"github.com/quotad/quotad/internal/testenv"
)

var operator = quotad.Actor{Type: "admin_token", ID: "op", Name: "an operator", RequestID: "r1", Address: "192.0.2.1"}

// world is a store of keys in a database that has the tenants acme and globex
// and the route groups exports and reports, at testenv.Noon.
type world struct {
	t     *testing.T
	db    *database.DB
	keys  *apikeys.Store
	clock *testenv.Clock
}

// inEach runs f on each engine.
func inEach(t *testing.T, f func(w *world)) {
	t.Parallel()
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		w := &world{t: t, db: db, clock: testenv.NewClock()}
		w.keys = apikeys.NewStore(db, w.log(), apikeys.Options{Now: w.clock.Now})
		w.exec(`INSERT INTO tiers (name, description, rate_limit, rate_window, algorithm, shadow, version, created_at, updated_at)
			VALUES ('pro', '', 10, 60, 'fixed_window', false, 1, $1, $1)`, testenv.Noon)
		for _, tenant := range []string{"acme", "globex"} {
			w.exec(`INSERT INTO tenants (id, name, tier, status, time_zone, billing_anchor_day, metadata, version, created_at, updated_at)
				VALUES ($1, $1, 'pro', 'active', 'UTC', 1, '{}', 1, $2, $2)`, tenant, testenv.Noon)
		}
		for _, group := range []string{"exports", "reports"} {
			w.exec(`INSERT INTO route_groups (name, patterns, cost, auth, version, created_at, updated_at)
				VALUES ($1, '[]', 1, 'key', 1, $2, $2)`, group, testenv.Noon)
		}
		f(w)
	})
}

func (w *world) log() *events.Log { return events.NewLog(w.db, events.Options{Now: w.clock.Now}) }

func (w *world) exec(query string, args ...any) {
	w.t.Helper()
	err := w.db.InTx(w.t.Context(), func(tx *database.Tx) error {
		_, err := tx.ExecContext(w.t.Context(), query, args...)
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) count(query string, args ...any) (n int) {
	w.t.Helper()
	if err := w.db.QueryRowContext(w.t.Context(), query, args...).Scan(&n); err != nil {
		w.t.Fatal(err)
	}
	return n
}

// create makes a key of acme.
func (w *world) create(spec quotad.KeySpec) quotad.Key {
	w.t.Helper()
	key, err := w.keys.Create(w.t.Context(), operator, "acme", spec)
	if err != nil {
		w.t.Fatal(err)
	}
	return key
}

func (w *world) key(id string) quotad.Key {
	w.t.Helper()
	key, err := w.keys.Key(w.t.Context(), id)
	if err != nil {
		w.t.Fatal(err)
	}
	return key
}

func (w *world) rotate(id string, grace time.Duration) quotad.Key {
	w.t.Helper()
	key, err := w.keys.Rotate(w.t.Context(), operator, id, nil, grace)
	if err != nil {
		w.t.Fatal(err)
	}
	return key
}

// admits asks what a front door asks: whether the text is that of a key that works.
func (w *world) admits(text string) bool {
	w.t.Helper()
	key := w.find(text)
	return key.Admits(text, w.clock.Now()) && key.Key.StatusAt(w.clock.Now()) == quotad.KeyActive
}

// find finds the key that a secret names.
func (w *world) find(text string) apikeys.Stored {
	w.t.Helper()
	id := text[len("qk_"):][:16]
	found, err := w.keys.Find(w.t.Context(), []string{id})
	if err != nil {
		w.t.Fatal(err)
	}
	return found[id]
}

// actions are the recorded actions on a key, in order.
func (w *world) actions(id string) (actions []string) {
	w.t.Helper()
	for _, e := range w.events(id) {
		actions = append(actions, e.action)
	}
	return actions
}

type event struct {
	action, actor, tenant string
	version               int64
	before, after         *string
}

func (w *world) events(id string) (all []event) {
	w.t.Helper()
	rows, err := w.db.QueryContext(w.t.Context(),
		`SELECT action, actor_id, tenant, version, before, after FROM events WHERE resource = 'key' AND target = $1 ORDER BY id`, id)
	if err != nil {
		w.t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var e event
		if err := rows.Scan(&e.action, &e.actor, &e.tenant, &e.version, &e.before, &e.after); err != nil {
			w.t.Fatal(err)
		}
		all = append(all, e)
	}
	if err := rows.Err(); err != nil {
		w.t.Fatal(err)
	}
	return all
}

// same compares keys, times as instants.
func (w *world) same(what string, want, got any) {
	w.t.Helper()
	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Prefix{})); diff != "" {
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
	if !errors.As(err, &e) || e.Code != quotad.CodeInvalidFields {
		w.t.Errorf("%s: %v, want invalid fields", what, err)
		return
	}
	for _, f := range fields {
		if !e.Fields.Has(f) {
			w.t.Errorf("%s: %v, want a fault of %s", what, err, f)
		}
	}
	if len(e.Fields) != len(fields) {
		w.t.Errorf("%s: %v, want faults of %v", what, err, fields)
	}
}

func rename(name string) func(*quotad.KeySpec) error {
	return func(spec *quotad.KeySpec) error { spec.Name = name; return nil }
}

func names(n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprint("group", i))
	}
	return all
}
