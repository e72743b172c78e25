package tiers

import (
	"context"
	"errors"
	"fmt"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/database"
)

// quota is the row as selectTiers reads that of a quota: its units stand where a
// limit's do.
func (r *limitRow) quota(period quotad.Period) quotad.Quota {
	q := quotad.Quota{
		Name: *r.name, RouteGroup: quotad.AllGroups, Scope: *r.scope, Quota: r.rateLimit, Period: period, Shadow: *r.shadow,
	}
	if r.routeGroup != nil {
		q.RouteGroup = *r.routeGroup
	}
	return q
}

// insertQuotas writes the quotas of a tier that has none. Those of all groups name none.
func insertQuotas(ctx context.Context, tx *database.Tx, tier string, quotas []quotad.Quota) error {
	for i, q := range quotas {
		var group *string
		if q.RouteGroup != quotad.AllGroups {
			group = &q.RouteGroup
		}
		_, err := tx.ExecContext(ctx, `
			INSERT INTO quotas (tier, ordinal, name, route_group, scope, quota, period, shadow)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`,
			tier, i, q.Name, group, string(q.Scope), q.Quota, string(q.Period), q.Shadow)
		if errors.Is(err, database.ErrMissingReference) {
			var faults quotad.Faults
			faults.Add(routeGroupField("quotas", i), noSuchGroup(q.RouteGroup))
			return faults.Err()
		}
		if err != nil {
			return fmt.Errorf("insert quota %d: %w", i, err)
		}
	}
	return nil
}
