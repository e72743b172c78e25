package admintokens_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/admintokens"
	"github.com/quotad/quotad/internal/database"
	"github.com/quotad/quotad/internal/database/databasetest"
	"github.com/quotad/quotad/internal/events"
	"github.com/quotad/quotad/internal/secret"
	"github.com/quotad/quotad/internal/testenv"
	"github.com/quotad/quotad/migrations"
)

func TestTheFirstStartMintsOneOwner(t *testing.T) {
	inEach(t, func(w *world) {
		minted := w.bootstrap("")
		if _, ok := secret.Parse(secret.AdminToken, minted); !ok {
			w.t.Fatalf("minted %d characters that do not parse", len(minted))
		}
		w.isOwner(minted)
		if again := w.bootstrap(""); again != "" {
			w.t.Error("the second start minted another token")
		}
		w.isOwner(minted)
		w.same("actions", []string{"admin_token.created"}, w.actions(admintokens.BootstrapID))

		// A token of any kind ends first starts.
		w.create(quotad.AdminTokenSpec{Name: "owner", Role: quotad.RoleOwner})
		if err := w.tokens.Delete(w.t.Context(), operator, admintokens.BootstrapID, nil); err != nil {
			w.t.Fatal(err)
		}
		if again := w.bootstrap(""); again != "" {
			w.t.Error("a start with tokens minted one")
		}
	})
}

func TestAGivenTokenReplacesTheOneBefore(t *testing.T) {
	inEach(t, func(w *world) {
		minted := w.bootstrap("")
		for i, given := range []string{"correct-horse-battery", "qa_not_really_minted", strings.Repeat("~", admintokens.MaxGiven), "correct-horse-battery"} {
			if got := w.bootstrap(given); got != "" {
				w.t.Errorf("%q was given and yet a token minted", given)
			}
			w.bootstrap(given) // the next start, or another node
			w.isOwner(given)
			w.same("events", i+2, len(w.actions(admintokens.BootstrapID)))
		}
		w.isNobody(minted)
		w.isNobody("qa_not_really_minted")
		// No longer given, it goes on working.
		w.bootstrap("")
		w.isOwner("correct-horse-battery")
		w.same("tokens", 1, w.count(`SELECT count(*) FROM admin_tokens`))
		token, err := w.tokens.Token(w.t.Context(), admintokens.BootstrapID)
		if err != nil || token.Version != 5 {
			w.t.Errorf("version %d, %v; want 5", token.Version, err)
		}
	})
}

func TestAGivenTokenMayHaveTheMintedForm(t *testing.T) {
	inEach(t, func(w *world) {
		other, _ := secret.Mint(secret.AdminToken, testenv.Noon)
		w.bootstrap(other.Reveal())
		w.isOwner(other.Reveal())
	})
}

func TestAGivenTokenMayBeThatOfAnOwner(t *testing.T) {
	inEach(t, func(w *world) {
		ctx := w.t.Context()
		owner := w.create(quotad.AdminTokenSpec{Name: "owner", Role: quotad.RoleOwner})
		w.bootstrap(owner.Secret)
		w.same("tokens", 1, w.count(`SELECT count(*) FROM admin_tokens`))
		w.bootstrap("correct-horse-battery")
		w.bootstrap(owner.Secret)
		w.isNobody("correct-horse-battery")
		w.isOwner(owner.Secret)
		w.same("actions", []string{"admin_token.created", "admin_token.deleted"}, w.actions(admintokens.BootstrapID))

		viewer := w.create(quotad.AdminTokenSpec{Name: "viewer", Role: quotad.RoleViewer})
		brief := w.create(quotad.AdminTokenSpec{Name: "brief", Role: quotad.RoleOwner, ExpiresAt: new(testenv.Noon.Add(1000))})
		w.clock.Advance(time.Hour)
		for _, text := range []string{viewer.Secret, brief.Secret} {
			_, err := w.tokens.EnsureBootstrap(ctx, text)
			w.faulty("that of no working owner", err, "admin_token")
		}
	})
}

