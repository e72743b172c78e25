package idempotency_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/database"
	"github.com/quotad/quotad/internal/database/databasetest"
	"github.com/quotad/quotad/internal/idempotency"
	"github.com/quotad/quotad/internal/secret"
	"github.com/quotad/quotad/internal/testenv"
)

func each(t *testing.T, f func(t *testing.T, s *idempotency.Store, c *testenv.Clock)) {
	t.Parallel()
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		c := testenv.NewClock()
		f(t, idempotency.NewStore(db, idempotency.Options{Now: c.Now}), c)
	})
}

var (
	one   = [32]byte{1}
	two   = [32]byte{2}
	given = idempotency.Answer{Status: 201, Headers: map[string]string{"Location": "/x"}, Body: []byte(`{"a":"é"}`)}
)

func begins(t *testing.T, s *idempotency.Store, actor, key string, request [32]byte) {
	t.Helper()
	kept, err := s.Begin(t.Context(), actor, key, request)
	if kept != nil || err != nil {
		t.Fatalf("got %v, %v; want a new request", kept, err)
	}
}

func refuses(t *testing.T, s *idempotency.Store, actor, key string, request [32]byte, code quotad.Code) {
	t.Helper()
	if kept, err := s.Begin(t.Context(), actor, key, request); kept != nil || !errors.Is(err, &quotad.Error{Code: code}) {
		t.Fatalf("got %v, %v; want %s", kept, err, code)
	}
}

func TestAnAnswerIsGivenAgain(t *testing.T) {
	each(t, func(t *testing.T, s *idempotency.Store, c *testenv.Clock) {
		begins(t, s, "a", "k", one)
		refuses(t, s, "a", "k", one, quotad.CodeConflict)
		if err := s.Finish(t.Context(), "a", "k", given); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			kept, err := s.Begin(t.Context(), "a", "k", one)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(&given, kept); diff != "" {
				t.Error(diff)
			}
		}
		refuses(t, s, "a", "k", two, quotad.CodeIdempotencyMismatch)
		begins(t, s, "b", "k", two)  // another actor
		begins(t, s, "a", "k2", two) // another key
		c.Advance(24*time.Hour - time.Second)
		if kept, err := s.Begin(t.Context(), "a", "k", one); kept == nil || err != nil {
			t.Errorf("within the time it is kept: got %v, %v", kept, err)
		}
		c.Advance(time.Second)
		begins(t, s, "a", "k", two)
	})
}

func TestNoSecretIsKept(t *testing.T) {
	each(t, func(t *testing.T, s *idempotency.Store, c *testenv.Clock) {
		key, _ := secret.Mint(secret.APIKey, c.Now())
		begins(t, s, "a", "k", one)
		err := s.Finish(t.Context(), "a", "k", idempotency.Answer{
			Status: 201, Headers: map[string]string{"X": key.Reveal()}, Body: []byte(`{"secret":"` + key.Reveal() + `"}`),
		})
		if err != nil {
			t.Fatal(err)
		}
		kept, err := s.Begin(t.Context(), "a", "k", one)
		if err != nil {
			t.Fatal(err)
		}
		want := &idempotency.Answer{Status: 201, Headers: map[string]string{"X": "[redacted]"}, Body: []byte(`{"secret":"[redacted]"}`)}
		if diff := cmp.Diff(want, kept); diff != "" {
			t.Error(diff)
		}
	})
}

func TestAFailedRequestIsForgotten(t *testing.T) {
	each(t, func(t *testing.T, s *idempotency.Store, _ *testenv.Clock) {
		begins(t, s, "a", "k", one)
		if err := s.Forget(t.Context(), "a", "k"); err != nil {
			t.Fatal(err)
		}
		begins(t, s, "a", "k", two)
		if err := s.Finish(t.Context(), "a", "k", given); err != nil {
			t.Fatal(err)
		}
		if err := s.Forget(t.Context(), "a", "k"); err != nil {
			t.Fatal(err)
		}
		refuses(t, s, "a", "k", one, quotad.CodeIdempotencyMismatch) // what is answered is not forgotten
	})
}

func TestAnAbandonedRequestIsDoneAgain(t *testing.T) {
	each(t, func(t *testing.T, s *idempotency.Store, c *testenv.Clock) {
		begins(t, s, "a", "k", one)
		c.Advance(59 * time.Second)
		refuses(t, s, "a", "k", one, quotad.CodeConflict)
		c.Advance(time.Second)
		begins(t, s, "a", "k", one)
		refuses(t, s, "a", "k", one, quotad.CodeConflict)
	})
}

func TestOfManyAtOnceOneBegins(t *testing.T) {
	each(t, func(t *testing.T, s *idempotency.Store, _ *testenv.Clock) {
		const n = 20
		errs := make([]error, n)
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() {
				var kept *idempotency.Answer
				if kept, errs[i] = s.Begin(context.Background(), "a", "k", one); kept != nil {
					t.Error("an answer that nobody gave")
				}
			})
		}
		wg.Wait()
		begun := 0
		for _, err := range errs {
			switch {
			case err == nil:
				begun++
			case !errors.Is(err, quotad.ErrConflict):
				t.Error(err)
			}
		}
		if begun != 1 {
			t.Errorf("%d began", begun)
		}
	})
}

func TestPruneDeletesWhatIsNoLongerKept(t *testing.T) {
	each(t, func(t *testing.T, s *idempotency.Store, c *testenv.Clock) {
		begins(t, s, "a", "old", one)
		if err := s.Finish(t.Context(), "a", "old", given); err != nil {
			t.Fatal(err)
		}
		begins(t, s, "a", "abandoned", one)
		c.Advance(24 * time.Hour)
		begins(t, s, "a", "new", one)
		if n, err := s.Prune(t.Context()); n != 2 || err != nil {
			t.Errorf("got %d, %v", n, err)
		}
		refuses(t, s, "a", "new", one, quotad.CodeConflict)
	})
}
