package tiers

import (
	"encoding/json"
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/database"
	"github.com/quotad/quotad/internal/database/databasetest"
	"github.com/quotad/quotad/internal/events"
)

var operator = quotad.Actor{Type: "admin_token", ID: "qa1", Name: "ops", RequestID: "req-1", Address: "192.0.2.1"}

// each runs f on a fresh store over each engine. Its clock moves on by a second
// with every look at it.
func each(t *testing.T, f func(t *testing.T, s *Store)) {
	t.Parallel()
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		var looks atomic.Int64
		east := time.FixedZone("east", 5*3600)
		now := func() time.Time {
			return time.Date(2026, 11, 30, 12, 0, 0, 123456789, east).Add(time.Duration(looks.Add(1)) * time.Second)
		}
		f(t, NewStore(db, events.NewLog(db, events.Options{Now: now}), Options{Now: now}))
	})
}

func (s *Store) mustTier(t testing.TB, spec quotad.TierSpec) quotad.Tier {
	t.Helper()
	if spec.RateWindow == 0 {
		spec.RateWindow = 60
	}
	tier, err := s.CreateTier(t.Context(), operator, spec)
	if err != nil {
		t.Fatal(err)
	}
	return tier
}

func (s *Store) mustTenant(t testing.TB, id, tier string) quotad.Tenant {
	t.Helper()
	tenant, err := s.CreateTenant(t.Context(), operator, quotad.TenantSpec{ID: id, Name: id, Tier: tier})
	if err != nil {
		t.Fatal(err)
	}
	return tenant
}

func (s *Store) mustGroup(t testing.TB, name string, match ...string) quotad.RouteGroup {
	t.Helper()
	group, err := s.CreateRouteGroup(t.Context(), operator, quotad.RouteGroupSpec{Name: name, Match: match})
	if err != nil {
		t.Fatal(err)
	}
	return group
}

// mustKey writes a key's rows, which belong to another store.
func (s *Store) mustKey(t testing.TB, id, tenant, status string, groups ...string) {
	t.Helper()
	ctx, now := t.Context(), database.Time(time.Now())
	err := s.db.InTx(ctx, func(tx *database.Tx) error {
		_, err := tx.ExecContext(ctx, `
			INSERT INTO keys (id, tenant, name, all_route_groups, allowed_cidrs, status, version, created_at, updated_at)
			VALUES ($1, $2, '', $3, '[]', $4, 1, $5, $5)`, id, tenant, len(groups) == 0, status, now)
		for i, g := range groups {
			if err == nil {
				_, err = tx.ExecContext(ctx, `INSERT INTO key_route_groups (key_id, ordinal, route_group) VALUES ($1, $2, $3)`, id, i, g)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// mustCount is the one number that a query gives.
func (s *Store) mustCount(t testing.TB, query string, args ...any) (n int) {
	t.Helper()
	if err := s.db.QueryRowContext(t.Context(), query, args...).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// event is what a row of events says, without its time.
type event struct {
	Action, Target, Tenant string
	Actor                  quotad.Actor
	Resource               quotad.Resource
	Version                int64
	Before, After          string
}

// mustEvents are the events of a target in order; all of them where it is "".
func (s *Store) mustEvents(t testing.TB, target string) []event {
	t.Helper()
	rows, err := s.db.QueryContext(t.Context(), `
		SELECT action, target, tenant, actor_type, actor_id, actor_name, request_id, address, resource, version,
			coalesce(before, ''), coalesce(after, '')
		FROM events WHERE target = $1 OR $1 = '' ORDER BY id`, target)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var list []event
	for rows.Next() {
		var e event
		err := rows.Scan(&e.Action, &e.Target, &e.Tenant, &e.Actor.Type, &e.Actor.ID, &e.Actor.Name, &e.Actor.RequestID, &e.Actor.Address,
			&e.Resource, &e.Version, &e.Before, &e.After)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, e)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return list
}

// text is v as JSON.
func text(t testing.TB, v any) string {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func wantKind(t testing.TB, err error, kind *quotad.Error) {
	t.Helper()
	if !errors.Is(err, kind) {
		t.Fatalf("error is %v, want %s", err, kind.Code)
	}
}

// wantDetail is wantKind for those kinds that tell the caller more.
func wantDetail(t testing.TB, err error, kind *quotad.Error, detail string) {
	t.Helper()
	wantKind(t, err, kind)
	var e *quotad.Error
	if errors.As(err, &e); !strings.Contains(e.Detail, detail) {
		t.Errorf("detail is %q, want %q in it", e.Detail, detail)
	}
}

// wantFaults wants exactly these fields to be faulty.
func wantFaults(t testing.TB, err error, fields ...string) {
	t.Helper()
	wantKind(t, err, quotad.ErrInvalidFields)
	var e *quotad.Error
	errors.As(err, &e)
	slices.Sort(fields)
	if diff := cmp.Diff(fields, slices.Sorted(maps.Keys(e.Fields))); diff != "" {
		t.Errorf("faulty fields (-want +got):\n%s\n%v", diff, err)
	}
}

func containsAll(s string, parts ...string) bool {
	for _, p := range parts {
		if !strings.Contains(s, p) {
			return false
		}
	}
	return true
}

// wantFull fails when a field of v, at any depth, is left at its zero value: a
// field that is added to a spec is to be added to these tests.
func wantFull(t testing.TB, at string, v reflect.Value) {
	t.Helper()
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			wantFull(t, at+"."+v.Type().Field(i).Name, v.Field(i))
		}
	case reflect.Slice:
		for i := range v.Len() {
			wantFull(t, at, v.Index(i))
		}
		if v.Len() == 0 {
			t.Errorf("%s is empty", at)
		}
	default:
		if v.IsZero() {
			t.Errorf("%s is left out", at)
		}
	}
}

func TestNothingAnswersWhileTheDatabaseIsAway(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		if err := s.db.Close(); err != nil {
			t.Fatal(err)
		}
		ctx := t.Context()
		_, err := s.Tier(ctx, "pro")
		wantKind(t, err, quotad.ErrStoreUnavailable)
		_, _, err = s.Tenants(ctx, database.Page{})
		wantKind(t, err, quotad.ErrStoreUnavailable)
		_, err = s.AllRouteGroups(ctx)
		wantKind(t, err, quotad.ErrStoreUnavailable)
		_, err = s.CreateTier(ctx, operator, quotad.TierSpec{Name: "pro", RateWindow: 1})
		wantKind(t, err, quotad.ErrStoreUnavailable)
		wantKind(t, s.DeleteTenant(ctx, operator, "acme", nil), quotad.ErrStoreUnavailable)
	})
}
