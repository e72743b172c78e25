package tiers

import (
	"errors"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/database"
)

func TestEveryFieldOfARouteGroupComesBack(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		s.mustGroup(t, "aaa", "/aaa")
		spec := quotad.RouteGroupSpec{
			Name: "login", Match: []string{"POST /Login/{user}", "/日本/", "GET /a%20b/{rest...}"}, Cost: quotad.Units(7), Auth: quotad.AuthNone,
			Limits: []quotad.Limit{{
				Name: "z", RouteGroup: "login", Scope: quotad.ScopeIP, Algorithm: quotad.LeakyBucket,
				RateLimit: quotad.Units(5), RateWindow: 60, Burst: quotad.Units(9), MaxDelayMS: 250, Shadow: true,
			}, {
				Name: "a", RouteGroup: "login", Scope: quotad.ScopeIP, Algorithm: quotad.LeakyBucket,
				RateLimit: quotad.Units(50), RateWindow: 3600, Burst: quotad.Units(1), MaxDelayMS: 1, Shadow: true,
			}},
		}
		wantFull(t, "RouteGroupSpec", reflect.ValueOf(spec))
		group, err := s.CreateRouteGroup(ctx, operator, spec)
		for _, edit := range []func(*quotad.RouteGroupSpec){
			func(*quotad.RouteGroupSpec) {},
			func(spec *quotad.RouteGroupSpec) {
				spec.Cost, spec.Limits[0].RateLimit, spec.Limits[0].Burst = quotad.Units(0), quotad.Units(0), nil
			},
			func(spec *quotad.RouteGroupSpec) { spec.Limits[0].RateLimit, spec.Limits[0].MaxDelayMS = nil, 0 },
			func(spec *quotad.RouteGroupSpec) {
				spec.Match, spec.Cost = []string{"/aaa/{x}", "POST /login/{user}"}, quotad.Units(quotad.MaxUnits)
			},
			func(spec *quotad.RouteGroupSpec) {
				spec.Auth, spec.Limits[1].Scope, spec.Limits[0].Scope = quotad.AuthKey, quotad.ScopeTenant, quotad.ScopeSubject
			},
			func(spec *quotad.RouteGroupSpec) { spec.Match, spec.Limits = []string{}, []quotad.Limit{} },
		} {
			edit(&spec)
			if err == nil {
				group, err = s.UpdateRouteGroup(ctx, operator, "login", nil, func(old *quotad.RouteGroupSpec) error { *old = spec; return nil })
			}
			if diff := cmp.Diff(spec, group.RouteGroupSpec); err != nil || diff != "" {
				t.Fatalf("stored: %v (-want +got):\n%s", err, diff)
			}
			read, err := s.RouteGroup(ctx, "login")
			if diff := cmp.Diff(group, read); err != nil || diff != "" {
				t.Fatalf("read: %v (-want +got):\n%s", err, diff)
			}
			list, next, err := s.RouteGroups(ctx, database.Page{})
			if err != nil || next != "" || len(list) != 3 || !cmp.Equal(list[2], group) {
				t.Fatalf("list: %v, next %q, error %v", list, next, err)
			}
			all, err := s.AllRouteGroups(ctx)
			if diff := cmp.Diff(list, all); err != nil || diff != "" {
				t.Fatalf("all: %v (-list +all):\n%s", err, diff)
			}
		}
	})
}

func TestARouteGroupGetsItsDefaults(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		group, err := s.CreateRouteGroup(t.Context(), operator, quotad.RouteGroupSpec{
			Name: "login", Auth: quotad.AuthNone, Limits: []quotad.Limit{{Name: "l", RateWindow: 1}},
		})
		want := quotad.RouteGroupSpec{
			Name: "login", Match: []string{}, Cost: quotad.Units(1), Auth: quotad.AuthNone, Limits: []quotad.Limit{{
				Name: "l", RouteGroup: "login", Scope: quotad.ScopeIP, Algorithm: quotad.SlidingWindowCounter, RateWindow: 1,
			}},
		}
		if diff := cmp.Diff(want, group.RouteGroupSpec); err != nil || diff != "" {
			t.Errorf("group: %v (-want +got):\n%s", err, diff)
		}
		if plain := s.mustGroup(t, "plain"); plain.Auth != quotad.AuthKey {
			t.Errorf("auth is %q by default", plain.Auth)
		}
	})
}

