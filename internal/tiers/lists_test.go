package tiers

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/database"
)

// list is one of the three lists, as names.
type list struct {
	name   string
	insert string // of name $1 at $2
	create func(t testing.TB, s *Store, id string)
	remove func(t testing.TB, s *Store, id string) error
	page   func(t testing.TB, s *Store, p database.Page) ([]string, string, error)
}

func names[R any](rows []R, name func(R) string) []string {
	out := make([]string, len(rows))
	for i, r := range rows {
		out[i] = name(r)
	}
	return out
}

var lists = []list{{
	name: "tiers",
	insert: `INSERT INTO tiers (name, description, rate_window, algorithm, shadow, version, created_at, updated_at)
		VALUES ($1, '', 60, 'fixed_window', false, 1, $2, $2)`,
	create: func(t testing.TB, s *Store, id string) { s.mustTier(t, quotad.TierSpec{Name: id}) },
	remove: func(t testing.TB, s *Store, id string) error { return s.DeleteTier(t.Context(), operator, id, nil) },
	page: func(t testing.TB, s *Store, p database.Page) ([]string, string, error) {
		rows, next, err := s.Tiers(t.Context(), p)
		return names(rows, func(r quotad.Tier) string { return r.Name }), next, err
	},
}, {
	name: "tenants",
	insert: `INSERT INTO tenants (id, name, tier, status, time_zone, billing_anchor_day, metadata, version, created_at, updated_at)
		VALUES ($1, 'n', 'row-100', 'active', 'UTC', 1, '{}', 1, $2, $2)`,
	create: func(t testing.TB, s *Store, id string) { s.mustTenant(t, id, "row-100") },
	remove: func(t testing.TB, s *Store, id string) error { return s.DeleteTenant(t.Context(), operator, id, nil) },
	page: func(t testing.TB, s *Store, p database.Page) ([]string, string, error) {
		rows, next, err := s.Tenants(t.Context(), p)
		return names(rows, func(r quotad.Tenant) string { return r.ID }), next, err
	},
}, {
	name: "route_groups",
	insert: `INSERT INTO route_groups (name, patterns, cost, auth, version, created_at, updated_at)
		VALUES ($1, '[]', 1, 'key', 1, $2, $2)`,
	create: func(t testing.TB, s *Store, id string) { s.mustGroup(t, id) },
	remove: func(t testing.TB, s *Store, id string) error {
		return s.DeleteRouteGroup(t.Context(), operator, id, nil)
	},
	page: func(t testing.TB, s *Store, p database.Page) ([]string, string, error) {
		rows, next, err := s.RouteGroups(t.Context(), p)
		return names(rows, func(r quotad.RouteGroup) string { return r.Name }), next, err
	},
}}

func TestListsNeitherSkipNorRepeat(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		for _, l := range lists {
			ctx, at := t.Context(), database.Time(time.Now())
			var inserted []string
			err := s.db.InTx(ctx, func(tx *database.Tx) error { // all at one instant
				for i := range 250 {
					inserted = append(inserted, fmt.Sprintf("row-%03d", i))
					if _, err := tx.ExecContext(ctx, l.insert, inserted[i], at); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				t.Fatal(l.name, err)
			}
			seen, cursor, pages := []string{}, "", 0
			for {
				page, next, err := l.page(t, s, database.Page{Limit: 50, After: cursor})
				if err != nil {
					t.Fatal(l.name, err)
				}
				seen = append(seen, page...)
				if pages++; next == "" {
					break
				}
				cursor = next
				if pages == 1 { // one of those that were seen goes, and the last one, and three come
					for _, id := range []string{page[7], page[len(page)-1]} {
						if err := l.remove(t, s, id); err != nil {
							t.Fatal(err)
						}
					}
					for _, id := range []string{"row-0", "row-125.a", "zzz"} {
						l.create(t, s, id)
					}
				}
			}
			want := append(slices.Clone(inserted), "row-125.a", "zzz")
			if l.name == "route_groups" {
				want = append(want, "default")
			}
			slices.Sort(want)
			if diff := cmp.Diff(want, seen); diff != "" {
				t.Errorf("%s (-want +got):\n%s", l.name, diff)
			}
		}
	})
}

func TestAPageHoldsAllLimitsOfItsRows(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		for i := range 5 {
			name := fmt.Sprintf("n%d", i)
			tier := quotad.TierSpec{Name: name, RateWindow: 1}
			group := quotad.RouteGroupSpec{Name: name}
			for j := range i * 2 {
				l := quotad.Limit{Name: fmt.Sprintf("l%d", 20-j), RateWindow: int64(j + 1)}
				tier.Limits, group.Limits = append(tier.Limits, l), append(group.Limits, l)
			}
			s.mustTier(t, tier)
			if _, err := s.CreateRouteGroup(ctx, operator, group); err != nil {
				t.Fatal(err)
			}
		}
		var limits []int
		for page := (database.Page{Limit: 2}); ; {
			tiers, next, err := s.Tiers(ctx, page)
			if err != nil || len(tiers) > 2 {
				t.Fatal(tiers, err)
			}
			for _, tier := range tiers {
				one, err := s.Tier(ctx, tier.Name)
				if diff := cmp.Diff(one, tier); err != nil || diff != "" {
					t.Errorf("tier on its page: %v (-alone +page):\n%s", err, diff)
				}
				limits = append(limits, len(tier.Limits))
			}
			if page.After = next; next == "" {
				break
			}
		}
		if diff := cmp.Diff([]int{0, 2, 4, 6, 8}, limits); diff != "" {
			t.Errorf("limits of the tiers (-want +got):\n%s", diff)
		}
		groups, next, err := s.RouteGroups(ctx, database.Page{Limit: 4})
		if err != nil || next == "" || len(groups) != 4 || len(groups[3].Limits) != 4 || groups[3].Limits[3].RouteGroup != "n2" {
			t.Errorf("groups %+v, next %q, error %v", groups, next, err)
		}
	})
}

func TestPagesThatCannotBe(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		for i := range 3 {
			s.mustTier(t, quotad.TierSpec{Name: fmt.Sprint("row-10", i)})
			s.mustGroup(t, fmt.Sprint("g", i))
			s.mustTenant(t, fmt.Sprint("t", i), "row-100")
		}
		forged := func(list, key string) string {
			return base64.RawURLEncoding.EncodeToString([]byte(`{"l":"` + list + `","k":` + key + `}`))
		}
		for i, l := range lists {
			_, next, err := l.page(t, s, database.Page{Limit: 1})
			if err != nil || next == "" {
				t.Fatal(next, err)
			}
			other := lists[(i+1)%len(lists)]
			_, _, err = other.page(t, s, database.Page{Limit: 1, After: next})
			wantKind(t, err, &quotad.Error{Code: quotad.CodeInvalidRequest})
			for _, page := range []database.Page{
				{Limit: -1}, {Limit: 501}, {After: "x"}, {After: next + "x"}, {After: strings.Repeat("a", 10000)},
				{After: forged(l.name, `"a\u0000b"`)}, {After: forged(l.name, `"No"`)}, {After: forged(l.name, `""`)}, {After: forged(l.name, `7`)},
			} {
				_, _, err := l.page(t, s, page)
				if !isKind(err, quotad.CodeInvalidRequest) {
					t.Errorf("%s, page %.60v: error %v, want invalid_request", l.name, page, err)
				}
			}
		}
	})
}
