package tiers

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/database"
)

const groupColumns = `g.name, g.patterns, g.cost, g.auth, g.version, g.created_at, g.updated_at`

// groupsLock is the lock under which route groups are written: whether a pattern
// conflicts with another is decided over all of them.
const groupsLock = "route_groups"

// CreateRouteGroup creates a route group. A name that is taken is
// quotad.ErrExists; faults of the spec are quotad.ErrInvalidFields, all at once,
// patterns that conflict with those of any group among them.
func (s *Store) CreateRouteGroup(ctx context.Context, by quotad.Actor, spec quotad.RouteGroupSpec) (quotad.RouteGroup, error) {
	now := database.Time(s.now())
	group := quotad.RouteGroup{RouteGroupSpec: spec, Version: 1, CreatedAt: now, UpdatedAt: now}
	group.SetDefaults()
	err := s.db.InTx(ctx, func(tx *database.Tx) error {
		if err := tx.Lock(ctx, groupsLock); err != nil {
			return err
		}
		faults := group.Validate()
		if err := addMatchFaults(ctx, tx, group.Name, group.Match, &faults); err != nil {
			return err
		}
		if err := faults.Err(); err != nil {
			return err
		}
		patterns, err := json.Marshal(group.Match)
		if err != nil {
			return fmt.Errorf("encode the patterns: %w", err)
		}
		_, err = tx.ExecContext(ctx, `
			INSERT INTO route_groups (name, patterns, cost, auth, version, created_at, updated_at)
			VALUES ($1, $2, $3, $4, $5, $6, $7)`,
			group.Name, string(patterns), *group.Cost, string(group.Auth), group.Version, group.CreatedAt, group.UpdatedAt)
		if err != nil {
			return detailed(err, quotad.CodeExists, fmt.Sprintf("there is a route group %q already", group.Name))
		}
		if err := insertGroupLimits(ctx, tx, group.Name, group.Limits); err != nil {
			return err
		}
		return s.record(ctx, tx, write{
			by: by, resource: quotad.ResourceRouteGroup, verb: "created", target: group.Name, version: group.Version, after: group,
		})
	})
	if err != nil {
		return quotad.RouteGroup{}, failed("create", quotad.ResourceRouteGroup, spec.Name, err)
	}
	return group, nil
}

// RouteGroup returns a route group, quotad.ErrNotFound when there is none of the
// name. There is always quotad.DefaultGroup.
func (s *Store) RouteGroup(ctx context.Context, name string) (quotad.RouteGroup, error) {
	group, err := readGroup(ctx, s.db, name)
	return group, failed("read", quotad.ResourceRouteGroup, name, err)
}

// RouteGroups returns a page of the route groups by name, and the cursor of the
// next page, "" on the last one.
func (s *Store) RouteGroups(ctx context.Context, page database.Page) (groups []quotad.RouteGroup, next string, err error) {
	const list = "route_groups"
	rows, after, err := start(page, list)
	if err != nil {
		return nil, "", err
	}
	groups, err = queryGroups(ctx, s.db, `
		SELECT `+groupColumns+`, `+limitColumns+`
		FROM route_groups g LEFT JOIN limits l ON l.owner_group = g.name
		WHERE g.name IN (SELECT name FROM route_groups WHERE name > $1 ORDER BY name LIMIT $2)
		ORDER BY g.name, l.ordinal`, after, rows)
	if err != nil {
		return nil, "", fmt.Errorf("list route groups: %w", err)
	}
	return database.Cut(page, list, groups, func(g quotad.RouteGroup) string { return g.Name })
}

// AllRouteGroups returns all route groups by name, as one statement sees them:
// none of their patterns conflict.
func (s *Store) AllRouteGroups(ctx context.Context) ([]quotad.RouteGroup, error) {
	groups, err := allGroups(ctx, s.db)
	if err != nil {
		return nil, fmt.Errorf("read all route groups: %w", err)
	}
	return groups, nil
}

