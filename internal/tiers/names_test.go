package tiers

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/quotad/quotad"
)

// oddNames are no names: of what is looked up, found nowhere; of what is written, a fault.
var oddNames = []string{
	"", " ", "a b", "A", "Acme", "-a", ".a", "_a", "a/b", "a:b", "a|b", "a{b}", "a%3Ab", "a\nb", "a\x00b", "\x00", "\xff", "a\xed\xa0\x80",
	" acme", "acme ", "acme\n", strings.Repeat("🎉", 64), "日本語", "e\u0301", "é", "عربى", "\u202eacme", "*",
	strings.Repeat("a", 64), strings.Repeat("a", 255), strings.Repeat("a", 10<<10),
	`=HYPERLINK("http://x","y")`, "+1+1", "@SUM(1)", "<img src=x onerror=alert(1)>", `"><script>`, "javascript:alert(1)",
}

func isKind(err error, code quotad.Code) bool { return errors.Is(err, &quotad.Error{Code: code}) }

func TestOddNamesAreFaults(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		s.mustTier(t, quotad.TierSpec{Name: "pro"})
		s.mustTenant(t, "acme", "pro")
		for _, name := range oddNames {
			_, tier := s.CreateTier(ctx, operator, quotad.TierSpec{Name: name, RateWindow: 1})
			_, tenant := s.CreateTenant(ctx, operator, quotad.TenantSpec{ID: name, Name: "n", Tier: "pro"})
			_, tierOf := s.CreateTenant(ctx, operator, quotad.TenantSpec{ID: "a", Name: "n", Tier: name})
			_, group := s.CreateRouteGroup(ctx, operator, quotad.RouteGroupSpec{Name: name})
			_, limit := s.CreateTier(ctx, operator, quotad.TierSpec{Name: "a", RateWindow: 1, Limits: []quotad.Limit{{Name: name, RateWindow: 1}}})
			for what, err := range map[string]error{"tier": tier, "tenant": tenant, "tier of tenant": tierOf, "group": group, "limit": limit} {
				if !isKind(err, quotad.CodeInvalidFields) {
					t.Errorf("%s named %.40q: %v, want a fault", what, name, err)
				}
			}
			if name != "" && name != quotad.AllGroups {
				_, err := s.CreateTier(ctx, operator, quotad.TierSpec{Name: "a", RateWindow: 1, Limits: []quotad.Limit{{Name: "l", RouteGroup: name, RateWindow: 1}}})
				wantFaults(t, err, "limits[0].route_group")
			}
			_, read := s.Tier(ctx, name)
			_, readTenant := s.Tenant(ctx, name)
			_, readGroup := s.RouteGroup(ctx, name)
			_, update := s.UpdateTier(ctx, operator, name, nil, func(*quotad.TierSpec) error { return nil })
			_, updateTenant := s.UpdateTenant(ctx, operator, name, &Revision{Version: 1}, func(*quotad.TenantSpec) error { return nil })
			_, updateGroup := s.UpdateRouteGroup(ctx, operator, name, nil, func(*quotad.RouteGroupSpec) error { return nil })
			for i, err := range []error{
				read, readTenant, readGroup, update, updateTenant, updateGroup,
				s.DeleteTier(ctx, operator, name, nil), s.DeleteTenant(ctx, operator, name, nil), s.DeleteRouteGroup(ctx, operator, name, nil),
			} {
				if !isKind(err, quotad.CodeNotFound) {
					t.Errorf("look-up %d of %.40q: %v, want not_found", i, name, err)
				}
			}
		}
	})
}

func TestNamesForPeopleAreKeptAsTheyAre(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		s.mustTier(t, quotad.TierSpec{Name: "pro"})
		for i, name := range []string{
			strings.Repeat("🎉", 63), "日本語", "e\u0301", "é", "عربى", "\u202eacme", " acme ", "a'b\"c\\d`", "\\x00", "%00", "$1", "100%",
			`=HYPERLINK("http://x","y")`, "+1+1", "@SUM(1)", "<img src=x onerror=alert(1)>", `"><script>`, "javascript:alert(1)", strings.Repeat("a", 255),
		} {
			id := fmt.Sprintf("n%d", i)
			if _, err := s.CreateTenant(ctx, operator, quotad.TenantSpec{ID: id, Name: name, Tier: "pro"}); err != nil {
				t.Errorf("tenant named %q: %v", name, err)
				continue
			}
			if tenant, err := s.Tenant(ctx, id); err != nil || tenant.Name != name {
				t.Errorf("tenant named %q comes back as %q, %v", name, tenant.Name, err)
			}
			s.mustTier(t, quotad.TierSpec{Name: id, Description: name})
			if tier, err := s.Tier(ctx, id); err != nil || tier.Description != name {
				t.Errorf("description %q comes back as %q, %v", name, tier.Description, err)
			}
		}
		for _, name := range []string{"", "a\x00b", "a\nb", "a\u2028b", "\xff", "a\u0085", strings.Repeat("a", 256), strings.Repeat("🎉", 64), strings.Repeat("a", 10<<10)} {
			_, err := s.CreateTenant(ctx, operator, quotad.TenantSpec{ID: "odd", Name: name, Tier: "pro"})
			wantFaults(t, err, "name")
			if name != "" {
				_, err = s.CreateTier(ctx, operator, quotad.TierSpec{Name: "odd", Description: name, RateWindow: 1})
				wantFaults(t, err, "description")
			}
		}
	})
}

// TestIdentifiersThatLookJoinedStayApart takes ids that one could mistake for
// another pair's when they are joined.
func TestIdentifiersThatLookJoinedStayApart(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		s.mustTier(t, quotad.TierSpec{Name: "pro"})
		for _, id := range []string{"a", "a.b", "a_b", "a-b", "a__1", "a.", "a-", "0"} {
			s.mustTenant(t, id, "pro")
			s.mustGroup(t, id)
			if tenant, err := s.Tenant(t.Context(), id); err != nil || tenant.ID != id {
				t.Errorf("tenant %q: %+v, %v", id, tenant, err)
			}
		}
	})
}
