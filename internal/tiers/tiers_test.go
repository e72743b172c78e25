package tiers

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/database"
)

// fullTier says something in every field; it names the group "exports".
func fullTier(name string) quotad.TierSpec {
	policy := quotad.FailClosed
	return quotad.TierSpec{
		Name: name, Description: "für 日本 🎉", RateLimit: quotad.Units(1000), RateWindow: 60, Algorithm: quotad.LeakyBucket,
		Burst: quotad.Units(2000), MaxDelayMS: quotad.MaxDelayMS, OnStoreFailure: &policy, Shadow: true,
		Limits: []quotad.Limit{
			{Name: "z", RouteGroup: "exports", Scope: quotad.ScopeTenant, Algorithm: quotad.LeakyBucket,
				RateLimit: quotad.Units(10), RateWindow: 300, Burst: quotad.Units(1), MaxDelayMS: 1, Shadow: true},
			{Name: "a", RouteGroup: quotad.AllGroups, Scope: quotad.ScopeIP, Algorithm: quotad.LeakyBucket,
				RateLimit: quotad.Units(9), RateWindow: quotad.MaxWindow, Burst: quotad.Units(5), MaxDelayMS: 500, Shadow: true},
		},
		Quotas: []quotad.Quota{
			{Name: "y", RouteGroup: "exports", Scope: quotad.ScopeSubject, Quota: quotad.Units(quotad.MaxUnits), Period: quotad.Year, Shadow: true},
			{Name: "b", RouteGroup: quotad.AllGroups, Scope: quotad.ScopeKey, Quota: quotad.Units(1), Period: quotad.Day, Shadow: true},
		},
	}
}

func TestEveryFieldOfATierComesBack(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		s.mustGroup(t, "exports", "/exports")
		s.mustTier(t, quotad.TierSpec{Name: "aaa"})
		spec := fullTier("pro")
		wantFull(t, "TierSpec", reflect.ValueOf(spec))
		for _, edit := range []func(*quotad.TierSpec){
			func(*quotad.TierSpec) {},
			func(spec *quotad.TierSpec) { // nothing, which is not the same as unlimited
				spec.RateLimit, spec.Burst, spec.Limits[0].RateLimit, spec.Limits[0].Burst = quotad.Units(0), nil, quotad.Units(0), nil
				spec.Shadow, spec.Description, spec.OnStoreFailure = false, "", nil
				spec.Quotas[0].Quota, spec.Quotas[0].Shadow = quotad.Units(0), false
			},
			func(spec *quotad.TierSpec) { // unlimited
				spec.RateLimit, spec.Limits[0].RateLimit, spec.Quotas[0].Quota = nil, nil, nil
				spec.MaxDelayMS, spec.Limits[0].MaxDelayMS = 0, 0
			},
			func(spec *quotad.TierSpec) {
				spec.Algorithm, spec.RateLimit, spec.RateWindow = quotad.FixedWindow, quotad.Units(quotad.MaxUnits), 1
			},
			func(spec *quotad.TierSpec) { spec.Limits[0], spec.Limits[1] = spec.Limits[1], spec.Limits[0] },
			func(spec *quotad.TierSpec) { spec.Quotas[0], spec.Quotas[1] = spec.Quotas[1], spec.Quotas[0] },
			func(spec *quotad.TierSpec) {
				spec.Quotas[0].Period, spec.Quotas[1].Period = quotad.Week, quotad.Month
				spec.Quotas[1].RouteGroup, spec.Quotas[1].Scope = "default", quotad.ScopeIP
			},
			func(spec *quotad.TierSpec) {
				spec.Limits[1].RouteGroup, spec.Limits[1].Scope = "default", quotad.ScopeSubject
			},
			func(spec *quotad.TierSpec) { spec.Limits = []quotad.Limit{} },
			func(spec *quotad.TierSpec) { spec.Limits, spec.Quotas = fullTier("pro").Limits, []quotad.Quota{} },
			func(spec *quotad.TierSpec) { spec.Limits = []quotad.Limit{} },
		} {
			edit(&spec)
			var tier quotad.Tier
			_, err := s.Tier(ctx, "pro")
			if errors.Is(err, quotad.ErrNotFound) {
				tier = s.mustTier(t, spec)
			} else {
				tier, err = s.UpdateTier(ctx, operator, "pro", nil, func(old *quotad.TierSpec) error { *old = spec; return nil })
				if err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(spec, tier.TierSpec); diff != "" {
				t.Fatalf("stored (-want +got):\n%s", diff)
			}
			read, err := s.Tier(ctx, "pro")
			if diff := cmp.Diff(tier, read); err != nil || diff != "" {
				t.Fatalf("read: %v (-want +got):\n%s", err, diff)
			}
			list, next, err := s.Tiers(ctx, database.Page{})
			if err != nil || next != "" || len(list) != 2 || !cmp.Equal(list[1], tier) {
				t.Fatalf("list: %v, next %q, error %v", list, next, err)
			}
		}
	})
}