// UpdateRouteGroup has edit change a route group's spec, and stores the outcome;
// its rules are those of UpdateTier.
func (s *Store) UpdateRouteGroup(ctx context.Context, by quotad.Actor, name string, ifMatch *Revision, edit func(*quotad.RouteGroupSpec) error) (quotad.RouteGroup, error) {
	var group quotad.RouteGroup
	err := s.db.InTx(ctx, func(tx *database.Tx) error {
		before, err := s.lockGroup(ctx, tx, name, ifMatch)
		if err != nil {
			return err
		}
		// Read again rather than copied: an edit may write through pointers.
		if group, err = readGroup(ctx, tx, name); err != nil {
			return err
		}
		if err := edit(&group.RouteGroupSpec); err != nil {
			return err
		}
		group.SetDefaults()
		faults := group.Validate()
		if group.Name != name {
			faults.Add("name", "can't be changed")
		}
		if err := addMatchFaults(ctx, tx, name, group.Match, &faults); err != nil {
			return err
		}
		if err := faults.Err(); err != nil {
			return err
		}
		if equal, err := same(before.RouteGroupSpec, group.RouteGroupSpec); equal || err != nil {
			return err
		}
		group.Version, group.UpdatedAt = before.Version+1, database.Time(s.now())
		return s.updateGroup(ctx, tx, by, before, group)
	})
	if err != nil {
		return quotad.RouteGroup{}, failed("update", quotad.ResourceRouteGroup, name, err)
	}
	return group, nil
}

func (s *Store) updateGroup(ctx context.Context, tx *database.Tx, by quotad.Actor, before, group quotad.RouteGroup) error {
	patterns, err := json.Marshal(group.Match)
	if err != nil {
		return fmt.Errorf("encode the patterns: %w", err)
	}
	_, err = tx.ExecContext(ctx, `
		UPDATE route_groups SET patterns = $2, cost = $3, auth = $4, version = $5, updated_at = $6 WHERE name = $1`,
		group.Name, string(patterns), *group.Cost, string(group.Auth), group.Version, group.UpdatedAt)
	if err != nil {
		return err
	}
	if equal, err := same(before.Limits, group.Limits); err != nil {
		return err
	} else if !equal {
		if _, err := tx.ExecContext(ctx, `DELETE FROM limits WHERE owner_group = $1`, group.Name); err != nil {
			return fmt.Errorf("delete the limits: %w", err)
		}
		if err := insertGroupLimits(ctx, tx, group.Name, group.Limits); err != nil {
			return err
		}
	}
	return s.record(ctx, tx, write{
		by: by, resource: quotad.ResourceRouteGroup, verb: "updated", target: group.Name, version: group.Version, before: before, after: group,
	})
}

// DeleteRouteGroup deletes a route group with its own limits; quotad.ErrInUse
// while a tier's limit or quota, or a key, names it, and always for quotad.DefaultGroup. A
// revoked key, which nobody can edit any more, only loses it from its list.
// ifMatch is as in UpdateTier.
func (s *Store) DeleteRouteGroup(ctx context.Context, by quotad.Actor, name string, ifMatch *Revision) error {
	err := s.db.InTx(ctx, func(tx *database.Tx) error {
		before, err := s.lockGroup(ctx, tx, name, ifMatch)
		if err != nil {
			return err
		}
		if name == quotad.DefaultGroup {
			return quotad.NewError(quotad.CodeInUse, "what matches no other route group belongs to this one")
		}
		if _, err := tx.ExecContext(ctx, `DELETE FROM key_route_groups WHERE route_group = $1
			AND key_id IN (SELECT id FROM keys WHERE status = 'revoked')`, name); err != nil {
			return fmt.Errorf("take it from revoked keys: %w", err)
		}
		if _, err := tx.ExecContext(ctx, `DELETE FROM route_groups WHERE name = $1`, name); err != nil {
			return detailed(err, quotad.CodeInUse, "limits or quotas of tiers, or keys, name this route group")
		}
		return s.record(ctx, tx, write{
			by: by, resource: quotad.ResourceRouteGroup, verb: "deleted", target: name, version: before.Version + 1, before: before,
		})
	})
	return failed("delete", quotad.ResourceRouteGroup, name, err)
}

