package tiers

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/database"
)

// limitColumns are read for each limit, after its owner's own columns; all are
// NULL for an owner without limits.
const limitColumns = `l.name, l.route_group, l.scope, l.algorithm, l.rate_limit, l.rate_window, l.burst, l.max_delay_ms, l.shadow`

// limitRow is where limitColumns are read to.
type limitRow struct {
	name, routeGroup *string
	scope            *quotad.Scope
	algorithm        *quotad.Algorithm
	rateLimit        *int64
	rateWindow       *int64
	burst            *int64
	maxDelayMS       *int64
	shadow           *bool
}

func (r *limitRow) fields() []any {
	return []any{&r.name, &r.routeGroup, &r.scope, &r.algorithm, &r.rateLimit, &r.rateWindow, &r.burst, &r.maxDelayMS, &r.shadow}
}

// appendTo appends the limit, if there is one, whose route group is group where
// the row names none.
func (r *limitRow) appendTo(limits []quotad.Limit, group string) []quotad.Limit {
	if r.name == nil {
		return limits
	}
	if r.routeGroup != nil {
		group = *r.routeGroup
	}
	return append(limits, quotad.Limit{
		Name: *r.name, RouteGroup: group, Scope: *r.scope, Algorithm: *r.algorithm,
		RateLimit: r.rateLimit, RateWindow: *r.rateWindow, Burst: r.burst, MaxDelayMS: *r.maxDelayMS, Shadow: *r.shadow,
	})
}

// insertTierLimits writes the limits of a tier that has none.
func insertTierLimits(ctx context.Context, tx *database.Tx, tier string, limits []quotad.Limit) error {
	return insertLimits(ctx, tx, &tier, nil, quotad.AllGroups, limits)
}

// insertGroupLimits writes the limits of a route group that has none.
func insertGroupLimits(ctx context.Context, tx *database.Tx, group string, limits []quotad.Limit) error {
	return insertLimits(ctx, tx, nil, &group, group, limits)
}

// insertLimits writes limits of either owner. Those of the implied group name none.
func insertLimits(ctx context.Context, tx *database.Tx, tier, ownerGroup *string, implied string, limits []quotad.Limit) error {
	for i, l := range limits {
		var group *string
		if l.RouteGroup != implied {
			group = &l.RouteGroup
		}
		_, err := tx.ExecContext(ctx, `
			INSERT INTO limits (tier, owner_group, ordinal, name, route_group, scope, algorithm, rate_limit, rate_window, burst, max_delay_ms, shadow)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)`,
			tier, ownerGroup, i, l.Name, group, string(l.Scope), string(l.Algorithm), l.RateLimit, l.RateWindow, l.Burst, l.MaxDelayMS, l.Shadow)
		if errors.Is(err, database.ErrMissingReference) {
			var faults quotad.Faults
			faults.Add(routeGroupField("limits", i), noSuchGroup(l.RouteGroup))
			return faults.Err()
		}
		if err != nil {
			return fmt.Errorf("insert limit %d: %w", i, err)
		}
	}
	return nil
}

// addMissingGroups adds a fault for every limit and quota of a route group that
// does not exist. A group that goes after this is found missing by insertLimits
// or insertQuotas.
func addMissingGroups(ctx context.Context, r database.Reader, tier *quotad.TierSpec, faults *quotad.Faults) error {
	named := map[string]string{} // by field
	if len(tier.Limits) <= quotad.MaxLimits {
		for i, l := range tier.Limits {
			named[routeGroupField("limits", i)] = l.RouteGroup
		}
	}
	if len(tier.Quotas) <= quotad.MaxQuotas {
		for i, q := range tier.Quotas {
			named[routeGroupField("quotas", i)] = q.RouteGroup
		}
	}
	maps.DeleteFunc(named, func(_, group string) bool { return group == quotad.AllGroups })
	if len(named) == 0 {
		return nil
	}
	rows, err := r.QueryContext(ctx, `SELECT name FROM route_groups`)
	if err != nil {
		return fmt.Errorf("read the names of route groups: %w", err)
	}
	there := map[string]bool{}
	err = rows.Each(func() error {
		var name string
		err := rows.Scan(&name)
		there[name] = true
		return err
	})
	if err != nil {
		return fmt.Errorf("read the names of route groups: %w", err)
	}
	for field, group := range named {
		if !there[group] {
			faults.Add(field, noSuchGroup(group))
		}
	}
	return nil
}

func routeGroupField(list string, i int) string { return fmt.Sprintf("%s[%d].route_group", list, i) }

func noSuchGroup(name string) string { return fmt.Sprintf("there is no route group %q", name) }
