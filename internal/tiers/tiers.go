package tiers

import (
	"context"
	"fmt"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/database"
)

const tierColumns = `t.name, t.description, t.rate_limit, t.rate_window, t.algorithm, t.burst, t.max_delay_ms, t.on_store_failure, t.shadow,
	t.version, t.created_at, t.updated_at`

// selectTiers reads each tier on as many rows as it has limits and quotas, or on
// one, for a WHERE and ORDER BY tierOrder to follow. The rows of quotas are those
// with a period.
const selectTiers = `
	SELECT ` + tierColumns + `, ` + limitColumns + `, l.period
	FROM tiers t LEFT JOIN (
		SELECT tier, ordinal, name, route_group, scope, algorithm, rate_limit, rate_window, burst, max_delay_ms, shadow, NULL AS period
		FROM limits WHERE tier IS NOT NULL
		UNION ALL
		SELECT tier, ordinal, name, route_group, scope, NULL, quota, NULL, NULL, NULL, shadow, period
		FROM quotas
	) l ON l.tier = t.name`

const tierOrder = `t.name, l.ordinal`

// CreateTier creates a tier. A name that is taken is quotad.ErrExists, faults of
// the spec are quotad.ErrInvalidFields, all at once.
func (s *Store) CreateTier(ctx context.Context, by quotad.Actor, spec quotad.TierSpec) (quotad.Tier, error) {
	now := database.Time(s.now())
	tier := quotad.Tier{TierSpec: spec, Version: 1, CreatedAt: now, UpdatedAt: now}
	tier.SetDefaults()
	err := s.db.InTx(ctx, func(tx *database.Tx) error {
		faults := tier.Validate()
		if err := addMissingGroups(ctx, tx, &tier.TierSpec, &faults); err != nil {
			return err
		}
		if err := faults.Err(); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, `
			INSERT INTO tiers (name, description, rate_limit, rate_window, algorithm, burst, max_delay_ms, on_store_failure, shadow,
				version, created_at, updated_at)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)`,
			tier.Name, tier.Description, tier.RateLimit, tier.RateWindow, string(tier.Algorithm), tier.Burst, tier.MaxDelayMS,
			(*string)(tier.OnStoreFailure), tier.Shadow, tier.Version, tier.CreatedAt, tier.UpdatedAt)
		if err != nil {
			return detailed(err, quotad.CodeExists, fmt.Sprintf("there is a tier %q already", tier.Name))
		}
		if err := insertTierLimits(ctx, tx, tier.Name, tier.Limits); err != nil {
			return err
		}
		if err := insertQuotas(ctx, tx, tier.Name, tier.Quotas); err != nil {
			return err
		}
		return s.record(ctx, tx, write{
			by: by, resource: quotad.ResourceTier, verb: "created", target: tier.Name, version: tier.Version, after: tier,
		})
	})
	if err != nil {
		return quotad.Tier{}, failed("create", quotad.ResourceTier, spec.Name, err)
	}
	return tier, nil
}

// Tier returns a tier, quotad.ErrNotFound when there is none of the name.
func (s *Store) Tier(ctx context.Context, name string) (quotad.Tier, error) {
	tier, err := readTier(ctx, s.db, name)
	return tier, failed("read", quotad.ResourceTier, name, err)
}

// Tiers returns a page of the tiers by name, and the cursor of the next page, ""
// on the last one.
func (s *Store) Tiers(ctx context.Context, page database.Page) (tiers []quotad.Tier, next string, err error) {
	const list = "tiers"
	rows, after, err := start(page, list)
	if err != nil {
		return nil, "", err
	}
	tiers, err = queryTiers(ctx, s.db, selectTiers+`
		WHERE t.name IN (SELECT name FROM tiers WHERE name > $1 ORDER BY name LIMIT $2)
		ORDER BY `+tierOrder, after, rows)
	if err != nil {
		return nil, "", fmt.Errorf("list tiers: %w", err)
	}
	return database.Cut(page, list, tiers, func(t quotad.Tier) string { return t.Name })
}

// UpdateTier has edit change a tier's spec, and stores the outcome. ifMatch, if
// not nil, is the revision that the edit was made for: quotad.ErrPreconditionFailed
// if it is another by now. An edit that changes nothing leaves the version and no
// event. edit runs in the transaction, maybe more than once: it must be quick and
// must not use the store. Its error is returned.
func (s *Store) UpdateTier(ctx context.Context, by quotad.Actor, name string, ifMatch *Revision, edit func(*quotad.TierSpec) error) (quotad.Tier, error) {
	var tier quotad.Tier
	err := s.db.InTx(ctx, func(tx *database.Tx) error {
		before, err := s.lockTier(ctx, tx, name, ifMatch)
		if err != nil {
			return err
		}
		// Read again rather than copied: an edit may write through pointers.
		if tier, err = readTier(ctx, tx, name); err != nil {
			return err
		}
		if err := edit(&tier.TierSpec); err != nil {
			return err
		}
		tier.SetDefaults()
		faults := tier.Validate()
		if tier.Name != name {
			faults.Add("name", "can't be changed")
		}
		if err := addMissingGroups(ctx, tx, &tier.TierSpec, &faults); err != nil {
			return err
		}
		if err := faults.Err(); err != nil {
			return err
		}
		if equal, err := same(before.TierSpec, tier.TierSpec); equal || err != nil {
			return err
		}
		tier.Version, tier.UpdatedAt = before.Version+1, database.Time(s.now())
		return s.updateTier(ctx, tx, by, before, tier)
	})
	if err != nil {
		return quotad.Tier{}, failed("update", quotad.ResourceTier, name, err)
	}
	return tier, nil
}

