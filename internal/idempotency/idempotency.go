package idempotency

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/database"
	"github.com/quotad/quotad/internal/secret"
)

// MaxKey is the longest key, in bytes.
const MaxKey = 255

// Answer is what a request was answered with. It holds no secret: the caller
// leaves it out before the answer is kept, and one left in by mistake is kept
// as "[redacted]".
type Answer struct {
	// Status is an HTTP status.
	Status  int
	Headers map[string]string
	// Body is UTF-8 text.
	Body []byte
}

// Options of a Store. The zero value works.
type Options struct {
	// Now is the clock; time.Now by default.
	Now func() time.Time
	// Keep is how long an answer is kept; 24 h by default.
	Keep time.Duration
	// Abandoned is how long a request can be at work before its node is taken for
	// dead, and the request for not done; a minute by default. It has to be longer
	// than any request lasts.
	Abandoned time.Duration
}

// Store is the answers in a database.
type Store struct {
	db *database.DB
	o  Options
}

// NewStore returns the answers in db.
func NewStore(db *database.DB, o Options) *Store {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Keep <= 0 {
		o.Keep = 24 * time.Hour
	}
	if o.Abandoned <= 0 {
		o.Abandoned = time.Minute
	}
	return &Store{db: db, o: o}
}

// Begin reserves the key for a request of the actor, which has the SHA-256
// request, and returns nil: the caller does it now, and calls Finish or Forget.
// When it was done before, the answer comes back instead.
func (s *Store) Begin(ctx context.Context, actor, key string, request [32]byte) (*Answer, error) {
	var kept *Answer
	err := s.db.InTx(ctx, func(tx *database.Tx) error {
		kept = nil
		now := database.Time(s.o.Now())
		if _, err := tx.ExecContext(ctx, `DELETE FROM idempotency
			WHERE actor = $1 AND key = $2 AND (created_at <= $3 OR (status IS NULL AND created_at <= $4))`,
			actor, key, now.Add(-s.o.Keep), now.Add(-s.o.Abandoned)); err != nil {
			return err
		}
		n, err := tx.ExecContext(ctx, `INSERT INTO idempotency (actor, key, request, created_at) VALUES ($1, $2, $3, $4)
			ON CONFLICT (actor, key) DO NOTHING`, actor, key, request[:], now)
		if err != nil || n == 1 {
			return err
		}
		kept, err = read(ctx, tx, actor, key, request)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("begin a request with an idempotency key: %w", err)
	}
	return kept, nil
}

// read returns the answer under a key that is taken.
func read(ctx context.Context, tx *database.Tx, actor, key string, request [32]byte) (*Answer, error) {
	var first []byte
	var status *int
	var headers, body *string
	err := tx.QueryRowContext(ctx, `SELECT request, status, headers, body FROM idempotency WHERE actor = $1 AND key = $2`,
		actor, key).Scan(&first, &status, &headers, &body)
	switch {
	case errors.Is(err, quotad.ErrNotFound): // forgotten just now
		return nil, busy()
	case err != nil:
		return nil, err
	case string(first) != string(request[:]):
		return nil, quotad.NewError(quotad.CodeIdempotencyMismatch, "")
	case status == nil:
		return nil, busy()
	}
	answer := Answer{Status: *status, Body: []byte(*body)}
	if err := json.Unmarshal([]byte(*headers), &answer.Headers); err != nil {
		return nil, fmt.Errorf("decode the headers of an answer: %w", err)
	}
	return &answer, nil
}

func busy() error {
	return &quotad.Error{
		Code: quotad.CodeConflict, RetryAfter: time.Second,
		Detail: "a request with this Idempotency-Key is being answered",
	}
}

// Finish keeps the answer to the request that Begin reserved the key for.
func (s *Store) Finish(ctx context.Context, actor, key string, answer Answer) error {
	headers, err := json.Marshal(answer.Headers)
	if err != nil {
		return fmt.Errorf("encode the headers of an answer: %w", err)
	}
	err = s.db.InTx(ctx, func(tx *database.Tx) error {
		_, err := tx.ExecContext(ctx, `UPDATE idempotency SET status = $3, headers = $4, body = $5
			WHERE actor = $1 AND key = $2 AND status IS NULL`,
			actor, key, answer.Status, secret.Redact(string(headers)), secret.Redact(string(answer.Body)))
		return err
	})
	if err != nil {
		return fmt.Errorf("keep the answer to a request with an idempotency key: %w", err)
	}
	return nil
}

// Forget gives a key back whose request came to nothing.
func (s *Store) Forget(ctx context.Context, actor, key string) error {
	err := s.db.InTx(ctx, func(tx *database.Tx) error {
		_, err := tx.ExecContext(ctx, `DELETE FROM idempotency WHERE actor = $1 AND key = $2 AND status IS NULL`, actor, key)
		return err
	})
	if err != nil {
		return fmt.Errorf("forget a request with an idempotency key: %w", err)
	}
	return nil
}

// Prune deletes the answers that are no longer kept, and returns how many.
func (s *Store) Prune(ctx context.Context) (int64, error) {
	var n int64
	err := s.db.InTx(ctx, func(tx *database.Tx) (err error) {
		n, err = tx.ExecContext(ctx, `DELETE FROM idempotency WHERE created_at <= $1`, database.Time(s.o.Now()).Add(-s.o.Keep))
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("prune the answers to requests with an idempotency key: %w", err)
	}
	return n, nil
}

// pause is the time between two prunings.
const pause = time.Hour

// Run prunes until ctx ends; then it returns nil. A pruning that fails is made
// up for by the next one.
func (s *Store) Run(ctx context.Context) error {
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for {
		_, _ = s.Prune(ctx) // expired answers are never given out, pruned or not
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}
