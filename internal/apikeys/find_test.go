package apikeys_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/apikeys"
	"github.com/quotad/quotad/internal/secret"
	"github.com/quotad/quotad/internal/testenv"
)

func TestFindTellsKnownFromUnknown(t *testing.T) {
	inEach(t, func(w *world) {
		ctx := w.t.Context()
		for _, n := range []int{0, 1, 2, 8, 9, 61, 64, 65, 130} {
			want := map[string]quotad.Key{}
			var ids []string
			for i := range n {
				switch {
				case i%3 != 0:
					_, unknown := secret.Mint(secret.APIKey, testenv.Noon)
					ids = append(ids, unknown)
				case i%2 == 0 || n < 9:
					key := w.create(quotad.KeySpec{Name: fmt.Sprint(i), RouteGroups: []string{"reports", "exports"}})
					key.Secret = ""
					want[key.ID] = key
					ids = append(ids, key.ID, key.ID) // asked for twice
				default:
					key := w.create(quotad.KeySpec{})
					revoked, err := w.keys.Revoke(ctx, operator, key.ID, nil)
					if err != nil {
						w.t.Fatal(err)
					}
					want[key.ID] = revoked
					ids = append(ids, key.ID)
				}
			}
			ids = append(ids, "", "a\x00b", "\xff", strings.Repeat("a", 1<<20), "' OR 1=1 --")
			found, err := w.keys.Find(ctx, ids)
			if err != nil {
				w.t.Fatal(err)
			}
			got := map[string]quotad.Key{}
			for id, stored := range found {
				got[id] = stored.Key
				if len(stored.Secrets) != 1 {
					w.t.Errorf("%d secrets of %s", len(stored.Secrets), id)
				}
			}
			w.same(fmt.Sprint("of ", n), want, got)
		}
	})
}

func TestJunkIsNeverLookedUp(t *testing.T) {
	inEach(t, func(w *world) {
		if err := w.db.Close(); err != nil {
			w.t.Fatal(err)
		}
		found, err := w.keys.Find(w.t.Context(), []string{"", "a", "a\x00b", "1234567890123456 ", strings.Repeat("é", 8)})
		if err != nil || len(found) != 0 {
			w.t.Errorf("%v, %v: malformed ids were looked up", found, err)
		}
	})
}

func TestFindKeepsTheStoredStatus(t *testing.T) {
	inEach(t, func(w *world) {
		key := w.create(quotad.KeySpec{ExpiresAt: new(testenv.Noon.Add(time.Second))})
		w.clock.Advance(time.Minute)
		// A cache asks again and again what it amounts to.
		stored := w.find(key.Secret)
		w.same("stored", quotad.KeyActive, stored.Key.Status)
		w.same("at testenv.Noon", quotad.KeyActive, stored.Key.StatusAt(testenv.Noon))
		w.same("now", quotad.KeyExpired, stored.Key.StatusAt(w.clock.Now()))
	})
}

func TestAdmits(t *testing.T) {
	t.Parallel()
	texts := []string{"first", "second", "third"}
	past, future := testenv.Noon, testenv.Noon.Add(1)
	for _, c := range []struct {
		ends []*time.Time // of each secret in turn
		want []bool
	}{
		{nil, []bool{false, false, false}},
		{[]*time.Time{nil}, []bool{true, false, false}},
		{[]*time.Time{nil, nil, nil}, []bool{true, true, true}},
		{[]*time.Time{&past, nil, &future}, []bool{false, true, true}},
		{[]*time.Time{&future, &past, &past}, []bool{true, false, false}},
		{[]*time.Time{&past, &past, nil}, []bool{false, false, true}},
	} {
		var stored apikeys.Stored
		for i, end := range c.ends {
			stored.Secrets = append(stored.Secrets, apikeys.StoredSecret{Sum: secret.Hash(texts[i]), ExpiresAt: end})
		}
		for i, text := range texts {
			if got := stored.Admits(text, testenv.Noon); got != c.want[i] {
				t.Errorf("ends %v: %s is admitted: %v, want %v", c.ends, text, got, c.want[i])
			}
		}
		for _, other := range []string{"", "firs", "first ", "First", strings.Repeat("\x00", 32)} {
			if stored.Admits(other, testenv.Noon) || stored.Admits(other, time.Time{}.Add(-time.Hour)) {
				t.Errorf("%q is admitted", other)
			}
		}
	}
}
