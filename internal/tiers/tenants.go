package tiers

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/database"
)

const tenantColumns = `id, name, tier, status, time_zone, billing_anchor_day, metadata, version, created_at, updated_at`

// CreateTenant creates a tenant. An id that is taken is quotad.ErrExists, faults
// of the spec are quotad.ErrInvalidFields, all at once, a tier that does not
// exist among them.
func (s *Store) CreateTenant(ctx context.Context, by quotad.Actor, spec quotad.TenantSpec) (quotad.Tenant, error) {
	now := database.Time(s.now())
	tenant := quotad.Tenant{TenantSpec: spec, Version: 1, CreatedAt: now, UpdatedAt: now}
	tenant.SetDefaults()
	err := s.db.InTx(ctx, func(tx *database.Tx) error {
		faults := tenant.Validate()
		if err := addMissingTier(ctx, tx, tenant.Tier, &faults); err != nil {
			return err
		}
		if err := faults.Err(); err != nil {
			return err
		}
		metadata, err := json.Marshal(tenant.Metadata)
		if err != nil {
			return fmt.Errorf("encode the metadata: %w", err)
		}
		_, err = tx.ExecContext(ctx, `
			INSERT INTO tenants (id, name, tier, status, time_zone, billing_anchor_day, metadata, version, created_at, updated_at)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`,
			tenant.ID, tenant.Name, tenant.Tier, string(tenant.Status), tenant.TimeZone, tenant.BillingAnchorDay, string(metadata),
			tenant.Version, tenant.CreatedAt, tenant.UpdatedAt)
		if err != nil {
			return detailed(tierFault(err, tenant.Tier), quotad.CodeExists, fmt.Sprintf("there is a tenant %q already", tenant.ID))
		}
		return s.record(ctx, tx, write{
			by: by, resource: quotad.ResourceTenant, verb: "created", target: tenant.ID, tenant: tenant.ID, version: tenant.Version, after: tenant,
		})
	})
	if err != nil {
		return quotad.Tenant{}, failed("create", quotad.ResourceTenant, spec.ID, err)
	}
	return tenant, nil
}

// Tenant returns a tenant, quotad.ErrNotFound when there is none of the id.
func (s *Store) Tenant(ctx context.Context, id string) (quotad.Tenant, error) {
	tenant, err := readTenant(ctx, s.db, id)
	return tenant, failed("read", quotad.ResourceTenant, id, err)
}

// Tenants returns a page of the tenants by id, and the cursor of the next page,
// "" on the last one.
func (s *Store) Tenants(ctx context.Context, page database.Page) (tenants []quotad.Tenant, next string, err error) {
	const list = "tenants"
	rows, after, err := start(page, list)
	if err != nil {
		return nil, "", err
	}
	tenants, err = queryTenants(ctx, s.db, `SELECT `+tenantColumns+` FROM tenants WHERE id > $1 ORDER BY id LIMIT $2`, after, rows)
	if err != nil {
		return nil, "", fmt.Errorf("list tenants: %w", err)
	}
	return database.Cut(page, list, tenants, func(t quotad.Tenant) string { return t.ID })
}

// UpdateTenant has edit change a tenant's spec, and stores the outcome; its rules
// are those of UpdateTier.
func (s *Store) UpdateTenant(ctx context.Context, by quotad.Actor, id string, ifMatch *Revision, edit func(*quotad.TenantSpec) error) (quotad.Tenant, error) {
	var tenant quotad.Tenant
	err := s.db.InTx(ctx, func(tx *database.Tx) error {
		before, err := s.lockTenant(ctx, tx, id, ifMatch)
		if err != nil {
			return err
		}
		// Read again rather than copied: an edit may write into the metadata.
		if tenant, err = readTenant(ctx, tx, id); err != nil {
			return err
		}
		if err := edit(&tenant.TenantSpec); err != nil {
			return err
		}
		tenant.SetDefaults()
		faults := tenant.Validate()
		if tenant.ID != id {
			faults.Add("id", "can't be changed")
		}
		if err := addMissingTier(ctx, tx, tenant.Tier, &faults); err != nil {
			return err
		}
		if err := faults.Err(); err != nil {
			return err
		}
		if equal, err := same(before.TenantSpec, tenant.TenantSpec); equal || err != nil {
			return err
		}
		tenant.Version, tenant.UpdatedAt = before.Version+1, database.Time(s.now())
		return s.updateTenant(ctx, tx, by, before, tenant)
	})
	if err != nil {
		return quotad.Tenant{}, failed("update", quotad.ResourceTenant, id, err)
	}
	return tenant, nil
}

