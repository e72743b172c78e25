package apikeys

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/database"
	"github.com/quotad/quotad/internal/secret"
)

// keyColumns are what scanKey reads, of keys k and its current secret c. Names
// of groups hold no comma.
const keyColumns = `k.id, k.tenant, k.name, k.rate_limit, k.rate_window, k.all_route_groups,
	(SELECT string_agg(g.route_group, ',' ORDER BY g.ordinal) FROM key_route_groups g WHERE g.key_id = k.id),
	k.allowed_cidrs, k.expires_at, k.status, COALESCE(c.hint, ''), k.version, k.created_at, k.updated_at, k.last_used_at`

const keyTables = ` FROM keys k LEFT JOIN key_secrets c ON c.key_id = k.id AND c.expires_at IS NULL `

// scanKey reads keyColumns, and what follows them into more. The status is the
// stored one.
func scanKey(scan func(...any) error, more ...any) (quotad.Key, error) {
	var k quotad.Key
	var all bool
	var groups *string
	var cidrs string
	err := scan(append([]any{
		&k.ID, &k.Tenant, &k.Name, &k.RateLimit, &k.RateWindow, &all, &groups,
		&cidrs, &k.ExpiresAt, &k.Status, &k.Hint, &k.Version, &k.CreatedAt, &k.UpdatedAt, &k.LastUsedAt,
	}, more...)...)
	if err != nil {
		return quotad.Key{}, err
	}
	switch {
	case all:
	case groups == nil:
		k.RouteGroups = []string{}
	default:
		k.RouteGroups = strings.Split(*groups, ",")
	}
	if err := json.Unmarshal([]byte(cidrs), &k.AllowedCIDRs); err != nil {
		return quotad.Key{}, fmt.Errorf("read allowed_cidrs of key %s: %w", k.ID, err)
	}
	k.CreatedAt, k.UpdatedAt = k.CreatedAt.UTC(), k.UpdatedAt.UTC()
	for _, at := range []*time.Time{k.ExpiresAt, k.LastUsedAt} {
		if at != nil {
			*at = at.UTC()
		}
	}
	return k, nil
}

func readKey(ctx context.Context, db database.Reader, id string) (quotad.Key, error) {
	return scanKey(db.QueryRowContext(ctx, `SELECT `+keyColumns+keyTables+`WHERE k.id = $1`, id).Scan)
}

// readKeys reads up to limit keys of a tenant whose ids follow after.
func readKeys(ctx context.Context, db database.Reader, tenant, after string, limit int) ([]quotad.Key, error) {
	rows, err := db.QueryContext(ctx, `SELECT `+keyColumns+keyTables+
		`WHERE k.tenant = $1 AND k.id > $2 ORDER BY k.id LIMIT $3`, tenant, after, limit)
	if err != nil {
		return nil, err
	}
	keys := []quotad.Key{}
	err = rows.Each(func() error {
		key, err := scanKey(rows.Scan)
		keys = append(keys, key)
		return err
	})
	return keys, err
}

// tenantExists returns ErrNotFound unless the tenant is there.
func tenantExists(ctx context.Context, db database.Reader, tenant string) error {
	if !quotad.ValidName(tenant) {
		return errNoTenant()
	}
	var one int
	err := db.QueryRowContext(ctx, `SELECT 1 FROM tenants WHERE id = $1`, tenant).Scan(&one)
	if errors.Is(err, quotad.ErrNotFound) {
		return errNoTenant()
	}
	return err
}

func errNoTenant() error { return quotad.NewError(quotad.CodeNotFound, "there is no such tenant") }

// lockKey keeps other writers from the key until the transaction ends. A write
// that changes nothing is the row lock that both engines know; what is read
// behind it is what the last writer left.
func lockKey(ctx context.Context, tx *database.Tx, id string) error {
	_, err := tx.ExecContext(ctx, `UPDATE keys SET version = version WHERE id = $1`, id)
	return err
}

func insertKey(ctx context.Context, tx *database.Tx, id, tenant string, spec quotad.KeySpec, now time.Time) error {
	cidrs, err := json.Marshal(spec.AllowedCIDRs)
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, `INSERT INTO keys (id, tenant, name, rate_limit, rate_window, all_route_groups,
		allowed_cidrs, expires_at, status, version, created_at, updated_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, 1, $10, $10)`,
		id, tenant, spec.Name, spec.RateLimit, spec.RateWindow, spec.RouteGroups == nil,
		string(cidrs), spec.ExpiresAt, string(spec.Status), now)
	if errors.Is(err, database.ErrMissingReference) {
		return errNoTenant() // it went after it was looked up
	}
	if err != nil {
		return err
	}
	return insertGroups(ctx, tx, id, spec.RouteGroups)
}

func updateKey(ctx context.Context, tx *database.Tx, id string, spec quotad.KeySpec, now time.Time) error {
	cidrs, err := json.Marshal(spec.AllowedCIDRs)
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, `UPDATE keys SET name = $2, rate_limit = $3, rate_window = $4, all_route_groups = $5,
		allowed_cidrs = $6, expires_at = $7, status = $8, version = version + 1, updated_at = $9 WHERE id = $1`,
		id, spec.Name, spec.RateLimit, spec.RateWindow, spec.RouteGroups == nil,
		string(cidrs), spec.ExpiresAt, string(spec.Status), now)
	if err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, `DELETE FROM key_route_groups WHERE key_id = $1`, id); err != nil {
		return err
	}
	return insertGroups(ctx, tx, id, spec.RouteGroups)
}

func setStatus(ctx context.Context, tx *database.Tx, id string, status quotad.KeyStatus, now time.Time) error {
	_, err := tx.ExecContext(ctx, `UPDATE keys SET status = $2, version = version + 1, updated_at = $3 WHERE id = $1`,
		id, string(status), now)
	return err
}

func insertGroups(ctx context.Context, tx *database.Tx, id string, groups []string) error {
	if len(groups) == 0 {
		return nil
	}
	var b strings.Builder
	args := []any{id}
	for i, g := range groups {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "($1, %d, $%d)", i, len(args)+1)
		args = append(args, g)
	}
	_, err := tx.ExecContext(ctx, `INSERT INTO key_route_groups (key_id, ordinal, route_group) VALUES `+b.String(), args...)
	if errors.Is(err, database.ErrMissingReference) {
		// One of them went after it was looked up.
		return quotad.Faults{"route_groups": "names a group that does not exist"}.Err()
	}
	return err
}

func insertSecret(ctx context.Context, tx *database.Tx, id string, s secret.Secret, now time.Time) error {
	sum := s.Sum()
	_, err := tx.ExecContext(ctx, `INSERT INTO key_secrets (hash, key_id, hint, created_at) VALUES ($1, $2, $3, $4)`,
		sum[:], id, s.Hint(), now)
	return err
}
