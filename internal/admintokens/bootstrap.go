package admintokens

import (
	"context"
	"errors"
	"fmt"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/database"
	"github.com/quotad/quotad/internal/secret"
)

// BootstrapID is the id of the token that EnsureBootstrap keeps.
const BootstrapID = "bootstrap"

// The length of a given text, in bytes.
const (
	MinGiven = 16
	MaxGiven = 512
)

// EnsureBootstrap sees to it that somebody can come in. A given text becomes
// that of the bootstrap token, an owner, and the one it had before stops working.
// Where none is given ("") and there is no token at all, one is minted and
// returned, to be shown once; of several nodes that start at once, one gets it.
//
// A given text must be MinGiven to MaxGiven printable ASCII characters without
// spaces, so that it can stand in a header; the error does not repeat it. One
// that is the text of another owner token needs no bootstrap token beside it,
// and the one there is goes.
func (s *Store) EnsureBootstrap(ctx context.Context, given string) (minted string, err error) {
	if given != "" && !givable(given) {
		return "", quotad.Faults{"admin_token": fmt.Sprintf(
			"must be %d to %d printable ASCII characters without spaces", MinGiven, MaxGiven)}.Err()
	}
	err = s.db.InTx(ctx, func(tx *database.Tx) error {
		minted = ""
		if err := tx.Lock(ctx, lock); err != nil {
			return err
		}
		if given != "" {
			return s.give(ctx, tx, secret.Given(given))
		}
		tokens, err := readPage(ctx, tx, "", 1)
		if err != nil || len(tokens) > 0 {
			return err
		}
		made, _ := secret.Mint(secret.AdminToken, s.now())
		minted = made.Reveal()
		return s.give(ctx, tx, made)
	})
	if err != nil {
		return "", fmt.Errorf("ensure a bootstrap token: %w", err)
	}
	return minted, nil
}

// give makes text that of the bootstrap token.
func (s *Store) give(ctx context.Context, tx *database.Tx, text secret.Secret) error {
	by := quotad.Actor{Type: "system", Name: "bootstrap"}
	if done, err := s.giveOther(ctx, tx, by, text); done || err != nil {
		return err
	}
	spec := quotad.AdminTokenSpec{Name: "bootstrap", Role: quotad.RoleOwner}
	made, err := insert(ctx, tx, BootstrapID, spec, text, database.Time(s.now()))
	if err != nil {
		return err
	}
	before, err := read(ctx, tx, BootstrapID)
	if err != nil {
		return err
	}
	if made {
		return s.record(ctx, tx, by, "admin_token.created", nil, &before.Token)
	}
	if err := replace(ctx, tx, BootstrapID, text); err != nil {
		return err
	}
	after, err := read(ctx, tx, BootstrapID)
	if err != nil {
		return err
	}
	return s.record(ctx, tx, by, "admin_token.rotated", &before.Token, &after.Token)
}

// giveOther settles it where text is that of another token.
func (s *Store) giveOther(ctx context.Context, tx *database.Tx, by quotad.Actor, text secret.Secret) (done bool, err error) {
	other, err := readBySum(ctx, tx, text.Sum())
	switch {
	case errors.Is(err, quotad.ErrNotFound):
		return false, nil
	case err != nil:
		return false, err
	case other.Token.ID == BootstrapID:
		return true, nil
	case other.Token.Role != quotad.RoleOwner || !works(other.Token, s.now()):
		return false, quotad.Faults{"admin_token": "is the text of another admin token, which is no owner or has expired: give a text of its own, or an owner's"}.Err()
	}
	old, err := read(ctx, tx, BootstrapID)
	if errors.Is(err, quotad.ErrNotFound) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	if err := remove(ctx, tx, BootstrapID); err != nil {
		return false, err
	}
	return true, s.record(ctx, tx, by, "admin_token.deleted", &old.Token, nil)
}

// givable reports whether text can be that of a bootstrap token.
func givable(text string) bool {
	if len(text) < MinGiven || len(text) > MaxGiven {
		return false
	}
	for i := range len(text) {
		if text[i] <= ' ' || text[i] > '~' {
			return false
		}
	}
	return true
}