func (s *Store) updateTier(ctx context.Context, tx *database.Tx, by quotad.Actor, before, tier quotad.Tier) error {
	_, err := tx.ExecContext(ctx, `
		UPDATE tiers SET description = $2, rate_limit = $3, rate_window = $4, algorithm = $5, burst = $6, max_delay_ms = $7,
			on_store_failure = $8, shadow = $9, version = $10, updated_at = $11
		WHERE name = $1`,
		tier.Name, tier.Description, tier.RateLimit, tier.RateWindow, string(tier.Algorithm), tier.Burst, tier.MaxDelayMS,
		(*string)(tier.OnStoreFailure), tier.Shadow, tier.Version, tier.UpdatedAt)
	if err != nil {
		return err
	}
	if equal, err := same(before.Limits, tier.Limits); err != nil {
		return err
	} else if !equal {
		if _, err := tx.ExecContext(ctx, `DELETE FROM limits WHERE tier = $1`, tier.Name); err != nil {
			return fmt.Errorf("delete the limits: %w", err)
		}
		if err := insertTierLimits(ctx, tx, tier.Name, tier.Limits); err != nil {
			return err
		}
	}
	if equal, err := same(before.Quotas, tier.Quotas); err != nil {
		return err
	} else if !equal {
		if _, err := tx.ExecContext(ctx, `DELETE FROM quotas WHERE tier = $1`, tier.Name); err != nil {
			return fmt.Errorf("delete the quotas: %w", err)
		}
		if err := insertQuotas(ctx, tx, tier.Name, tier.Quotas); err != nil {
			return err
		}
	}
	return s.record(ctx, tx, write{
		by: by, resource: quotad.ResourceTier, verb: "updated", target: tier.Name, version: tier.Version, before: before, after: tier,
	})
}

// DeleteTier deletes a tier; quotad.ErrInUse while a tenant is in it. ifMatch is
// as in UpdateTier.
func (s *Store) DeleteTier(ctx context.Context, by quotad.Actor, name string, ifMatch *Revision) error {
	err := s.db.InTx(ctx, func(tx *database.Tx) error {
		before, err := s.lockTier(ctx, tx, name, ifMatch)
		if err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `DELETE FROM tiers WHERE name = $1`, name); err != nil {
			return detailed(err, quotad.CodeInUse, "tenants are in this tier")
		}
		return s.record(ctx, tx, write{
			by: by, resource: quotad.ResourceTier, verb: "deleted", target: name, version: before.Version + 1, before: before,
		})
	})
	return failed("delete", quotad.ResourceTier, name, err)
}

// lockTier reads a tier that nobody else can write until tx ends.
func (s *Store) lockTier(ctx context.Context, tx *database.Tx, name string, ifMatch *Revision) (quotad.Tier, error) {
	if !quotad.ValidName(name) {
		return quotad.Tier{}, notFound(quotad.ResourceTier, name)
	}
	if err := lockRow(ctx, tx, `UPDATE tiers SET version = version WHERE name = $1`, name, quotad.ResourceTier); err != nil {
		return quotad.Tier{}, err
	}
	tier, err := readTier(ctx, tx, name)
	if err != nil {
		return quotad.Tier{}, err
	}
	return tier, ifMatch.check(tier.CreatedAt, tier.Version)
}

// readTier reads a tier, its limits and its quotas by one statement, so that all are of one version.
func readTier(ctx context.Context, r database.Reader, name string) (quotad.Tier, error) {
	if !quotad.ValidName(name) { // which the database might refuse to look for
		return quotad.Tier{}, notFound(quotad.ResourceTier, name)
	}
	tiers, err := queryTiers(ctx, r, selectTiers+` WHERE t.name = $1 ORDER BY `+tierOrder, name)
	if err != nil {
		return quotad.Tier{}, err
	}
	if len(tiers) == 0 {
		return quotad.Tier{}, notFound(quotad.ResourceTier, name)
	}
	return tiers[0], nil
}

// queryTiers reads tiers by a statement that begins with selectTiers.
func queryTiers(ctx context.Context, r database.Reader, query string, args ...any) ([]quotad.Tier, error) {
	rows, err := r.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	tiers := []quotad.Tier{}
	err = rows.Each(func() error {
		var t quotad.Tier
		var l limitRow
		var period *quotad.Period
		fields := append([]any{
			&t.Name, &t.Description, &t.RateLimit, &t.RateWindow, &t.Algorithm, &t.Burst, &t.MaxDelayMS, &t.OnStoreFailure, &t.Shadow,
			&t.Version, &t.CreatedAt, &t.UpdatedAt,
		}, l.fields()...)
		if err := rows.Scan(append(fields, &period)...); err != nil {
			return err
		}
		if n := len(tiers); n == 0 || tiers[n-1].Name != t.Name {
			t.Limits, t.Quotas, t.CreatedAt, t.UpdatedAt = []quotad.Limit{}, []quotad.Quota{}, t.CreatedAt.UTC(), t.UpdatedAt.UTC()
			tiers = append(tiers, t)
		}
		last := &tiers[len(tiers)-1]
		if period != nil {
			last.Quotas = append(last.Quotas, l.quota(*period))
		} else {
			last.Limits = l.appendTo(last.Limits, quotad.AllGroups)
		}
		return nil
	})
	return tiers, err
}