// lockGroup reads a route group that nobody else can write until tx ends, nor any other one.
func (s *Store) lockGroup(ctx context.Context, tx *database.Tx, name string, ifMatch *Revision) (quotad.RouteGroup, error) {
	if err := tx.Lock(ctx, groupsLock); err != nil {
		return quotad.RouteGroup{}, err
	}
	group, err := readGroup(ctx, tx, name)
	if err != nil {
		return quotad.RouteGroup{}, err
	}
	return group, ifMatch.check(group.CreatedAt, group.Version)
}

// addMatchFaults adds the faults of a group's patterns beside those of all groups
// of other names.
func addMatchFaults(ctx context.Context, r database.Reader, name string, match []string, faults *quotad.Faults) error {
	if len(match) == 0 || len(match) > quotad.MaxPatterns {
		return nil
	}
	all, err := allGroups(ctx, r)
	if err != nil {
		return fmt.Errorf("read the other route groups: %w", err)
	}
	others := make([]quotad.RouteGroup, 0, len(all))
	for _, g := range all {
		if g.Name != name { // one of the same name is replaced, or is ErrExists
			others = append(others, g)
		}
	}
	for field, fault := range checkMatch(name, match, others) {
		faults.Add(field, fault)
	}
	return nil
}

func allGroups(ctx context.Context, r database.Reader) ([]quotad.RouteGroup, error) {
	return queryGroups(ctx, r, `
		SELECT `+groupColumns+`, `+limitColumns+`
		FROM route_groups g LEFT JOIN limits l ON l.owner_group = g.name
		ORDER BY g.name, l.ordinal`)
}

// readGroup reads a group and its limits by one statement, so that both are of one version.
func readGroup(ctx context.Context, r database.Reader, name string) (quotad.RouteGroup, error) {
	if !quotad.ValidName(name) { // which the database might refuse to look for
		return quotad.RouteGroup{}, notFound(quotad.ResourceRouteGroup, name)
	}
	groups, err := queryGroups(ctx, r, `
		SELECT `+groupColumns+`, `+limitColumns+`
		FROM route_groups g LEFT JOIN limits l ON l.owner_group = g.name
		WHERE g.name = $1
		ORDER BY l.ordinal`, name)
	if err != nil {
		return quotad.RouteGroup{}, err
	}
	if len(groups) == 0 {
		return quotad.RouteGroup{}, notFound(quotad.ResourceRouteGroup, name)
	}
	return groups[0], nil
}

// queryGroups reads groups, each on as many adjacent rows as it has limits.
func queryGroups(ctx context.Context, r database.Reader, query string, args ...any) ([]quotad.RouteGroup, error) {
	rows, err := r.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	groups := []quotad.RouteGroup{}
	err = rows.Each(func() error {
		var g quotad.RouteGroup
		var patterns string
		var l limitRow
		err := rows.Scan(append([]any{
			&g.Name, &patterns, &g.Cost, &g.Auth, &g.Version, &g.CreatedAt, &g.UpdatedAt,
		}, l.fields()...)...)
		if err != nil {
			return err
		}
		if n := len(groups); n == 0 || groups[n-1].Name != g.Name {
			if err := json.Unmarshal([]byte(patterns), &g.Match); err != nil {
				return fmt.Errorf("decode the patterns of route group %q: %w", g.Name, err)
			}
			g.Limits, g.CreatedAt, g.UpdatedAt = []quotad.Limit{}, g.CreatedAt.UTC(), g.UpdatedAt.UTC()
			groups = append(groups, g)
		}
		last := &groups[len(groups)-1]
		last.Limits = l.appendTo(last.Limits, g.Name)
		return nil
	})
	return groups, err
}