func (s *Store) updateTenant(ctx context.Context, tx *database.Tx, by quotad.Actor, before, tenant quotad.Tenant) error {
	metadata, err := json.Marshal(tenant.Metadata)
	if err != nil {
		return fmt.Errorf("encode the metadata: %w", err)
	}
	_, err = tx.ExecContext(ctx, `
		UPDATE tenants SET name = $2, tier = $3, status = $4, time_zone = $5, billing_anchor_day = $6, metadata = $7,
			version = $8, updated_at = $9
		WHERE id = $1`,
		tenant.ID, tenant.Name, tenant.Tier, string(tenant.Status), tenant.TimeZone, tenant.BillingAnchorDay, string(metadata),
		tenant.Version, tenant.UpdatedAt)
	if err != nil {
		return tierFault(err, tenant.Tier)
	}
	return s.record(ctx, tx, write{
		by: by, resource: quotad.ResourceTenant, verb: "updated", target: tenant.ID, tenant: tenant.ID, version: tenant.Version,
		before: before, after: tenant,
	})
}

// DeleteTenant deletes a tenant and its revoked keys; quotad.ErrInUse while it
// has any other key. ifMatch is as in UpdateTier.
func (s *Store) DeleteTenant(ctx context.Context, by quotad.Actor, id string, ifMatch *Revision) error {
	err := s.db.InTx(ctx, func(tx *database.Tx) error {
		before, err := s.lockTenant(ctx, tx, id, ifMatch)
		if err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `DELETE FROM keys WHERE tenant = $1 AND status = 'revoked'`, id); err != nil {
			return fmt.Errorf("delete the revoked keys: %w", err)
		}
		if _, err := tx.ExecContext(ctx, `DELETE FROM tenants WHERE id = $1`, id); err != nil {
			return detailed(err, quotad.CodeInUse, "this tenant has keys that are not revoked")
		}
		return s.record(ctx, tx, write{
			by: by, resource: quotad.ResourceTenant, verb: "deleted", target: id, tenant: id, version: before.Version + 1, before: before,
		})
	})
	return failed("delete", quotad.ResourceTenant, id, err)
}

// lockTenant reads a tenant that nobody else can write until tx ends.
func (s *Store) lockTenant(ctx context.Context, tx *database.Tx, id string, ifMatch *Revision) (quotad.Tenant, error) {
	if !quotad.ValidName(id) {
		return quotad.Tenant{}, notFound(quotad.ResourceTenant, id)
	}
	if err := lockRow(ctx, tx, `UPDATE tenants SET version = version WHERE id = $1`, id, quotad.ResourceTenant); err != nil {
		return quotad.Tenant{}, err
	}
	tenant, err := readTenant(ctx, tx, id)
	if err != nil {
		return quotad.Tenant{}, err
	}
	return tenant, ifMatch.check(tenant.CreatedAt, tenant.Version)
}

// addMissingTier adds a fault where the tier does not exist. A tier that goes
// after this is found missing by the foreign key.
func addMissingTier(ctx context.Context, r database.Reader, tier string, faults *quotad.Faults) error {
	if !quotad.ValidName(tier) { // a fault already
		return nil
	}
	var name string
	err := r.QueryRowContext(ctx, `SELECT name FROM tiers WHERE name = $1`, tier).Scan(&name)
	if errors.Is(err, quotad.ErrNotFound) {
		faults.Add("tier", noSuchTier(tier))
		return nil
	}
	if err != nil {
		return fmt.Errorf("look for tier %q: %w", tier, err)
	}
	return nil
}

func noSuchTier(name string) string { return fmt.Sprintf("there is no tier %q", name) }

// tierFault names the field of a tenant that refers to a tier that is not there.
func tierFault(err error, tier string) error {
	if !errors.Is(err, database.ErrMissingReference) {
		return err
	}
	var faults quotad.Faults
	faults.Add("tier", noSuchTier(tier))
	return faults.Err()
}

func readTenant(ctx context.Context, r database.Reader, id string) (quotad.Tenant, error) {
	if !quotad.ValidName(id) { // which the database might refuse to look for
		return quotad.Tenant{}, notFound(quotad.ResourceTenant, id)
	}
	tenants, err := queryTenants(ctx, r, `SELECT `+tenantColumns+` FROM tenants WHERE id = $1`, id)
	if err != nil {
		return quotad.Tenant{}, err
	}
	if len(tenants) == 0 {
		return quotad.Tenant{}, notFound(quotad.ResourceTenant, id)
	}
	return tenants[0], nil
}

func queryTenants(ctx context.Context, r database.Reader, query string, args ...any) ([]quotad.Tenant, error) {
	rows, err := r.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	tenants := []quotad.Tenant{}
	err = rows.Each(func() error {
		var t quotad.Tenant
		var metadata string
		err := rows.Scan(&t.ID, &t.Name, &t.Tier, &t.Status, &t.TimeZone, &t.BillingAnchorDay, &metadata,
			&t.Version, &t.CreatedAt, &t.UpdatedAt)
		if err != nil {
			return err
		}
		d := json.NewDecoder(bytes.NewReader([]byte(metadata)))
		d.UseNumber() // every digit of the operator's own numbers stays
		if err := d.Decode(&t.Metadata); err != nil {
			return fmt.Errorf("decode the metadata of tenant %q: %w", t.ID, err)
		}
		t.CreatedAt, t.UpdatedAt = t.CreatedAt.UTC(), t.UpdatedAt.UTC()
		tenants = append(tenants, t)
		return nil
	})
	return tenants, err
}
