package apikeys_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/apikeys"
	"github.com/quotad/quotad/internal/database"
	"github.com/quotad/quotad/internal/secret"
	"github.com/quotad/quotad/internal/testenv"
)

func TestAKeyIsStoredAsItWasSaid(t *testing.T) {
	inEach(t, func(w *world) {
		plain := w.create(quotad.KeySpec{Name: "ci"})
		w.same("a plain key", quotad.Key{
			ID: plain.ID, Tenant: "acme", Hint: "qk_…" + plain.Secret[len(plain.Secret)-4:], Secret: plain.Secret,
			KeySpec: quotad.KeySpec{Name: "ci", AllowedCIDRs: []netip.Prefix{}, Status: quotad.KeyActive},
			Version: 1, CreatedAt: testenv.Noon, UpdatedAt: testenv.Noon,
		}, plain)
		if id, ok := secret.Parse(secret.APIKey, plain.Secret); !ok || id != plain.ID {
			w.t.Errorf("the secret parses as %q, %v; want %q", id, ok, plain.ID)
		}
		plain.Secret = ""
		w.same("the plain key read again", plain, w.key(plain.ID))

		end := testenv.Noon.Add(time.Hour).In(time.FixedZone("", 3*3600))
		given := quotad.KeySpec{
			Name: "naïve 日本語 🔑", RateLimit: quotad.Units(0), RateWindow: quotad.Units(60),
			RouteGroups:  []string{"reports", "exports", "reports"},
			AllowedCIDRs: []netip.Prefix{netip.MustParsePrefix("10.1.2.3/8"), netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8::1/32")},
			ExpiresAt:    new(end.Add(999 * time.Nanosecond)), Status: quotad.KeyDisabled,
		}
		full := w.create(given)
		want := quotad.KeySpec{
			Name: given.Name, RateLimit: quotad.Units(0), RateWindow: quotad.Units(60),
			RouteGroups:  []string{"reports", "exports"},
			AllowedCIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8::/32")},
			ExpiresAt:    new(end.UTC()), Status: quotad.KeyDisabled,
		}
		w.same("a full key", want, full.KeySpec)
		w.same("the full key read again", want, w.key(full.ID).KeySpec)
		w.same("what the caller gave", []string{"reports", "exports", "reports"}, given.RouteGroups)

		none := w.create(quotad.KeySpec{RouteGroups: []string{}})
		if got := w.key(none.ID); got.RouteGroups == nil || got.MayCall("default") {
			w.t.Error("a key that may call no group came back as one that may call all")
		}
	})
}

func TestAllFaultsAreNamedAtOnce(t *testing.T) {
	inEach(t, func(w *world) {
		_, err := w.keys.Create(w.t.Context(), operator, "acme", quotad.KeySpec{
			Name: "a\x00b", RateLimit: quotad.Units(5), RouteGroups: []string{"exports", "nowhere", "exports", "Not\x00A Name"},
			ExpiresAt: new(testenv.Noon), Status: "paused",
		})
		w.faulty("a bad key", err, "name", "rate_window", "route_groups[1]", "route_groups[3]", "expires_at", "status")
		_, err = w.keys.Create(w.t.Context(), operator, "acme", quotad.KeySpec{RouteGroups: names(quotad.MaxListed + 1)})
		w.faulty("too many groups", err, "route_groups")
		_, err = w.keys.Create(w.t.Context(), operator, "acme", quotad.KeySpec{ExpiresAt: new(time.Date(9999, 12, 31, 23, 0, 0, 0, time.FixedZone("", -3600)))})
		w.faulty("an expiry that JSON can't write", err, "expires_at")
		w.same("keys", 0, w.count(`SELECT count(*) FROM keys`))
		w.same("events", 0, w.count(`SELECT count(*) FROM events`))

		key := w.create(quotad.KeySpec{Name: "ci", RouteGroups: []string{"exports"}})
		_, err = w.keys.Update(w.t.Context(), operator, key.ID, nil, func(spec *quotad.KeySpec) error {
			spec.RouteGroups = append(spec.RouteGroups, "nowhere")
			spec.RateWindow = quotad.Units(60)
			spec.ExpiresAt = new(testenv.Noon.Add(-time.Second))
			spec.Status = quotad.KeyRevoked
			return nil
		})
		w.faulty("a bad edit", err, "route_groups[1]", "rate_limit", "expires_at", "status")
		w.same("the key after a bad edit", int64(1), w.key(key.ID).Version)
	})
}

func TestWhatDoesNotExistIsNotFound(t *testing.T) {
	inEach(t, func(w *world) {
		ctx := w.t.Context()
		for _, tenant := range []string{"nobody", "", "Acme", "a\x00b", "acme ", strings.Repeat("a", 10_000), "\xff"} {
			_, err := w.keys.Create(ctx, operator, tenant, quotad.KeySpec{Status: "paused"})
			w.refused("create for "+tenant, err, quotad.ErrNotFound)
			_, _, err = w.keys.Keys(ctx, tenant, database.Page{})
			w.refused("list of "+tenant, err, quotad.ErrNotFound)
		}
		_, unknown := secret.Mint(secret.APIKey, testenv.Noon)
		for _, id := range []string{unknown, "", "x", unknown + "x", "a\x00b", strings.Repeat("a", 1<<20), "' OR 1=1 --", "\xff\xfe"} {
			_, err := w.keys.Key(ctx, id)
			w.refused("read", err, quotad.ErrNotFound)
			_, err = w.keys.Update(ctx, operator, id, nil, rename("x"))
			w.refused("update", err, quotad.ErrNotFound)
			_, err = w.keys.Revoke(ctx, operator, id, nil)
			w.refused("revoke", err, quotad.ErrNotFound)
			_, err = w.keys.Rotate(ctx, operator, id, nil, 0)
			w.refused("rotate", err, quotad.ErrNotFound)
		}
	})
}

func TestEditsKeepWhatTheyDoNotTouch(t *testing.T) {
	inEach(t, func(w *world) {
		ctx := w.t.Context()
		key := w.create(quotad.KeySpec{Name: "ci", RouteGroups: []string{"exports", "reports"}})
		w.clock.Advance(time.Second)
		edited, err := w.keys.Update(ctx, operator, key.ID, new(int64(1)), func(spec *quotad.KeySpec) error {
			spec.RateLimit, spec.RateWindow = quotad.Units(5), quotad.Units(60)
			spec.RouteGroups[0] = "default" // inside the list
			return nil
		})
		if err != nil {
			w.t.Fatal(err)
		}
		want := key
		want.Secret, want.Version, want.UpdatedAt = "", 2, testenv.Noon.Add(time.Second)
		want.RateLimit, want.RateWindow, want.RouteGroups = quotad.Units(5), quotad.Units(60), []string{"default", "reports"}
		w.same("the edited key", want, edited)
		w.same("the edited key read again", want, w.key(key.ID))
		if !w.admits(key.Secret) {
			w.t.Error("an edit made the secret stop working")
		}

		events := w.events(key.ID)
		if len(events) != 2 || !strings.Contains(*events[1].before, `"route_groups":["exports","reports"]`) ||
			!strings.Contains(*events[1].after, `"route_groups":["default","reports"]`) {
			w.t.Errorf("events: %+v", events)
		}

		// What changes nothing leaves no trace.
		same, err := w.keys.Update(ctx, operator, key.ID, nil, func(spec *quotad.KeySpec) error {
			spec.RouteGroups = []string{"default", "reports", "default"}
			spec.Status = ""
			return nil
		})
		if err != nil {
			w.t.Fatal(err)
		}
		w.same("the key after an empty edit", want, same)
		w.same("actions", []string{"key.created", "key.updated"}, w.actions(key.ID))

		// An edit that fails is rolled back.
		broken := errors.New("broken")
		_, err = w.keys.Update(ctx, operator, key.ID, nil, func(spec *quotad.KeySpec) error { spec.Name = "gone"; return broken })
		w.refused("a failed edit", err, broken)
		w.same("the key after a failed edit", want, w.key(key.ID))

		all, err := w.keys.Update(ctx, operator, key.ID, nil, func(spec *quotad.KeySpec) error { spec.RouteGroups = nil; return nil })
		if err != nil || all.RouteGroups != nil || w.key(key.ID).RouteGroups != nil {
			w.t.Errorf("after null: %v, %v", all.RouteGroups, err)
		}
	})
}

func TestAnOldIfMatchIsRefused(t *testing.T) {
	inEach(t, func(w *world) {
		ctx := w.t.Context()
		key := w.create(quotad.KeySpec{Name: "ci"})
		if _, err := w.keys.Update(ctx, operator, key.ID, new(int64(1)), rename("second")); err != nil {
			w.t.Fatal(err)
		}
		for _, old := range []int64{1, 0, -1, 3} {
			_, err := w.keys.Update(ctx, operator, key.ID, &old, rename("third"))
			w.refused("update", err, quotad.ErrPreconditionFailed)
			_, err = w.keys.Revoke(ctx, operator, key.ID, &old)
			w.refused("revoke", err, quotad.ErrPreconditionFailed)
		}
		w.same("name", "second", w.key(key.ID).Name)
		if _, err := w.keys.Revoke(ctx, operator, key.ID, new(int64(2))); err != nil {
			w.t.Fatal(err)
		}
		w.same("actions", []string{"key.created", "key.updated", "key.revoked"}, w.actions(key.ID))
	})
}

func TestARevokeIsFinal(t *testing.T) {
	inEach(t, func(w *world) {
		ctx := w.t.Context()
		key := w.create(quotad.KeySpec{Name: "ci", ExpiresAt: new(testenv.Noon.Add(time.Hour))})
		revoked, err := w.keys.Revoke(ctx, operator, key.ID, nil)
		if err != nil {
			w.t.Fatal(err)
		}
		w.same("status", quotad.KeyRevoked, revoked.Status)
		w.same("version", int64(2), revoked.Version)
		if w.admits(key.Secret) {
			w.t.Error("the secret of a revoked key works")
		}
		again, err := w.keys.Revoke(ctx, operator, key.ID, nil)
		if err != nil {
			w.t.Fatal(err)
		}
		w.same("a second revoke", revoked, again)
		_, err = w.keys.Update(ctx, operator, key.ID, nil, func(spec *quotad.KeySpec) error { spec.Status = quotad.KeyActive; return nil })
		w.refused("update", err, quotad.ErrConflict)
		_, err = w.keys.Rotate(ctx, operator, key.ID, nil, time.Hour)
		w.refused("rotate", err, quotad.ErrConflict)
		w.clock.Advance(2 * time.Hour)
		w.same("the key after its expiry", revoked, w.key(key.ID))
		w.same("actions", []string{"key.created", "key.revoked"}, w.actions(key.ID))
		w.same("secrets", 1, w.count(`SELECT count(*) FROM key_secrets`))
	})
}

func TestAnExpiryIsFinal(t *testing.T) {
	inEach(t, func(w *world) {
		ctx := w.t.Context()
		key := w.create(quotad.KeySpec{ExpiresAt: new(testenv.Noon.Add(time.Hour))})
		stored := w.find(key.Secret) // as a cache would hold it
		w.clock.Advance(time.Hour - time.Microsecond)
		w.same("status before", quotad.KeyActive, w.key(key.ID).Status)
		if _, err := w.keys.Update(ctx, operator, key.ID, nil, rename("still editable")); err != nil {
			w.t.Error(err)
		}
		w.clock.Advance(time.Microsecond)
		w.same("status", quotad.KeyExpired, w.key(key.ID).Status)
		w.same("status of the cached key", quotad.KeyExpired, stored.Key.StatusAt(w.clock.Now()))
		listed, _, err := w.keys.Keys(ctx, "acme", database.Page{})
		if err != nil || len(listed) != 1 || listed[0].Status != quotad.KeyExpired {
			w.t.Errorf("listed as %v, %v", listed, err)
		}
		_, err = w.keys.Update(ctx, operator, key.ID, nil, func(spec *quotad.KeySpec) error { spec.ExpiresAt = nil; return nil })
		w.refused("update", err, quotad.ErrConflict)
		_, err = w.keys.Rotate(ctx, operator, key.ID, nil, 0)
		w.refused("rotate", err, quotad.ErrConflict)
		revoked, err := w.keys.Revoke(ctx, operator, key.ID, nil)
		if err != nil || revoked.Status != quotad.KeyRevoked {
			w.t.Errorf("revoke: %v, %v", revoked.Status, err)
		}
		if e := w.events(key.ID); !strings.Contains(*e[len(e)-1].before, `"status":"expired"`) {
			w.t.Errorf("the event shows %s before", *e[len(e)-1].before)
		}
	})
}

func TestEachWriteLeavesOneEvent(t *testing.T) {
	inEach(t, func(w *world) {
		ctx := w.t.Context()
		key := w.create(quotad.KeySpec{Name: "ci"})
		if _, err := w.keys.Update(ctx, operator, key.ID, nil, rename("cd")); err != nil {
			w.t.Fatal(err)
		}
		w.rotate(key.ID, time.Hour)
		if _, err := w.keys.Revoke(ctx, operator, key.ID, nil); err != nil {
			w.t.Fatal(err)
		}
		w.same("actions", []string{"key.created", "key.updated", "key.rotated", "key.revoked"}, w.actions(key.ID))
		for i, e := range w.events(key.ID) {
			if e.tenant != "acme" || e.actor != operator.ID || e.version != int64(i+1) || e.after == nil || (e.before == nil) != (i == 0) {
				w.t.Errorf("event %d: %+v", i, e)
			}
		}
	})
}

func TestAGroupThatAKeyNamesStays(t *testing.T) {
	inEach(t, func(w *world) {
		w.create(quotad.KeySpec{RouteGroups: []string{"exports"}})
		err := w.db.InTx(w.t.Context(), func(tx *database.Tx) error {
			_, err := tx.ExecContext(w.t.Context(), `DELETE FROM route_groups WHERE name = 'exports'`)
			return err
		})
		w.refused("deleting the group", err, quotad.ErrInUse)
	})
}

func TestWithoutADatabaseNothingIsCalledUnknown(t *testing.T) {
	inEach(t, func(w *world) {
		ctx := w.t.Context()
		key := w.create(quotad.KeySpec{})
		if err := w.db.Close(); err != nil {
			w.t.Fatal(err)
		}
		_, err := w.keys.Find(ctx, []string{key.ID})
		w.refused("find", err, quotad.ErrStoreUnavailable)
		_, err = w.keys.Key(ctx, key.ID)
		w.refused("read", err, quotad.ErrStoreUnavailable)
		_, _, err = w.keys.Keys(ctx, "acme", database.Page{})
		w.refused("list", err, quotad.ErrStoreUnavailable)
		_, err = w.keys.Create(ctx, operator, "acme", quotad.KeySpec{})
		w.refused("create", err, quotad.ErrStoreUnavailable)
		_, err = w.keys.Revoke(ctx, operator, key.ID, nil)
		w.refused("revoke", err, quotad.ErrStoreUnavailable)
		err = w.keys.Touch(ctx, map[string]time.Time{key.ID: testenv.Noon})
		w.refused("touch", err, quotad.ErrStoreUnavailable)
	})
}

func TestTheClockIsTimeNowByDefault(t *testing.T) {
	inEach(t, func(w *world) {
		store := apikeys.NewStore(w.db, w.log(), apikeys.Options{})
		before := database.Time(time.Now())
		key, err := store.Create(w.t.Context(), operator, "acme", quotad.KeySpec{})
		if err != nil || key.CreatedAt.Before(before) || key.CreatedAt.After(time.Now()) {
			w.t.Errorf("created at %s, %v", key.CreatedAt, err)
		}
	})
}
