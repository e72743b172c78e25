package tiers

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/database"
)

func TestEveryFieldOfATenantComesBack(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		s.mustTier(t, quotad.TierSpec{Name: "pro"})
		s.mustTier(t, quotad.TierSpec{Name: "free"})
		s.mustTenant(t, "aaa", "free")
		spec := quotad.TenantSpec{
			ID: "acme", Name: "شركة ✨ é", Tier: "pro", Status: quotad.TenantSuspended, TimeZone: "Asia/Shanghai", BillingAnchorDay: 31,
			Metadata: map[string]any{
				"digits": json.Number("12345678901234567890.000000000000000001"), "nul": "\x00", "html": "<img src=x>",
				"日本": []any{nil, true, map[string]any{"a": "b"}}, "": "empty", "sep": "\u2028", "secret": "theirs",
			},
		}
		wantFull(t, "TenantSpec", reflect.ValueOf(spec))
		tenant, err := s.CreateTenant(ctx, operator, spec)
		for _, edit := range []func(*quotad.TenantSpec){
			func(*quotad.TenantSpec) {},
			func(spec *quotad.TenantSpec) { spec.Name, spec.Tier = "Acme", "free" },
			func(spec *quotad.TenantSpec) { spec.Status, spec.TimeZone = quotad.TenantActive, "UTC" },
			func(spec *quotad.TenantSpec) { spec.BillingAnchorDay, spec.Metadata = 1, map[string]any{} },
		} {
			edit(&spec)
			if err == nil {
				tenant, err = s.UpdateTenant(ctx, operator, "acme", nil, func(old *quotad.TenantSpec) error { *old = spec; return nil })
			}
			if diff := cmp.Diff(spec, tenant.TenantSpec); err != nil || diff != "" {
				t.Fatalf("stored: %v (-want +got):\n%s", err, diff)
			}
			read, err := s.Tenant(ctx, "acme")
			if diff := cmp.Diff(tenant, read); err != nil || diff != "" {
				t.Fatalf("read: %v (-want +got):\n%s", err, diff)
			}
			list, next, err := s.Tenants(ctx, database.Page{})
			if err != nil || next != "" || len(list) != 2 || !cmp.Equal(list[1], tenant) {
				t.Fatalf("list: %v, next %q, error %v", list, next, err)
			}
		}
	})
}

func TestATenantGetsItsDefaults(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		s.mustTier(t, quotad.TierSpec{Name: "pro"})
		want := quotad.TenantSpec{
			ID: "acme", Name: "acme", Tier: "pro", Status: quotad.TenantActive, TimeZone: "UTC", BillingAnchorDay: 1, Metadata: map[string]any{},
		}
		if diff := cmp.Diff(want, s.mustTenant(t, "acme", "pro").TenantSpec); diff != "" {
			t.Errorf("tenant (-want +got):\n%s", diff)
		}
	})
}

func TestAllFaultsOfATenantAreToldAtOnce(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		s.mustTier(t, quotad.TierSpec{Name: "pro"})
		s.mustTenant(t, "acme", "pro")
		faulty := quotad.TenantSpec{
			ID: "Acme", Tier: "nowhere", Status: "away", TimeZone: "Mars/Olympus", BillingAnchorDay: 32,
			Metadata: map[string]any{"x": strings.Repeat("x", quotad.MaxMetadata)},
		}
		fields := []string{"id", "name", "tier", "status", "time_zone", "billing_anchor_day", "metadata"}
		_, err := s.CreateTenant(ctx, operator, faulty)
		wantFaults(t, err, fields...)
		_, err = s.UpdateTenant(ctx, operator, "acme", nil, func(spec *quotad.TenantSpec) error { *spec = faulty; return nil })
		wantFaults(t, err, fields...)
		_, err = s.UpdateTenant(ctx, operator, "acme", nil, func(spec *quotad.TenantSpec) error { spec.ID = "other"; return nil })
		wantFaults(t, err, "id")
		_, err = s.UpdateTenant(ctx, operator, "acme", nil, func(spec *quotad.TenantSpec) error { spec.Tier = "nowhere"; return nil })
		wantFaults(t, err, "tier")
		if e := (*quotad.Error)(nil); errors.As(err, &e) && e.Fields["tier"] != `there is no tier "nowhere"` {
			t.Errorf("the fault of the tier is %q", e.Fields["tier"])
		}
		_, err = s.CreateTenant(ctx, operator, quotad.TenantSpec{ID: "b", Name: "b", Tier: "a\x00b"})
		wantFaults(t, err, "tier")
		if n := s.mustCount(t, `SELECT count(*) FROM tenants`); n != 1 {
			t.Errorf("%d tenants are stored, want the one", n)
		}
	})
}

func TestATenantGoesOnceItsKeysAreRevoked(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		s.mustTier(t, quotad.TierSpec{Name: "pro"})
		s.mustTenant(t, "acme", "pro")
		s.mustTenant(t, "other", "pro")
		s.mustKey(t, "k1", "acme", "revoked", "default")
		s.mustKey(t, "k2", "acme", "disabled")
		s.mustKey(t, "k3", "other", "revoked")
		wantDetail(t, s.DeleteTenant(ctx, operator, "acme", nil), quotad.ErrInUse, "keys that are not revoked")
		if n := s.mustCount(t, `SELECT count(*) FROM keys`); n != 3 {
			t.Fatalf("%d keys are left after a refusal, want all 3", n)
		}
		err := s.db.InTx(ctx, func(tx *database.Tx) error {
			_, err := tx.ExecContext(ctx, `UPDATE keys SET status = 'revoked' WHERE id = 'k2'`)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.DeleteTenant(ctx, operator, "acme", nil); err != nil {
			t.Fatal(err)
		}
		if n := s.mustCount(t, `SELECT count(*) FROM keys`); n != 1 {
			t.Errorf("%d keys are left, want the one of the other tenant", n)
		}
		_, err = s.Tenant(ctx, "acme")
		wantDetail(t, err, quotad.ErrNotFound, `there is no tenant "acme"`)
	})
}