func TestAllFaultsOfARouteGroupAreToldAtOnce(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		s.mustGroup(t, "taken", "GET /taken/{id}")
		s.mustGroup(t, "mine", "/mine")
		faulty := quotad.RouteGroupSpec{
			Name: "No", Match: []string{"/ok", "nonsense", "/Taken/x/", "GET /taken/{other}", "/mine", "/ok"}, Cost: quotad.Units(-1), Auth: "maybe",
			Limits: []quotad.Limit{{Name: "base", RouteGroup: "taken", RateWindow: 0}},
		}
		fields := []string{"name", "match[1]", "match[3]", "match[5]", "cost", "auth", "limits[0].name", "limits[0].route_group", "limits[0].rate_window"}
		_, err := s.CreateRouteGroup(ctx, operator, faulty)
		wantFaults(t, err, append(fields, "match[4]")...)
		_, err = s.UpdateRouteGroup(ctx, operator, "mine", nil, func(spec *quotad.RouteGroupSpec) error {
			faulty.Name = "mine" // whose own old pattern is no conflict
			*spec = faulty
			return nil
		})
		wantFaults(t, err, fields[1:]...)
		_, err = s.UpdateRouteGroup(ctx, operator, "mine", nil, func(spec *quotad.RouteGroupSpec) error { spec.Name = "other"; return nil })
		wantFaults(t, err, "name")
		if n := s.mustCount(t, `SELECT count(*) FROM route_groups`); n != 3 {
			t.Errorf("%d groups are stored, want the default and two", n)
		}
	})
}

func TestConflictingPatternsAreRefused(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		s.mustGroup(t, "exports", "POST /v1/exports", "GET /v1/exports/{id}")
		s.mustGroup(t, "imports", "/v1/imports")
		for pattern, other := range map[string]string{
			"POST /V1/Exports":     "POST /v1/exports",
			"GET /v1/{what}/17":    "GET /v1/exports/{id}",
			"/v1/imports/{$}":      "/v1/imports",
			"GET /v1/exports/{x}/": "", // below it, no conflict
		} {
			_, err := s.CreateRouteGroup(ctx, operator, quotad.RouteGroupSpec{Name: "new", Match: []string{"/fine", pattern}})
			if other == "" {
				if err != nil {
					t.Errorf("pattern %q: %v", pattern, err)
				}
				continue
			}
			wantFaults(t, err, "match[1]")
			if e := (*quotad.Error)(nil); errors.As(err, &e) && !containsAll(e.Fields["match[1]"], other, "route group") {
				t.Errorf("pattern %q: fault %q does not name %q", pattern, e.Fields["match[1]"], other)
			}
		}
		_, err := s.UpdateRouteGroup(ctx, operator, "imports", nil, func(spec *quotad.RouteGroupSpec) error {
			spec.Match = append(spec.Match, "POST /v1/exports")
			return nil
		})
		wantFaults(t, err, "match[1]")
		// A name that is taken is that, not a conflict with itself.
		_, err = s.CreateRouteGroup(ctx, operator, quotad.RouteGroupSpec{Name: "imports", Match: []string{"/v1/imports"}})
		wantDetail(t, err, quotad.ErrExists, `"imports"`)
		// Patterns of a group that has gone are free.
		if err := s.DeleteRouteGroup(ctx, operator, "imports", nil); err != nil {
			t.Fatal(err)
		}
		s.mustGroup(t, "again", "/v1/imports")
		groups, err := s.AllRouteGroups(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := newMatcher(t, groups...).Match("GET", "/v1/imports"); err != nil || got != "again" {
			t.Errorf("the stored groups match %q, %v", got, err)
		}
	})
}

