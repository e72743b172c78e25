package admintokens

import (
	"context"
	"fmt"
	"time"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/database"
	"github.com/quotad/quotad/internal/secret"
)

const columns = `id, name, role, hash, hint, expires_at, version, created_at`

func scan(scan func(...any) error) (Stored, error) {
	var s Stored
	var hash []byte
	t := &s.Token
	if err := scan(&t.ID, &t.Name, &t.Role, &hash, &t.Hint, &t.ExpiresAt, &t.Version, &t.CreatedAt); err != nil {
		return Stored{}, err
	}
	if copy(s.Sum[:], hash) != len(s.Sum) {
		return Stored{}, fmt.Errorf("admin token %s has a sum of %d bytes", t.ID, len(hash))
	}
	t.CreatedAt = t.CreatedAt.UTC()
	if t.ExpiresAt != nil {
		*t.ExpiresAt = t.ExpiresAt.UTC()
	}
	return s, nil
}

func read(ctx context.Context, db database.Reader, id string) (Stored, error) {
	return scan(db.QueryRowContext(ctx, `SELECT `+columns+` FROM admin_tokens WHERE id = $1`, id).Scan)
}

func readBySum(ctx context.Context, db database.Reader, sum secret.Sum) (Stored, error) {
	return scan(db.QueryRowContext(ctx, `SELECT `+columns+` FROM admin_tokens WHERE hash = $1`, sum[:]).Scan)
}

// readAny reads the tokens of the ids, at most database.MaxIn, those that exist.
func readAny(ctx context.Context, db database.Reader, ids ...string) ([]Stored, error) {
	list, args := database.In(ids)
	return query(ctx, db, `SELECT `+columns+` FROM admin_tokens WHERE id IN (`+list+`)`, args...)
}

// readPage reads up to limit tokens whose ids follow after.
func readPage(ctx context.Context, db database.Reader, after string, limit int) ([]quotad.AdminToken, error) {
	stored, err := query(ctx, db, `SELECT `+columns+` FROM admin_tokens WHERE id > $1 ORDER BY id LIMIT $2`, after, limit)
	tokens := make([]quotad.AdminToken, len(stored))
	for i, s := range stored {
		tokens[i] = s.Token
	}
	return tokens, err
}

func query(ctx context.Context, db database.Reader, query string, args ...any) (all []Stored, err error) {
	rows, err := db.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	err = rows.Each(func() error {
		s, err := scan(rows.Scan)
		all = append(all, s)
		return err
	})
	return all, err
}

// otherOwners counts the owner tokens beside id that have not expired.
func otherOwners(ctx context.Context, db database.Reader, id string, now time.Time) (n int, err error) {
	err = db.QueryRowContext(ctx, `SELECT count(*) FROM admin_tokens
		WHERE role = $1 AND id <> $2 AND (expires_at IS NULL OR expires_at > $3)`,
		string(quotad.RoleOwner), id, now).Scan(&n)
	return n, err
}

// insert reports whether it did: it does not where the id is taken.
func insert(ctx context.Context, tx *database.Tx, id string, spec quotad.AdminTokenSpec, s secret.Secret, now time.Time) (bool, error) {
	sum := s.Sum()
	n, err := tx.ExecContext(ctx, `INSERT INTO admin_tokens (id, name, role, hash, hint, expires_at, version, created_at)
		VALUES ($1, $2, $3, $4, $5, $6, 1, $7) ON CONFLICT (id) DO NOTHING`,
		id, spec.Name, string(spec.Role), sum[:], s.Hint(), spec.ExpiresAt, now)
	return n == 1, err
}

// replace gives a token another text.
func replace(ctx context.Context, tx *database.Tx, id string, s secret.Secret) error {
	sum := s.Sum()
	_, err := tx.ExecContext(ctx, `UPDATE admin_tokens SET hash = $2, hint = $3, version = version + 1 WHERE id = $1`,
		id, sum[:], s.Hint())
	return err
}

func remove(ctx context.Context, tx *database.Tx, id string) error {
	_, err := tx.ExecContext(ctx, `DELETE FROM admin_tokens WHERE id = $1`, id)
	return err
}
