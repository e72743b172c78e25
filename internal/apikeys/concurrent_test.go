package apikeys_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/database"
	"github.com/quotad/quotad/internal/testenv"
)

// trials is how often a race is run.
const trials = 50

func TestOfTwoEditsAtOnceNoneIsLost(t *testing.T) {
	inEach(t, func(w *world) {
		ctx := w.t.Context()
		for range trials {
			key := w.create(quotad.KeySpec{Name: "before"})
			errs := testenv.Together(
				func() error {
					_, err := w.keys.Update(ctx, operator, key.ID, nil, rename("after"))
					return err
				},
				func() error {
					_, err := w.keys.Update(ctx, operator, key.ID, nil, func(spec *quotad.KeySpec) error {
						spec.RateLimit, spec.RateWindow = quotad.Units(7), quotad.Units(60)
						return nil
					})
					return err
				},
			)
			if err := errors.Join(errs...); err != nil {
				w.t.Fatal(err)
			}
			got := w.key(key.ID)
			if got.Name != "after" || got.RateLimit == nil || *got.RateLimit != 7 || got.Version != 3 {
				w.t.Fatalf("one edit was lost: %+v", got)
			}
			e := w.events(key.ID)
			if len(e) != 3 || *e[2].before != *e[1].after || e[1].version != 2 || e[2].version != 3 {
				w.t.Fatalf("the events are no chain: %+v", e)
			}
		}
	})
}

func TestOfTwoEditsOfTheSameVersionOneIsRefused(t *testing.T) {
	inEach(t, func(w *world) {
		ctx := w.t.Context()
		for range trials {
			key := w.create(quotad.KeySpec{})
			edit := func(name string) func() error {
				return func() error {
					_, err := w.keys.Update(ctx, operator, key.ID, new(int64(1)), rename(name))
					return err
				}
			}
			errs := testenv.Together(edit("a"), edit("b"))
			winner := slices.Index(errs, nil)
			if winner < 0 || !errors.Is(errs[1-winner], quotad.ErrPreconditionFailed) {
				w.t.Fatalf("%v, want one success and one failed precondition", errs)
			}
			w.same("name", []string{"a", "b"}[winner], w.key(key.ID).Name)
			w.same("actions", []string{"key.created", "key.updated"}, w.actions(key.ID))
		}
	})
}

// Whichever comes first: in the end the key is revoked and no secret of it works.
func TestNothingUndoesARevoke(t *testing.T) {
	inEach(t, func(w *world) {
		ctx := w.t.Context()
		for range trials {
			key := w.create(quotad.KeySpec{Name: "before"})
			var rotated quotad.Key
			errs := testenv.Together(
				func() error {
					_, err := w.keys.Revoke(ctx, operator, key.ID, nil)
					return err
				},
				func() (err error) {
					rotated, err = w.keys.Rotate(ctx, operator, key.ID, nil, time.Hour)
					return err
				},
				func() error {
					_, err := w.keys.Update(ctx, operator, key.ID, nil, rename("after"))
					return err
				},
			)
			if errs[0] != nil {
				w.t.Fatalf("the revoke failed: %v", errs[0])
			}
			want := []string{"key.created"}
			for i, action := range []string{1: "key.rotated", 2: "key.updated"} {
				switch {
				case i == 0:
				case errs[i] == nil:
					want = append(want, action)
				case !errors.Is(errs[i], quotad.ErrConflict):
					w.t.Fatalf("%s: %v", action, errs[i])
				}
			}
			got := w.key(key.ID)
			if got.Status != quotad.KeyRevoked {
				w.t.Fatalf("the key is %s", got.Status)
			}
			if w.admits(key.Secret) || (rotated.Secret != "" && w.admits(rotated.Secret)) {
				w.t.Fatal("a secret of a revoked key works")
			}
			actions := w.actions(key.ID)
			if actions[len(actions)-1] != "key.revoked" || len(actions) != len(want)+1 || got.Version != int64(len(actions)) {
				w.t.Fatalf("version %d and actions %v, want those of %v and then the revoke", got.Version, actions, want)
			}
		}
	})
}

// rotateTwice rotates a key twice at once.
func (w *world) rotateTwice(id string, ifMatch *int64, grace time.Duration) (secrets [2]string, errs []error) {
	rotate := func(i int) func() error {
		return func() error {
			rotated, err := w.keys.Rotate(w.t.Context(), operator, id, ifMatch, grace)
			secrets[i] = rotated.Secret
			return err
		}
	}
	errs = testenv.Together(rotate(0), rotate(1))
	return secrets, errs
}

func TestOfTwoRotationsAtOnceBothSecretsWork(t *testing.T) {
	inEach(t, func(w *world) {
		for range trials {
			key := w.create(quotad.KeySpec{})
			secrets, errs := w.rotateTwice(key.ID, nil, time.Hour)
			if err := errors.Join(errs...); err != nil {
				w.t.Fatal(err)
			}
			for _, text := range []string{key.Secret, secrets[0], secrets[1]} {
				if !w.admits(text) {
					w.t.Fatal("a secret in its grace does not work")
				}
			}
			w.same("current secrets", 1, w.count(`SELECT count(*) FROM key_secrets WHERE key_id = $1 AND expires_at IS NULL`, key.ID))
			hint := w.key(key.ID).Hint
			last := strings.TrimPrefix(hint, "qk_…")
			if !strings.HasSuffix(secrets[0], last) && !strings.HasSuffix(secrets[1], last) {
				w.t.Fatalf("the hint %s is that of neither new secret", hint)
			}
		}
	})
}

