package apikeys

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/database"
	"github.com/quotad/quotad/internal/secret"
)

// Stored is a key with what its secrets are recognised by.
type Stored struct {
	// Key has the stored status: StatusAt says what it amounts to at an instant.
	Key     quotad.Key
	Secrets []StoredSecret
}

// StoredSecret recognises one secret.
type StoredSecret struct {
	Sum secret.Sum
	// ExpiresAt is the first instant at which it no longer works; nil is never.
	ExpiresAt *time.Time
}

// Admits reports whether text is a secret of the key that works at now; it says
// nothing about the key's status. It compares with all secrets, in constant
// time. The zero Stored admits nothing and takes as long as one with a secret,
// so that a caller can ask it in place of a key that does not exist.
func (s Stored) Admits(text string, now time.Time) bool {
	sum := secret.Hash(text)
	secrets := s.Secrets
	if len(secrets) == 0 {
		secrets = []StoredSecret{{ExpiresAt: &time.Time{}}} // one that never worked
	}
	admits := false
	for _, c := range secrets {
		same := sum.Equal(c.Sum)
		works := c.ExpiresAt == nil || now.Before(*c.ExpiresAt)
		admits = same && works || admits
	}
	return admits
}

// Find returns the keys of the ids that exist, in whatever state, with all their
// secrets: up to database.MaxIn ids in one query. An id that was never minted is
// left out without a look into the database.
func (s *Store) Find(ctx context.Context, ids []string) (map[string]Stored, error) {
	minted := slices.DeleteFunc(distinct(ids), func(id string) bool { return !secret.ValidID(id) })
	found := make(map[string]Stored, len(minted))
	for some := range slices.Chunk(minted, database.MaxIn) {
		if err := s.find(ctx, some, found); err != nil {
			return nil, fmt.Errorf("find %d keys: %w", len(ids), err)
		}
	}
	return found, nil
}

// find adds the keys of the ids, as many as one query takes, to found.
func (s *Store) find(ctx context.Context, ids []string, found map[string]Stored) error {
	list, args := database.In(ids)
	rows, err := s.db.QueryContext(ctx, `SELECT `+keyColumns+`, s.hash, s.expires_at`+keyTables+
		`JOIN key_secrets s ON s.key_id = k.id WHERE k.id IN (`+list+`)`, args...)
	if err != nil {
		return err
	}
	return rows.Each(func() error {
		var hash []byte
		var one StoredSecret
		key, err := scanKey(rows.Scan, &hash, &one.ExpiresAt)
		if err != nil {
			return err
		}
		if copy(one.Sum[:], hash) != len(one.Sum) {
			return fmt.Errorf("a secret of key %s has a sum of %d bytes", key.ID, len(hash))
		}
		if one.ExpiresAt != nil {
			*one.ExpiresAt = one.ExpiresAt.UTC()
		}
		stored := found[key.ID]
		stored.Key = key
		stored.Secrets = append(stored.Secrets, one)
		found[key.ID] = stored
		return nil
	})
}
