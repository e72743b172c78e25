package apikeys

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/database"
)

// check refuses a spec with any fault, all of them named, and gives one without
// a single form: defaults are filled in, ranges lose their host bits, lists
// their repetitions, times what the database does not keep. was is the spec that
// is stored, nil for a new key.
func check(ctx context.Context, tx *database.Tx, spec, was *quotad.KeySpec, now time.Time) error {
	spec.SetDefaults()
	if spec.ExpiresAt != nil {
		at := database.Time(*spec.ExpiresAt)
		spec.ExpiresAt = &at
	}
	faults := spec.Validate()
	if was == nil || !sameTime(was.ExpiresAt, spec.ExpiresAt) {
		checkExpiry(&faults, spec.ExpiresAt, now)
	}
	if err := checkGroups(ctx, tx, &faults, spec.RouteGroups); err != nil {
		return err
	}
	if err := faults.Err(); err != nil {
		return err
	}
	spec.RouteGroups = distinct(spec.RouteGroups)
	masked := spec.AllowedCIDRs[:0:0]
	for _, p := range spec.AllowedCIDRs {
		masked = append(masked, p.Masked())
	}
	spec.AllowedCIDRs = distinct(masked)
	spec.SetDefaults()
	return nil
}

// lastYear is the last one that RFC 3339, and so JSON, can write.
const lastYear = 9999

func checkExpiry(faults *quotad.Faults, at *time.Time, now time.Time) {
	switch {
	case at == nil:
	case !at.After(now):
		faults.Add("expires_at", "must be in the future")
	case at.Year() > lastYear:
		faults.Add("expires_at", "must be before the year 10000")
	}
}

// checkGroups adds a fault for each group that does not exist. A group that goes
// before the transaction ends meets the foreign key.
func checkGroups(ctx context.Context, tx *database.Tx, faults *quotad.Faults, groups []string) error {
	if len(groups) == 0 || len(groups) > quotad.MaxListed {
		return nil
	}
	possible := slices.DeleteFunc(slices.Clone(groups), func(g string) bool { return !quotad.ValidName(g) })
	if len(possible) == 0 {
		return nil
	}
	list, args := database.In(possible)
	rows, err := tx.QueryContext(ctx, `SELECT name FROM route_groups WHERE name IN (`+list+`)`, args...)
	if err != nil {
		return fmt.Errorf("look the route groups up: %w", err)
	}
	known := map[string]bool{}
	err = rows.Each(func() error {
		var name string
		err := rows.Scan(&name)
		known[name] = true
		return err
	})
	if err != nil {
		return fmt.Errorf("look the route groups up: %w", err)
	}
	for i, g := range groups {
		if !known[g] {
			faults.Add(fmt.Sprintf("route_groups[%d]", i), "does not exist")
		}
	}
	return nil
}

// distinct returns the list without repetitions, in its order; nil stays nil.
func distinct[T comparable](list []T) []T {
	if list == nil {
		return nil
	}
	seen := make(map[T]bool, len(list))
	kept := make([]T, 0, len(list))
	for _, e := range list {
		if !seen[e] {
			kept = append(kept, e)
		}
		seen[e] = true
	}
	return kept
}

func sameTime(a, b *time.Time) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Equal(*b)
}
