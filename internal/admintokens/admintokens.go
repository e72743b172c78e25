package admintokens

import (
	"context"
	"fmt"
	"time"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/database"
	"github.com/quotad/quotad/internal/events"
	"github.com/quotad/quotad/internal/secret"
)

// lock is what decisions over all tokens are made under.
const lock = "admin_tokens"

// Options set a Store's clock; the zero value works.
type Options struct {
	// Now is the clock; time.Now by default.
	Now func() time.Time
}

// Store is the admin tokens in a database.
type Store struct {
	db  *database.DB
	log *events.Log
	now func() time.Time
}

// NewStore returns the admin tokens in db, whose writes are recorded in log.
func NewStore(db *database.DB, log *events.Log, options Options) *Store {
	if options.Now == nil {
		options.Now = time.Now
	}
	return &Store{db: db, log: log, now: options.Now}
}

// Create makes a token. The one that it returns carries the secret, for the only
// time.
func (s *Store) Create(ctx context.Context, by quotad.Actor, spec quotad.AdminTokenSpec) (quotad.AdminToken, error) {
	now := database.Time(s.now())
	if err := check(&spec, now); err != nil {
		return quotad.AdminToken{}, fmt.Errorf("create an admin token: %w", err)
	}
	made, id := secret.Mint(secret.AdminToken, now)
	var token quotad.AdminToken
	err := s.db.InTx(ctx, func(tx *database.Tx) error {
		if _, err := insert(ctx, tx, id, spec, made, now); err != nil {
			return err
		}
		stored, err := read(ctx, tx, id)
		if err != nil {
			return err
		}
		token = stored.Token
		return s.record(ctx, tx, by, "admin_token.created", nil, &token)
	})
	if err != nil {
		return quotad.AdminToken{}, fmt.Errorf("create an admin token: %w", err)
	}
	token.Secret = made.Reveal()
	return token, nil
}

// Token returns a token, expired or not.
func (s *Store) Token(ctx context.Context, id string) (quotad.AdminToken, error) {
	if !validID(id) {
		return quotad.AdminToken{}, fmt.Errorf("read an admin token: %w", quotad.ErrNotFound)
	}
	stored, err := read(ctx, s.db, id)
	if err != nil {
		return quotad.AdminToken{}, fmt.Errorf("read admin token %s: %w", id, err)
	}
	return stored.Token, nil
}

// Tokens returns a page of all tokens, oldest first and the bootstrap token
// last, and the cursor of the next page, "" on the last.
func (s *Store) Tokens(ctx context.Context, page database.Page) (tokens []quotad.AdminToken, next string, err error) {
	const list = "admin_tokens"
	var last string
	limit, after, err := page.Start(list, &last)
	if err != nil {
		return nil, "", err
	}
	if after && !validID(last) {
		return nil, "", database.ErrCursor
	}
	tokens, err = readPage(ctx, s.db, last, limit)
	if err != nil {
		return nil, "", fmt.Errorf("list the admin tokens: %w", err)
	}
	return database.Cut(page, list, tokens, func(t quotad.AdminToken) string { return t.ID })
}

// Delete ends a token for good. The last owner token that works is
// quotad.ErrInUse.
func (s *Store) Delete(ctx context.Context, by quotad.Actor, id string, ifMatch *int64) error {
	if !validID(id) {
		return fmt.Errorf("delete an admin token: %w", quotad.ErrNotFound)
	}
	err := s.db.InTx(ctx, func(tx *database.Tx) error {
		if err := tx.Lock(ctx, lock); err != nil {
			return err
		}
		stored, err := read(ctx, tx, id)
		if err != nil {
			return err
		}
		token := stored.Token
		if err := database.CheckVersion(ifMatch, token.Version); err != nil {
			return err
		}
		if now := database.Time(s.now()); token.Role == quotad.RoleOwner && works(token, now) {
			others, err := otherOwners(ctx, tx, id, now)
			if err != nil {
				return err
			}
			if others == 0 {
				return quotad.NewError(quotad.CodeInUse, "it is the last owner token")
			}
		}
		if err := remove(ctx, tx, id); err != nil {
			return err
		}
		return s.record(ctx, tx, by, "admin_token.deleted", &token, nil)
	})
	if err != nil {
		return fmt.Errorf("delete admin token %s: %w", id, err)
	}
	return nil
}

// record writes the event of a change from before to after, either of which may be nil.
func (s *Store) record(ctx context.Context, tx *database.Tx, by quotad.Actor, action string, before, after *quotad.AdminToken) error {
	token := after
	if token == nil {
		token = before
	}
	return s.log.Record(ctx, tx, by, action, quotad.ResourceAdminToken, token.ID, "", token.Version, before, after)
}

// check refuses a spec with any fault, and cuts its time to what is kept.
func check(spec *quotad.AdminTokenSpec, now time.Time) error {
	faults := spec.Validate()
	if spec.ExpiresAt != nil {
		at := database.Time(*spec.ExpiresAt)
		spec.ExpiresAt = &at
		switch {
		case !at.After(now):
			faults.Add("expires_at", "must be in the future")
		case at.Year() > 9999: // the last one that RFC 3339, and so JSON, can write
			faults.Add("expires_at", "must be before the year 10000")
		}
	}
	return faults.Err()
}

// works reports whether a token has not expired.
func works(token quotad.AdminToken, now time.Time) bool {
	return token.ExpiresAt == nil || now.Before(*token.ExpiresAt)
}

func validID(id string) bool { return id == BootstrapID || secret.ValidID(id) }