func TestATierGetsItsDefaults(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		given := quotad.TierSpec{
			Name: "pro", RateWindow: 1, Limits: []quotad.Limit{{Name: "more", RateWindow: 2}}, Quotas: []quotad.Quota{{Name: "monthly", Period: quotad.Month}},
		}
		tier := s.mustTier(t, given)
		want := quotad.TierSpec{
			Name: "pro", RateWindow: 1, Algorithm: quotad.SlidingWindowCounter, Limits: []quotad.Limit{{
				Name: "more", RouteGroup: quotad.AllGroups, Scope: quotad.ScopeKey, Algorithm: quotad.SlidingWindowCounter, RateWindow: 2,
			}},
			Quotas: []quotad.Quota{{Name: "monthly", RouteGroup: quotad.AllGroups, Scope: quotad.ScopeTenant, Period: quotad.Month}},
		}
		if diff := cmp.Diff(want, tier.TierSpec); diff != "" {
			t.Errorf("tier (-want +got):\n%s", diff)
		}
		if given.Limits[0].RouteGroup != "" || given.Quotas[0].RouteGroup != "" {
			t.Error("the caller's own spec was changed")
		}
		read, err := s.Tier(t.Context(), "pro")
		if diff := cmp.Diff(tier, read); err != nil || diff != "" {
			t.Errorf("read: %v (-want +got):\n%s", err, diff)
		}
	})
}

func TestTimesAreUTCAndCutToMicroseconds(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		ctx, created := t.Context(), s.mustTier(t, quotad.TierSpec{Name: "pro"})
		updated, err := s.UpdateTier(ctx, operator, "pro", nil, func(t *quotad.TierSpec) error { t.Shadow = true; return nil })
		if err != nil {
			t.Fatal(err)
		}
		if !updated.CreatedAt.Equal(created.CreatedAt) || !updated.UpdatedAt.After(created.UpdatedAt) || created.Version != 1 || updated.Version != 2 {
			t.Errorf("created %+v, updated %+v", created, updated)
		}
		read, err := s.Tier(ctx, "pro")
		if err != nil {
			t.Fatal(err)
		}
		for _, at := range []time.Time{updated.CreatedAt, updated.UpdatedAt, read.CreatedAt, read.UpdatedAt} {
			if at.Location() != time.UTC || at.Nanosecond() != 123456000 {
				t.Errorf("time %v", at)
			}
		}
	})
}

