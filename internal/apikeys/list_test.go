package apikeys_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/database"
	"github.com/quotad/quotad/internal/secret"
	"github.com/quotad/quotad/internal/testenv"
)

// pages walks the list of acme's keys and calls between after each page.
func (w *world) pages(limit int, between func(page int)) (ids []string, pages int) {
	w.t.Helper()
	page := database.Page{Limit: limit}
	for {
		keys, next, err := w.keys.Keys(w.t.Context(), "acme", page)
		if err != nil {
			w.t.Fatal(err)
		}
		for _, k := range keys {
			ids = append(ids, k.ID)
		}
		pages++
		if between != nil {
			between(pages)
		}
		if next == "" {
			return ids, pages
		}
		page.After = next
	}
}

func TestKeysOfOneTenantAreNotListedUnderAnother(t *testing.T) {
	inEach(t, func(w *world) {
		ctx := w.t.Context()
		ours := w.create(quotad.KeySpec{Name: "ours"})
		theirs, err := w.keys.Create(ctx, operator, "globex", quotad.KeySpec{Name: "theirs"})
		if err != nil {
			w.t.Fatal(err)
		}
		for tenant, want := range map[string]quotad.Key{"acme": ours, "globex": theirs} {
			keys, next, err := w.keys.Keys(ctx, tenant, database.Page{})
			want.Secret = ""
			if err != nil || next != "" {
				w.t.Errorf("keys of %s: next %q, %v", tenant, next, err)
			}
			w.same("keys of "+tenant, []quotad.Key{want}, keys)
		}

		w.create(quotad.KeySpec{})
		_, next, err := w.keys.Keys(ctx, "acme", database.Page{Limit: 1})
		if err != nil || next == "" {
			w.t.Fatalf("next %q, %v", next, err)
		}
		_, _, err = w.keys.Keys(ctx, "globex", database.Page{After: next})
		w.refused("a cursor of another tenant", err, &quotad.Error{Code: quotad.CodeInvalidRequest})
		for _, broken := range []string{"x", next + "x", next[1:], "e30", "bnVsbA"} {
			_, _, err = w.keys.Keys(ctx, "acme", database.Page{After: broken})
			w.refused("a broken cursor", err, &quotad.Error{Code: quotad.CodeInvalidRequest})
		}
		for _, limit := range []int{-1, database.MaxLimit + 1} {
			_, _, err = w.keys.Keys(ctx, "acme", database.Page{Limit: limit})
			w.refused("a limit out of bounds", err, &quotad.Error{Code: quotad.CodeInvalidRequest})
		}
	})
}

func TestATenantWithoutKeysHasAnEmptyList(t *testing.T) {
	inEach(t, func(w *world) {
		keys, next, err := w.keys.Keys(w.t.Context(), "acme", database.Page{})
		if keys == nil || len(keys) != 0 || next != "" || err != nil {
			w.t.Errorf("%v, %q, %v; want an empty list that is no null", keys, next, err)
		}
	})
}

// What one transaction imports has one creation time.
func TestNoPageSkipsOrRepeatsAKey(t *testing.T) {
	inEach(t, func(w *world) {
		ctx := w.t.Context()
		var all []string
		w.importKeys(250, func(id string) { all = append(all, id) })

		ids, pages := w.pages(50, nil)
		slices.Sort(all)
		w.same("a quiet walk", all, ids)
		w.same("pages", 5, pages)

		gone := ids[10]
		walked, _ := w.pages(50, func(page int) {
			if page != 2 {
				return
			}
			w.exec(`DELETE FROM keys WHERE id = $1`, gone)
			w.clock.Advance(time.Second)
			for range 3 {
				w.create(quotad.KeySpec{})
			}
		})
		seen := map[string]int{}
		for _, id := range walked {
			seen[id]++
			if seen[id] > 1 {
				w.t.Errorf("%s came twice", id)
			}
		}
		for _, id := range ids {
			if id != gone && seen[id] == 0 {
				w.t.Errorf("%s was there all the time and did not come", id)
			}
		}
		if _, err := w.keys.Key(ctx, gone); err == nil {
			w.t.Error("nothing was deleted")
		}
	})
}

// importKeys adds n keys of acme in one transaction.
func (w *world) importKeys(n int, each func(id string)) {
	w.t.Helper()
	ctx := w.t.Context()
	var keys, secrets []string
	keyArgs, secretArgs := []any{testenv.Noon}, []any{testenv.Noon}
	for range n {
		s, id := secret.Mint(secret.APIKey, testenv.Noon)
		sum := s.Sum()
		keyArgs = append(keyArgs, id)
		keys = append(keys, fmt.Sprintf("($%d, 'acme', '', true, '[]', 'active', 1, $1, $1)", len(keyArgs)))
		secretArgs = append(secretArgs, sum[:], id)
		secrets = append(secrets, fmt.Sprintf("($%d, $%d, '', $1)", len(secretArgs)-1, len(secretArgs)))
		each(id)
	}
	err := w.db.InTx(ctx, func(tx *database.Tx) error {
		if _, err := tx.ExecContext(ctx, `INSERT INTO keys (id, tenant, name, all_route_groups, allowed_cidrs, status, version, created_at, updated_at)
			VALUES `+strings.Join(keys, ", "), keyArgs...); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, `INSERT INTO key_secrets (hash, key_id, hint, created_at) VALUES `+strings.Join(secrets, ", "), secretArgs...)
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
}
