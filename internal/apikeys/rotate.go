package apikeys

import (
	"context"
	"fmt"
	"time"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/database"
	"github.com/quotad/quotad/internal/secret"
)

const (
	// MaxGrace is the longest that an old secret goes on working.
	MaxGrace = 30 * 24 * time.Hour
	// MaxSecrets is the most secrets of one key that work at once.
	MaxSecrets = 5
)

// Rotate makes a new secret for a key, under the same id. Those that work so far
// go on for grace, 0 to MaxGrace, or to the end that an earlier rotation set,
// whichever is first. ifMatch, if not nil, is the version that it is meant for. The
// key that it returns carries the new secret, for the only time.
func (s *Store) Rotate(ctx context.Context, by quotad.Actor, id string, ifMatch *int64, grace time.Duration) (quotad.Key, error) {
	if grace < 0 || grace > MaxGrace {
		return quotad.Key{}, quotad.Faults{
			"grace_seconds": fmt.Sprintf("must be from 0 to %d", int64(MaxGrace.Seconds())),
		}.Err()
	}
	var made secret.Secret
	key, err := s.write(ctx, "rotate", id, func(tx *database.Tx, before quotad.Key, now time.Time) (quotad.Key, error) {
		if err := database.CheckVersion(ifMatch, before.Version); err != nil {
			return before, err
		}
		if err := alive(before, now); err != nil {
			return before, err
		}
		if err := endSecrets(ctx, tx, id, now, grace); err != nil {
			return before, err
		}
		made = secret.MintFor(secret.APIKey, id)
		if err := insertSecret(ctx, tx, id, made, now); err != nil {
			return before, err
		}
		if err := setStatus(ctx, tx, id, before.Status, now); err != nil {
			return before, err
		}
		return s.record(ctx, tx, by, "key.rotated", before, now)
	})
	if err != nil {
		return quotad.Key{}, err
	}
	key.Secret = made.Reveal()
	return key, nil
}

// endSecrets gives the secrets of a key their end, and makes room for one more.
func endSecrets(ctx context.Context, tx *database.Tx, id string, now time.Time, grace time.Duration) error {
	if grace == 0 {
		// Gone, and not only ended: no node's clock has a say in it.
		_, err := tx.ExecContext(ctx, `DELETE FROM key_secrets WHERE key_id = $1`, id)
		return err
	}
	end := database.Time(now.Add(grace))
	if _, err := tx.ExecContext(ctx, `UPDATE key_secrets SET expires_at = $2
		WHERE key_id = $1 AND (expires_at IS NULL OR expires_at > $2)`, id, end); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, `DELETE FROM key_secrets WHERE key_id = $1 AND expires_at <= $2`, id, now); err != nil {
		return err
	}
	var working int
	if err := tx.QueryRowContext(ctx, `SELECT count(*) FROM key_secrets WHERE key_id = $1`, id).Scan(&working); err != nil {
		return err
	}
	if working >= MaxSecrets {
		return quotad.NewError(quotad.CodeConflict,
			fmt.Sprintf("%d secrets of the key work already; wait until one ends, or rotate without grace", working))
	}
	return nil
}
