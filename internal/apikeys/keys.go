package apikeys

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/database"
	"github.com/quotad/quotad/internal/events"
	"github.com/quotad/quotad/internal/secret"
)

// Options set a Store's clock; the zero value works.
type Options struct {
	// Now is the clock; time.Now by default.
	Now func() time.Time
}

// Store is the keys in a database.
type Store struct {
	db  *database.DB
	log *events.Log
	now func() time.Time
}

// NewStore returns the keys in db, whose writes are recorded in log.
func NewStore(db *database.DB, log *events.Log, options Options) *Store {
	if options.Now == nil {
		options.Now = time.Now
	}
	return &Store{db: db, log: log, now: options.Now}
}

// clock is the time now as the database keeps it.
func (s *Store) clock() time.Time { return database.Time(s.now()) }

// Create makes a key of a tenant. The key that it returns carries the secret,
// for the only time.
func (s *Store) Create(ctx context.Context, by quotad.Actor, tenant string, spec quotad.KeySpec) (quotad.Key, error) {
	now := s.clock()
	var made secret.Secret
	var key quotad.Key
	err := s.db.InTx(ctx, func(tx *database.Tx) error {
		if err := tenantExists(ctx, tx, tenant); err != nil {
			return err
		}
		spec := spec // f may run again
		if err := check(ctx, tx, &spec, nil, now); err != nil {
			return err
		}
		var id string
		made, id = secret.Mint(secret.APIKey, now)
		if err := insertKey(ctx, tx, id, tenant, spec, now); err != nil {
			return err
		}
		if err := insertSecret(ctx, tx, id, made, now); err != nil {
			return err
		}
		var err error
		if key, err = readKey(ctx, tx, id); err != nil {
			return err
		}
		return s.log.Record(ctx, tx, by, "key.created", quotad.ResourceKey, id, tenant, key.Version, nil, key)
	})
	if err != nil {
		return quotad.Key{}, fmt.Errorf("create a key of tenant %q: %w", tenant, err)
	}
	key.Secret = made.Reveal()
	return key, nil
}

// Key returns a key in whatever state, with the status that it has now.
func (s *Store) Key(ctx context.Context, id string) (quotad.Key, error) {
	if !secret.ValidID(id) {
		return quotad.Key{}, fmt.Errorf("read a key: %w", quotad.ErrNotFound)
	}
	key, err := readKey(ctx, s.db, id)
	if err != nil {
		return quotad.Key{}, fmt.Errorf("read key %s: %w", id, err)
	}
	return shown(key, s.clock()), nil
}

// Keys returns a page of a tenant's keys, oldest first, and the cursor of the
// next one, "" on the last.
func (s *Store) Keys(ctx context.Context, tenant string, page database.Page) (keys []quotad.Key, next string, err error) {
	list := "keys/" + tenant
	var last string
	rows, after, err := page.Start(list, &last)
	if err != nil {
		return nil, "", err
	}
	if after && !secret.ValidID(last) {
		return nil, "", database.ErrCursor
	}
	if err := tenantExists(ctx, s.db, tenant); err != nil {
		return nil, "", fmt.Errorf("list the keys of tenant %q: %w", tenant, err)
	}
	keys, err = readKeys(ctx, s.db, tenant, last, rows)
	if err != nil {
		return nil, "", fmt.Errorf("list the keys of tenant %q: %w", tenant, err)
	}
	now := s.clock()
	for i := range keys {
		keys[i] = shown(keys[i], now)
	}
	return database.Cut(page, list, keys, func(k quotad.Key) string { return k.ID })
}

// Update edits a key. edit gets the spec as it is at the moment of the write,
// may be called more than once, and must be quick: the key is locked meanwhile.
// Where edit fails nothing is written.
func (s *Store) Update(ctx context.Context, by quotad.Actor, id string, ifMatch *int64, edit func(*quotad.KeySpec) error) (quotad.Key, error) {
	return s.write(ctx, "update", id, func(tx *database.Tx, before quotad.Key, now time.Time) (quotad.Key, error) {
		if err := database.CheckVersion(ifMatch, before.Version); err != nil {
			return before, err
		}
		if err := alive(before, now); err != nil {
			return before, err
		}
		// Read again, so that what edit does inside a list leaves before alone.
		after, err := readKey(ctx, tx, id)
		if err != nil {
			return before, err
		}
		if err := edit(&after.KeySpec); err != nil {
			return before, err
		}
		if err := check(ctx, tx, &after.KeySpec, &before.KeySpec, now); err != nil {
			return before, err
		}
		if same, err := sameSpec(before.KeySpec, after.KeySpec); err != nil || same {
			return before, err
		}
		if err := updateKey(ctx, tx, id, after.KeySpec, now); err != nil {
			return before, err
		}
		return s.record(ctx, tx, by, "key.updated", before, now)
	})
}

// Revoke ends a key for good. Revoking a revoked key changes nothing.
func (s *Store) Revoke(ctx context.Context, by quotad.Actor, id string, ifMatch *int64) (quotad.Key, error) {
	return s.write(ctx, "revoke", id, func(tx *database.Tx, before quotad.Key, now time.Time) (quotad.Key, error) {
		if err := database.CheckVersion(ifMatch, before.Version); err != nil || before.Status == quotad.KeyRevoked {
			return before, err
		}
		if err := setStatus(ctx, tx, id, quotad.KeyRevoked, now); err != nil {
			return before, err
		}
		return s.record(ctx, tx, by, "key.revoked", before, now)
	})
}

// write runs change on a key whose row is locked until the transaction ends, and
// returns the key that change returned, as it shows now.
func (s *Store) write(ctx context.Context, verb, id string,
	change func(tx *database.Tx, before quotad.Key, now time.Time) (quotad.Key, error)) (quotad.Key, error) {
	if !secret.ValidID(id) {
		return quotad.Key{}, fmt.Errorf("%s a key: %w", verb, quotad.ErrNotFound)
	}
	var key quotad.Key
	err := s.db.InTx(ctx, func(tx *database.Tx) error {
		if err := lockKey(ctx, tx, id); err != nil {
			return err
		}
		before, err := readKey(ctx, tx, id)
		if err != nil {
			return err
		}
		key, err = change(tx, before, s.clock())
		return err
	})
	if err != nil {
		return quotad.Key{}, fmt.Errorf("%s key %s: %w", verb, id, err)
	}
	return shown(key, s.clock()), nil
}

// record writes the event of a change to a key, and returns the key as it is now.
func (s *Store) record(ctx context.Context, tx *database.Tx, by quotad.Actor, action string, before quotad.Key, now time.Time) (quotad.Key, error) {
	after, err := readKey(ctx, tx, before.ID)
	if err != nil {
		return before, err
	}
	err = s.log.Record(ctx, tx, by, action, quotad.ResourceKey, after.ID, after.Tenant, after.Version, shown(before, now), shown(after, now))
	return after, err
}

// shown is the key with the status that it has now.
func shown(key quotad.Key, now time.Time) quotad.Key {
	key.Status = key.StatusAt(now)
	return key
}

// alive refuses a key that has ended for good.
func alive(key quotad.Key, now time.Time) error {
	switch status := key.StatusAt(now); status {
	case quotad.KeyRevoked, quotad.KeyExpired:
		return quotad.NewError(quotad.CodeConflict, fmt.Sprintf("the key is %s for good", status))
	}
	return nil
}

func sameSpec(a, b quotad.KeySpec) (bool, error) {
	x, err := json.Marshal(a)
	if err != nil {
		return false, err
	}
	y, err := json.Marshal(b)
	return string(x) == string(y), err
}