func TestAGivenTokenThatCannotWorkIsRefused(t *testing.T) {
	inEach(t, func(w *world) {
		w.bootstrap("correct-horse-battery")
		for _, given := range []string{
			"short", strings.Repeat("x", admintokens.MinGiven-1), strings.Repeat("x", admintokens.MaxGiven+1),
			"with a space in the middle", "correct-horse-battery\n", "pässwort-das-lang-ist", "nul\x00nul\x00nul\x00nul\x00nul",
		} {
			_, err := w.tokens.EnsureBootstrap(w.t.Context(), given)
			w.faulty(given, err, "admin_token")
			if err != nil && strings.Contains(err.Error(), given) {
				w.t.Errorf("the error repeats the text: %v", err)
			}
		}
		w.isOwner("correct-horse-battery")
	})
}

// Five nodes start at once on one database, each with connections of its own.
func TestOfFiveNodesOneMints(t *testing.T) {
	t.Parallel()
	for engine, address := range map[string]func(t *testing.T) string{
		"postgres": func(t *testing.T) string { return databasetest.PostgresURL(t) },
		"sqlite": func(t *testing.T) string {
			url := "sqlite://" + filepath.Join(t.TempDir(), "quotad.db")
			if err := migrations.Up(t.Context(), url); err != nil {
				t.Fatal(err)
			}
			return url
		},
	} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			for range 3 {
				url := address(t)
				var starts []func() error
				var minted [5]string
				var nodes []*world
				for i := range minted {
					db := databasetest.Open(t, url)
					log := events.NewLog(db, events.Options{})
					w := &world{t: t, db: db, tokens: admintokens.NewStore(db, log, admintokens.Options{})}
					nodes = append(nodes, w)
					starts = append(starts, func() (err error) {
						minted[i], err = w.tokens.EnsureBootstrap(t.Context(), "")
						return err
					})
				}
				if err := errors.Join(testenv.Together(starts...)...); err != nil {
					t.Fatal(err)
				}
				all := strings.Join(minted[:], "")
				if _, ok := secret.Parse(secret.AdminToken, all); !ok {
					t.Errorf("%d characters were minted, want one token", len(all))
				}
				for _, w := range nodes {
					w.isOwner(all)
				}
				nodes[0].same("tokens", 1, nodes[0].count(`SELECT count(*) FROM admin_tokens`))
				nodes[0].same("events", 1, nodes[0].count(`SELECT count(*) FROM events`))

				// The same with a text that all are given.
				for i, w := range nodes {
					starts[i] = func() error {
						_, err := w.tokens.EnsureBootstrap(t.Context(), "correct-horse-battery")
						return err
					}
				}
				if err := errors.Join(testenv.Together(starts...)...); err != nil {
					t.Fatal(err)
				}
				nodes[4].isOwner("correct-horse-battery")
				nodes[4].isNobody(all)
				nodes[0].same("events", 2, nodes[0].count(`SELECT count(*) FROM events`))
			}
		})
	}
}

func TestWithoutADatabaseNobodyIsCalledUnknown(t *testing.T) {
	inEach(t, func(w *world) {
		minted := w.bootstrap("")
		if err := w.db.Close(); err != nil {
			w.t.Fatal(err)
		}
		_, err := w.tokens.Find(w.t.Context(), minted)
		w.refused("find", err, quotad.ErrStoreUnavailable)
		_, err = w.tokens.EnsureBootstrap(w.t.Context(), "")
		w.refused("bootstrap", err, quotad.ErrStoreUnavailable)
		_, _, err = w.tokens.Tokens(w.t.Context(), database.Page{})
		w.refused("list", err, quotad.ErrStoreUnavailable)
		// Junk needs no database to be told.
		_, err = w.tokens.Find(w.t.Context(), "junk")
		w.refused("junk", err, quotad.ErrNotFound)
	})
}
