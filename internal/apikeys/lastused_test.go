package apikeys_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/apikeys"
	"github.com/quotad/quotad/internal/secret"
	"github.com/quotad/quotad/internal/testenv"
)

func TestATouchGoesOnlyForwardAndIsNoEdit(t *testing.T) {
	inEach(t, func(w *world) {
		ctx := w.t.Context()
		key := w.create(quotad.KeySpec{Name: "ci"})
		idle := w.create(quotad.KeySpec{Name: "idle"})
		_, unknown := secret.Mint(secret.APIKey, testenv.Noon)
		want := key
		want.Secret = ""
		for _, c := range []struct{ used, stored time.Duration }{
			{time.Second, time.Second},
			{500 * time.Millisecond, time.Second},
			{-time.Hour, time.Second},
			{time.Second, time.Second},
			// As text the one with more digits must not come first.
			{time.Second + 1*time.Microsecond, time.Second + 1*time.Microsecond},
			{time.Second + 500*time.Millisecond, time.Second + 500*time.Millisecond},
			{time.Second + 499_999*time.Microsecond, time.Second + 500*time.Millisecond},
			{2*time.Second + 999*time.Nanosecond, 2 * time.Second},
			{24 * time.Hour, 24 * time.Hour},
			{10 * time.Hour, 24 * time.Hour},
		} {
			used := map[string]time.Time{key.ID: testenv.Noon.Add(c.used).In(time.FixedZone("", 5*3600)), unknown: testenv.Noon, "a\x00b": testenv.Noon}
			if err := w.keys.Touch(ctx, used); err != nil {
				w.t.Fatal(err)
			}
			want.LastUsedAt = new(testenv.Noon.Add(c.stored))
			w.same("after a use at testenv.Noon + "+c.used.String(), want, w.key(key.ID))
		}
		if got := w.key(idle.ID); got.LastUsedAt != nil {
			w.t.Errorf("the other key was used at %s", got.LastUsedAt)
		}
		w.same("actions", []string{"key.created"}, w.actions(key.ID))
		if err := w.keys.Touch(ctx, nil); err != nil {
			w.t.Error(err)
		}
	})
}

func TestManyKeysAreTouchedTogether(t *testing.T) {
	inEach(t, func(w *world) {
		const n = 450
		used := map[string]time.Time{}
		w.importKeys(n, func(id string) { used[id] = testenv.Noon.Add(time.Duration(len(used)) * time.Second) })
		if err := w.keys.Touch(w.t.Context(), used); err != nil {
			w.t.Fatal(err)
		}
		w.same("touched", n, w.count(`SELECT count(*) FROM keys WHERE last_used_at IS NOT NULL`))
		for id, at := range used {
			if got := w.key(id).LastUsedAt; got == nil || !got.Equal(at) {
				w.t.Fatalf("%s was used at %v, want %s", id, got, at)
			}
		}
	})
}

func TestNotedUsesReachTheDatabase(t *testing.T) {
	inEach(t, func(w *world) {
		key := w.create(quotad.KeySpec{})
		touches := apikeys.NewTouches(w.keys, apikeys.TouchesOptions{Now: w.clock.Now})
		for i := range 10 {
			touches.Note(key.ID, testenv.Noon.Add(time.Duration(i)*time.Second))
		}
		if err := touches.Flush(w.t.Context()); err != nil {
			w.t.Fatal(err)
		}
		w.same("last use", new(testenv.Noon.Add(9*time.Second)), w.key(key.ID).LastUsedAt)
		w.same("keys", 1, w.count(fmt.Sprintf(`SELECT count(*) FROM keys WHERE version = %d`, 1)))
	})
}