func TestAllFaultsOfATierAreToldAtOnce(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		s.mustTier(t, quotad.TierSpec{Name: "pro"})
		odd := quotad.FailurePolicy("maybe")
		faulty := quotad.TierSpec{
			Description: "two\nlines", RateLimit: quotad.Units(-1), Algorithm: "guess", OnStoreFailure: &odd,
			Limits: []quotad.Limit{
				{Name: "a", RouteGroup: "nowhere", RateWindow: 60},
				{Name: "a", RouteGroup: "No Name", Scope: "all", RateWindow: -1},
				{Name: "base", RouteGroup: "elsewhere", RateLimit: quotad.Units(quotad.MaxUnits + 1), RateWindow: quotad.MaxWindow + 1},
				{Name: "ok", RouteGroup: "default", RateWindow: 60},
			},
			Quotas: []quotad.Quota{
				{Name: "ok", RouteGroup: "nowhere", Period: "hour", Quota: quotad.Units(-1)},
				{Name: "fine", RouteGroup: "default", Period: quotad.Day},
			},
		}
		fields := []string{
			"description", "rate_limit", "rate_window", "algorithm", "on_store_failure",
			"limits[0].route_group", "limits[1].name", "limits[1].route_group", "limits[1].scope", "limits[1].rate_window",
			"limits[2].name", "limits[2].route_group", "limits[2].rate_limit", "limits[2].rate_window", "name",
			"quotas[0].name", "quotas[0].route_group", "quotas[0].period", "quotas[0].quota",
		}
		faulty.Name = "No"
		_, err := s.CreateTier(ctx, operator, faulty)
		wantFaults(t, err, fields...)
		_, err = s.UpdateTier(ctx, operator, "pro", nil, func(spec *quotad.TierSpec) error { *spec = faulty; return nil })
		wantFaults(t, err, fields...)
		_, err = s.UpdateTier(ctx, operator, "pro", nil, func(spec *quotad.TierSpec) error { spec.Name = "other"; return nil })
		wantFaults(t, err, "name")
		if n := s.mustCount(t, `SELECT count(*) FROM tiers`); n != 1 {
			t.Errorf("%d tiers are stored, want the one", n)
		}
	})
}

func TestATierInUseStays(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		s.mustGroup(t, "exports")
		s.mustTier(t, fullTier("pro"))
		s.mustTier(t, quotad.TierSpec{Name: "free"})
		s.mustTenant(t, "acme", "pro")
		wantDetail(t, s.DeleteTier(ctx, operator, "pro", nil), quotad.ErrInUse, "tenants")
		if _, err := s.UpdateTenant(ctx, operator, "acme", nil, func(t *quotad.TenantSpec) error { t.Tier = "free"; return nil }); err != nil {
			t.Fatal(err)
		}
		if err := s.DeleteTier(ctx, operator, "pro", nil); err != nil {
			t.Fatal(err)
		}
		_, err := s.Tier(ctx, "pro")
		wantDetail(t, err, quotad.ErrNotFound, `there is no tier "pro"`)
		wantKind(t, s.DeleteTier(ctx, operator, "pro", nil), quotad.ErrNotFound)
		if n := s.mustCount(t, `SELECT (SELECT count(*) FROM limits) + (SELECT count(*) FROM quotas)`); n != 0 {
			t.Errorf("%d limits and quotas are left of the tier", n)
		}
	})
}

func TestAnEditThatFailsLeavesNothing(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		ctx, before := t.Context(), s.mustTier(t, quotad.TierSpec{Name: "pro"})
		events, refused := len(s.mustEvents(t, "")), errors.New("no merge patch")
		_, err := s.UpdateTier(ctx, operator, "pro", nil, func(spec *quotad.TierSpec) error { spec.Shadow = true; return refused })
		if !errors.Is(err, refused) {
			t.Errorf("error is %v, want the edit's own", err)
		}
		gone, cancel := context.WithCancel(ctx)
		cancel()
		if _, err := s.UpdateTier(gone, operator, "pro", nil, func(spec *quotad.TierSpec) error { spec.Shadow = true; return nil }); err == nil {
			t.Error("an edit of a caller who had hung up was made")
		}
		after, err := s.Tier(ctx, "pro")
		if diff := cmp.Diff(before, after); err != nil || diff != "" {
			t.Errorf("tier: %v (-want +got):\n%s", err, diff)
		}
		if n := len(s.mustEvents(t, "")); n != events {
			t.Errorf("%d events, want %d", n, events)
		}
	})
}
