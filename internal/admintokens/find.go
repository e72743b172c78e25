package admintokens

import (
	"context"
	"fmt"
	"time"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/secret"
)

// Stored is a token with what its text is recognised by.
type Stored struct {
	Token quotad.AdminToken
	Sum   secret.Sum
}

// Admits reports whether text is the token's and works at now. The comparison
// takes constant time.
func (s Stored) Admits(text string, now time.Time) bool {
	same := secret.Hash(text).Equal(s.Sum)
	return works(s.Token, now) && same
}

// Find returns the token whose text was presented, expired or not: ErrNotFound
// where it is nobody's. It is one query, and none for a text that can be neither
// minted nor given.
func (s *Store) Find(ctx context.Context, text string) (Stored, error) {
	id, minted := secret.Parse(secret.AdminToken, text)
	if !minted && !givable(text) {
		return Stored{}, fmt.Errorf("find an admin token: %w", quotad.ErrNotFound)
	}
	if !minted {
		id = BootstrapID
	}
	// The bootstrap token's text may have the minted form, with an id of its own.
	candidates, err := readAny(ctx, s.db, id, BootstrapID)
	if err != nil {
		return Stored{}, fmt.Errorf("find an admin token: %w", err)
	}
	sum := secret.Hash(text)
	var found *Stored
	for i, c := range candidates {
		if sum.Equal(c.Sum) {
			found = &candidates[i]
		}
	}
	if found == nil {
		return Stored{}, fmt.Errorf("find an admin token: %w", quotad.ErrNotFound)
	}
	return *found, nil
}