func TestTheDefaultGroupStays(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		group, err := s.RouteGroup(ctx, quotad.DefaultGroup)
		want := quotad.RouteGroupSpec{Name: "default", Match: []string{}, Cost: quotad.Units(1), Auth: quotad.AuthKey, Limits: []quotad.Limit{}}
		if diff := cmp.Diff(want, group.RouteGroupSpec); err != nil || diff != "" {
			t.Fatalf("group: %v (-want +got):\n%s", err, diff)
		}
		wantKind(t, s.DeleteRouteGroup(ctx, operator, "default", nil), quotad.ErrInUse)
		_, err = s.UpdateRouteGroup(ctx, operator, "default", nil, func(spec *quotad.RouteGroupSpec) error {
			spec.Match, spec.Auth = []string{"/"}, quotad.AuthNone
			return nil
		})
		wantFaults(t, err, "match", "auth")
		_, err = s.CreateRouteGroup(ctx, operator, quotad.RouteGroupSpec{Name: "default"})
		wantKind(t, err, quotad.ErrExists)
		_, err = s.UpdateRouteGroup(ctx, operator, "default", nil, func(spec *quotad.RouteGroupSpec) error {
			spec.Cost, spec.Limits = quotad.Units(0), []quotad.Limit{{Name: "own", RouteGroup: "default", RateWindow: 1}}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
}

func TestARevokedKeyKeepsNoRouteGroup(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		s.mustGroup(t, "exports", "/v1/exports")
		s.mustTier(t, quotad.TierSpec{Name: "pro", RateWindow: 1})
		s.mustTenant(t, "acme", "pro")
		s.mustKey(t, "k1", "acme", "revoked", "exports", "default")
		s.mustKey(t, "k2", "acme", "disabled", "exports")
		wantKind(t, s.DeleteRouteGroup(ctx, operator, "exports", nil), quotad.ErrInUse)
		if n := s.mustCount(t, `SELECT count(*) FROM key_route_groups`); n != 3 {
			t.Errorf("%d groups of keys after a refusal, want 3", n)
		}
		err := s.db.InTx(ctx, func(tx *database.Tx) error {
			_, err := tx.ExecContext(ctx, `UPDATE keys SET status = 'revoked' WHERE id = 'k2'`)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.DeleteRouteGroup(ctx, operator, "exports", nil); err != nil {
			t.Error(err)
		}
		if n := s.mustCount(t, `SELECT count(*) FROM keys WHERE NOT all_route_groups`); n != 2 {
			t.Errorf("%d keys are still bound to a list, want 2", n)
		}
	})
}

func TestARouteGroupInUseStays(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		for _, name := range []string{"by-tier", "by-quota", "by-key", "by-itself"} {
			_, err := s.CreateRouteGroup(ctx, operator, quotad.RouteGroupSpec{Name: name, Limits: []quotad.Limit{{Name: "own", RateWindow: 1, RouteGroup: name}}})
			if err != nil {
				t.Fatal(err)
			}
		}
		s.mustTier(t, quotad.TierSpec{Name: "pro", Limits: []quotad.Limit{{Name: "l", RouteGroup: "by-tier", RateWindow: 1}}})
		s.mustTier(t, quotad.TierSpec{Name: "metered", Quotas: []quotad.Quota{{Name: "q", RouteGroup: "by-quota", Period: quotad.Day}}})
		s.mustTenant(t, "acme", "pro")
		s.mustKey(t, "k1", "acme", "active", "by-key")
		for _, name := range []string{"by-tier", "by-quota", "by-key"} {
			wantDetail(t, s.DeleteRouteGroup(ctx, operator, name, nil), quotad.ErrInUse, "name this route group")
			if group, err := s.RouteGroup(ctx, name); err != nil || len(group.Limits) != 1 {
				t.Errorf("after a refusal: %+v, %v", group, err)
			}
		}
		if err := s.DeleteRouteGroup(ctx, operator, "by-itself", nil); err != nil {
			t.Error(err)
		}
		_, err := s.RouteGroup(ctx, "by-itself")
		wantDetail(t, err, quotad.ErrNotFound, `there is no route group "by-itself"`)
		if _, err := s.UpdateTier(ctx, operator, "pro", nil, func(spec *quotad.TierSpec) error { spec.Limits = nil; return nil }); err != nil {
			t.Fatal(err)
		}
		if err := s.DeleteRouteGroup(ctx, operator, "by-tier", nil); err != nil {
			t.Error(err)
		}
		if err := s.DeleteTier(ctx, operator, "metered", nil); err != nil {
			t.Fatal(err)
		}
		if err := s.DeleteRouteGroup(ctx, operator, "by-quota", nil); err != nil {
			t.Error(err)
		}
	})
}