// Of two rotations that are meant for one version the second would end, without grace,
// the secret that the first has just handed out.
func TestOfTwoRotationsForOneVersionOneIsMade(t *testing.T) {
	inEach(t, func(w *world) {
		for range trials {
			key := w.create(quotad.KeySpec{})
			secrets, errs := w.rotateTwice(key.ID, &key.Version, 0)
			winner := slices.Index(errs, nil)
			if winner < 0 || !errors.Is(errs[1-winner], quotad.ErrPreconditionFailed) {
				w.t.Fatalf("%v, want one success and one failed precondition", errs)
			}
			if !w.admits(secrets[winner]) {
				w.t.Fatal("the secret that was handed out does not work")
			}
			w.same("actions", []string{"key.created", "key.rotated"}, w.actions(key.ID))
		}
	})
}

func TestManyAtOnceOnManyKeys(t *testing.T) {
	inEach(t, func(w *world) {
		ctx := w.t.Context()
		var ids []string
		for range 4 {
			ids = append(ids, w.create(quotad.KeySpec{}).ID)
		}
		used := map[string]time.Time{}
		for i, id := range ids {
			used[id] = testenv.Noon.Add(time.Duration(i) * time.Minute)
		}
		var all []func() error
		// again is a caller who does something on each key in turn, twice.
		again := func(f func(i int, id string) error) {
			caller := len(all)
			all = append(all, func() error {
				var errs []error
				for i := range 2 * len(ids) {
					at := (caller + i) % len(ids)
					errs = append(errs, f(100*caller+i, ids[at]))
				}
				return errors.Join(errs...)
			})
		}
		for range 2 {
			again(func(i int, id string) error {
				_, err := w.keys.Update(ctx, operator, id, nil, rename(fmt.Sprint("name", i)))
				return err
			})
			again(func(int, string) error { return w.keys.Touch(ctx, used) })
			again(func(int, string) error {
				_, err := w.keys.Create(ctx, operator, "acme", quotad.KeySpec{RouteGroups: []string{"exports"}})
				return err
			})
			again(func(int, string) error {
				_, err := w.keys.Find(ctx, ids)
				return err
			})
		}
		if err := errors.Join(testenv.Together(all...)...); err != nil {
			w.t.Fatal(err)
		}
		for i, id := range ids {
			key := w.key(id)
			if key.Version != 5 || key.LastUsedAt == nil || !key.LastUsedAt.Equal(testenv.Noon.Add(time.Duration(i)*time.Minute)) {
				w.t.Errorf("key %d: version %d, last used %v", i, key.Version, key.LastUsedAt)
			}
		}
	})
}

// In Postgres a create sees what another transaction has deleted and not yet
// committed; the foreign keys decide.
func TestWhatGoesDuringACreateIsNamed(t *testing.T) {
	inEach(t, func(w *world) {
		for deleted, want := range map[string]error{
			`DELETE FROM tenants WHERE id = 'globex'`:         quotad.ErrNotFound,
			`DELETE FROM route_groups WHERE name = 'reports'`: quotad.ErrInvalidFields,
		} {
			ctx := w.t.Context()
			done := make(chan error, 1)
			err := w.db.InTx(ctx, func(tx *database.Tx) error {
				if _, err := tx.ExecContext(ctx, deleted); err != nil {
					return err
				}
				tenant, groups := "globex", []string(nil)
				if want == quotad.ErrInvalidFields {
					tenant, groups = "acme", []string{"exports", "reports"}
				}
				go func() {
					_, err := w.keys.Create(ctx, operator, tenant, quotad.KeySpec{RouteGroups: groups})
					done <- err
				}()
				if w.db.Engine() == database.Postgres {
					eventually(w.t, func() []int {
						return make([]int, w.count(`SELECT count(*) FROM pg_stat_activity
							WHERE datname = current_database() AND wait_event_type = 'Lock'`))
					})
				}
				return nil
			})
			if err != nil {
				w.t.Fatal(err)
			}
			w.refused(deleted, <-done, want)
		}
		w.same("keys", 0, w.count(`SELECT count(*) FROM keys`))
	})
}

func TestAKeyCanListAsManyGroupsAsAreAllowed(t *testing.T) {
	inEach(t, func(w *world) {
		groups := names(quotad.MaxListed)
		for _, g := range groups {
			w.exec(`INSERT INTO route_groups (name, patterns, cost, auth, version, created_at, updated_at) VALUES ($1, '[]', 1, 'key', 1, $2, $2)`, g, testenv.Noon)
		}
		key := w.create(quotad.KeySpec{RouteGroups: groups})
		w.same("groups", groups, w.key(key.ID).RouteGroups)
	})
}
