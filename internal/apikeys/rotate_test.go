package apikeys_test

import (
	"strings"
	"testing"
	"time"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/apikeys"
	"github.com/quotad/quotad/internal/secret"
	"github.com/quotad/quotad/internal/testenv"
)

func TestARotationKeepsTheKeyAndBothSecretsUntilTheGraceEnds(t *testing.T) {
	inEach(t, func(w *world) {
		key := w.create(quotad.KeySpec{Name: "ci", Status: quotad.KeyActive})
		w.clock.Advance(time.Second)
		rotated := w.rotate(key.ID, time.Hour)
		if id, ok := secret.Parse(secret.APIKey, rotated.Secret); !ok || id != key.ID || rotated.Secret == key.Secret {
			w.t.Errorf("the new secret parses as %q, %v; want another one of %q", id, ok, key.ID)
		}
		want := key
		want.Secret, want.Hint = rotated.Secret, "qk_…"+rotated.Secret[len(rotated.Secret)-4:]
		want.Version, want.UpdatedAt = 2, testenv.Noon.Add(time.Second)
		w.same("the rotated key", want, rotated)
		want.Secret = ""
		w.same("the rotated key read again", want, w.key(key.ID))

		cached := w.find(key.Secret)
		w.clock.Advance(time.Hour - time.Microsecond)
		if !w.admits(key.Secret) || !w.admits(rotated.Secret) {
			w.t.Error("within the grace both secrets must work")
		}
		w.clock.Advance(time.Microsecond)
		if w.admits(key.Secret) || cached.Admits(key.Secret, w.clock.Now()) {
			w.t.Error("the old secret works after its grace")
		}
		if !w.admits(rotated.Secret) {
			w.t.Error("the new secret must work after the grace of the old one")
		}
	})
}

func TestWithoutGraceTheOldSecretsEndAtOnce(t *testing.T) {
	inEach(t, func(w *world) {
		first := w.create(quotad.KeySpec{})
		second := w.rotate(first.ID, time.Hour)
		third := w.rotate(first.ID, 0)
		if w.admits(first.Secret) || w.admits(second.Secret) || !w.admits(third.Secret) {
			w.t.Error("only the newest secret must work")
		}
		// Not even for a node whose clock is behind.
		if stored := w.find(first.Secret); stored.Admits(first.Secret, testenv.Noon.Add(-time.Hour)) || stored.Admits(second.Secret, testenv.Noon.Add(-time.Hour)) {
			w.t.Error("a clock that is behind brings an old secret back")
		}
	})
}

func TestALaterRotationNeverExtendsAnOlderGrace(t *testing.T) {
	inEach(t, func(w *world) {
		first := w.create(quotad.KeySpec{})
		second := w.rotate(first.ID, time.Minute)
		third := w.rotate(first.ID, time.Hour)
		w.clock.Advance(time.Minute)
		if w.admits(first.Secret) || !w.admits(second.Secret) || !w.admits(third.Secret) {
			w.t.Error("after a minute the second and third secret must work, the first must not")
		}
		fourth := w.rotate(first.ID, time.Second)
		w.clock.Advance(time.Second)
		if w.admits(second.Secret) || w.admits(third.Secret) || !w.admits(fourth.Secret) {
			w.t.Error("a shorter grace must end the older ones as well")
		}
	})
}

func TestARotationOfADisabledKeyLeavesItDisabled(t *testing.T) {
	inEach(t, func(w *world) {
		key := w.create(quotad.KeySpec{Status: quotad.KeyDisabled, RouteGroups: []string{"exports"}})
		rotated := w.rotate(key.ID, time.Hour)
		w.same("status", quotad.KeyDisabled, rotated.Status)
		w.same("groups", []string{"exports"}, rotated.RouteGroups)
		if w.admits(rotated.Secret) {
			w.t.Error("the secret of a disabled key works")
		}
	})
}

func TestGraceIsBounded(t *testing.T) {
	inEach(t, func(w *world) {
		key := w.create(quotad.KeySpec{})
		for _, grace := range []time.Duration{-1, apikeys.MaxGrace + 1, 1 << 62} {
			_, err := w.keys.Rotate(w.t.Context(), operator, key.ID, nil, grace)
			w.faulty(grace.String(), err, "grace_seconds")
		}
		w.same("version", int64(1), w.key(key.ID).Version)
		w.rotate(key.ID, apikeys.MaxGrace)
		w.clock.Advance(apikeys.MaxGrace - 1)
		if !w.admits(key.Secret) {
			w.t.Error("the longest grace is not given")
		}
	})
}

func TestTheSecretsOfAKeyAreBounded(t *testing.T) {
	inEach(t, func(w *world) {
		key := w.create(quotad.KeySpec{})
		for range apikeys.MaxSecrets - 1 {
			w.rotate(key.ID, time.Hour)
		}
		_, err := w.keys.Rotate(w.t.Context(), operator, key.ID, nil, time.Hour)
		w.refused("one more", err, quotad.ErrConflict)
		if err != nil && !strings.Contains(err.Error(), "without grace") {
			w.t.Errorf("%v does not say what to do", err)
		}
		if got := w.find(key.Secret); len(got.Secrets) != apikeys.MaxSecrets || !w.admits(key.Secret) {
			w.t.Errorf("%d secrets, and the first works: %v", len(got.Secrets), w.admits(key.Secret))
		}
		w.clock.Advance(time.Hour) // what has ended makes room
		w.rotate(key.ID, time.Hour)
		w.same("secrets", 2, len(w.find(key.Secret).Secrets))
	})
}
