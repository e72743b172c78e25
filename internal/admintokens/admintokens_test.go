package admintokens_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/admintokens"
	"github.com/quotad/quotad/internal/database"
	"github.com/quotad/quotad/internal/secret"
	"github.com/quotad/quotad/internal/testenv"
)

func TestATokenIsStoredAsItWasSaid(t *testing.T) {
	inEach(t, func(w *world) {
		ctx := w.t.Context()
		for _, role := range quotad.Roles {
			spec := quotad.AdminTokenSpec{Name: "naïve " + string(role), Role: role}
			if role == quotad.RoleViewer {
				spec.ExpiresAt = new(testenv.Noon.Add(time.Hour).In(time.FixedZone("", 3600)).Add(999))
			}
			token := w.create(spec)
			if id, ok := secret.Parse(secret.AdminToken, token.Secret); !ok || id != token.ID {
				w.t.Errorf("the secret parses as %q, %v; want %q", id, ok, token.ID)
			}
			want := quotad.AdminToken{
				ID: token.ID, AdminTokenSpec: spec, Hint: "qa_…" + token.Secret[len(token.Secret)-4:],
				Secret: token.Secret, Version: 1, CreatedAt: testenv.Noon,
			}
			if spec.ExpiresAt != nil {
				want.ExpiresAt = new(testenv.Noon.Add(time.Hour))
			}
			w.same("the token", want, token)
			want.Secret = ""
			read, err := w.tokens.Token(ctx, token.ID)
			if err != nil {
				w.t.Fatal(err)
			}
			w.same("the token read again", want, read)
			found, err := w.tokens.Find(ctx, token.Secret)
			if err != nil {
				w.t.Fatal(err)
			}
			w.same("the token found by its text", want, found.Token)
			w.same("actions", []string{"admin_token.created"}, w.actions(token.ID))
		}
	})
}

func TestAllFaultsAreNamedAtOnce(t *testing.T) {
	inEach(t, func(w *world) {
		_, err := w.tokens.Create(w.t.Context(), operator, quotad.AdminTokenSpec{Name: "a\nb", Role: "root", ExpiresAt: new(testenv.Noon)})
		w.faulty("a bad token", err, "name", "role", "expires_at")
		_, err = w.tokens.Create(w.t.Context(), operator, quotad.AdminTokenSpec{ExpiresAt: new(time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC))})
		w.faulty("an empty token", err, "name", "role", "expires_at")
		w.same("tokens", 0, w.count(`SELECT count(*) FROM admin_tokens`))
		w.same("events", 0, w.count(`SELECT count(*) FROM events`))
	})
}

func TestFindRefusesEverythingElse(t *testing.T) {
	inEach(t, func(w *world) {
		ctx := w.t.Context()
		w.bootstrap("a-text-that-is-no-token")
		token := w.create(quotad.AdminTokenSpec{Name: "ops", Role: quotad.RoleOperator})
		stranger, _ := secret.Mint(secret.AdminToken, testenv.Noon)
		key, _ := secret.Mint(secret.APIKey, testenv.Noon)
		for _, text := range []string{
			"", token.ID, stranger.Reveal(), key.Reveal(), token.Secret + " ", token.Secret[1:], strings.ToUpper(token.Secret),
			secret.MintFor(secret.AdminToken, token.ID).Reveal(), "a-text-that-is-no-tokem", "A-text-that-is-no-token",
			"bootstrap", strings.Repeat("bootstrap", 2), "a\x00b", strings.Repeat("\xff", 32), strings.Repeat("x", 1<<20),
			"' OR 1=1 -- aaaaaaaaaaaaaa",
		} {
			_, err := w.tokens.Find(ctx, text)
			w.refused(fmt.Sprintf("%.40q", text), err, quotad.ErrNotFound)
			if err != nil && text != "" && strings.Contains(err.Error(), text) {
				w.t.Errorf("the error repeats the text: %v", err)
			}
		}
		for _, id := range []string{"", "nobody", stranger.Reveal()[3:19], "a\x00b", "\xff", strings.Repeat("a", 1<<20)} {
			_, err := w.tokens.Token(ctx, id)
			w.refused("read", err, quotad.ErrNotFound)
			w.refused("delete", w.tokens.Delete(ctx, operator, id, nil), quotad.ErrNotFound)
		}
	})
}

func TestManyTextsAreFoundTogether(t *testing.T) {
	inEach(t, func(w *world) {
		ctx := w.t.Context()
		given := "a-text-that-was-given"
		w.bootstrap(given)
		texts, want := []string{given, "junk", "", strings.Repeat("x", 1<<20)}, map[string]string{given: admintokens.BootstrapID}
		for i := range 70 { // more than one query takes
			stranger, _ := secret.Mint(secret.AdminToken, testenv.Noon)
			texts = append(texts, stranger.Reveal())
			if i%10 == 0 {
				token := w.create(quotad.AdminTokenSpec{Name: "svc", Role: quotad.RoleService})
				texts = append(texts, token.Secret, secret.MintFor(secret.AdminToken, token.ID).Reveal())
				want[token.Secret] = token.ID
			}
		}
		found, err := w.tokens.Presented(ctx, texts)
		if err != nil {
			w.t.Fatal(err)
		}
		got := map[string]string{}
		for text, token := range found {
			got[text] = token.ID
		}
		w.same("the tokens by their texts", want, got)
		for _, none := range [][]string{nil, {"junk"}} {
			found, err := w.tokens.Presented(ctx, none)
			if err != nil || len(found) > 0 {
				w.t.Errorf("%q: %d tokens, %v", none, len(found), err)
			}
		}
	})
}

func TestATokenStopsAtItsExpiry(t *testing.T) {
	inEach(t, func(w *world) {
		token := w.create(quotad.AdminTokenSpec{Name: "ops", Role: quotad.RoleOperator, ExpiresAt: new(testenv.Noon.Add(time.Hour))})
		found, err := w.tokens.Find(w.t.Context(), token.Secret)
		if err != nil {
			w.t.Fatal(err)
		}
		if !found.Admits(token.Secret, testenv.Noon.Add(time.Hour-1)) || found.Admits(token.Secret, testenv.Noon.Add(time.Hour)) {
			w.t.Error("a token must work until the very instant of its expiry")
		}
		if found.Admits(token.Secret+"x", testenv.Noon) || found.Admits("", testenv.Noon) || (admintokens.Stored{}).Admits("", testenv.Noon) {
			w.t.Error("another text is admitted")
		}
	})
}

func TestADeletedTokenIsGone(t *testing.T) {
	inEach(t, func(w *world) {
		ctx := w.t.Context()
		token := w.create(quotad.AdminTokenSpec{Name: "svc", Role: quotad.RoleService})
		w.refused("an old ifMatch", w.tokens.Delete(ctx, operator, token.ID, new(int64(2))), quotad.ErrPreconditionFailed)
		w.same("actions", []string{"admin_token.created"}, w.actions(token.ID))
		if err := w.tokens.Delete(ctx, operator, token.ID, new(int64(1))); err != nil {
			w.t.Fatal(err)
		}
		w.refused("again", w.tokens.Delete(ctx, operator, token.ID, nil), quotad.ErrNotFound)
		_, err := w.tokens.Find(ctx, token.Secret)
		w.refused("find", err, quotad.ErrNotFound)
		w.same("actions", []string{"admin_token.created", "admin_token.deleted"}, w.actions(token.ID))
		w.same("the events' sides", 2, w.count(`SELECT count(*) FROM events WHERE actor_id = $1 AND
			(action = 'admin_token.created' AND before IS NULL AND after IS NOT NULL OR
			action = 'admin_token.deleted' AND before IS NOT NULL AND after IS NULL)`, operator.ID))
	})
}

func TestTheLastOwnerStays(t *testing.T) {
	inEach(t, func(w *world) {
		ctx := w.t.Context()
		gone := w.create(quotad.AdminTokenSpec{Name: "gone", Role: quotad.RoleOwner, ExpiresAt: new(testenv.Noon.Add(time.Second))})
		w.clock.Advance(time.Second)
		if err := w.tokens.Delete(ctx, operator, gone.ID, nil); err != nil {
			w.t.Errorf("an expired owner alone: %v", err)
		}
		first := w.create(quotad.AdminTokenSpec{Name: "first", Role: quotad.RoleOwner})
		brief := w.create(quotad.AdminTokenSpec{Name: "brief", Role: quotad.RoleOwner, ExpiresAt: new(testenv.Noon.Add(time.Hour))})
		w.create(quotad.AdminTokenSpec{Name: "ops", Role: quotad.RoleOperator})
		w.clock.Advance(time.Hour)
		w.refused("beside an expired owner", w.tokens.Delete(ctx, operator, first.ID, nil), quotad.ErrInUse)
		if err := w.tokens.Delete(ctx, operator, brief.ID, nil); err != nil {
			w.t.Errorf("an expired owner: %v", err)
		}
		second := w.create(quotad.AdminTokenSpec{Name: "second", Role: quotad.RoleOwner})
		if err := w.tokens.Delete(ctx, operator, first.ID, nil); err != nil {
			w.t.Errorf("beside another owner: %v", err)
		}
		w.refused("the last", w.tokens.Delete(ctx, operator, second.ID, nil), quotad.ErrInUse)
		w.same("actions", []string{"admin_token.created"}, w.actions(second.ID))
	})
}

func TestTwoDeletesAtOnceLeaveAnOwner(t *testing.T) {
	inEach(t, func(w *world) {
		ctx := w.t.Context()
		last := w.create(quotad.AdminTokenSpec{Name: "owner", Role: quotad.RoleOwner})
		for range 50 {
			other := w.create(quotad.AdminTokenSpec{Name: "owner", Role: quotad.RoleOwner})
			pair := []string{last.ID, other.ID}
			errs := testenv.Together(
				func() error { return w.tokens.Delete(ctx, operator, pair[0], nil) },
				func() error { return w.tokens.Delete(ctx, operator, pair[1], nil) },
			)
			winner := slices.Index(errs, nil)
			if winner < 0 || !errors.Is(errs[1-winner], quotad.ErrInUse) {
				w.t.Fatalf("%v, want one success and one refusal", errs)
			}
			w.same("owners", 1, w.count(`SELECT count(*) FROM admin_tokens`))
			last.ID = pair[1-winner]
		}
	})
}

func TestNoPageSkipsOrRepeatsAToken(t *testing.T) {
	inEach(t, func(w *world) {
		ctx := w.t.Context()
		w.bootstrap("a-given-text-of-some-length")
		want := []string{}
		for range 24 {
			want = append(want, w.create(quotad.AdminTokenSpec{Name: "svc", Role: quotad.RoleService}).ID)
		}
		slices.Sort(want)
		want = append(want, admintokens.BootstrapID)
		var got []string
		page := database.Page{Limit: 5}
		for {
			tokens, next, err := w.tokens.Tokens(ctx, page)
			if err != nil {
				w.t.Fatal(err)
			}
			for _, token := range tokens {
				got = append(got, token.ID)
			}
			if next == "" {
				break
			}
			page.After = next
		}
		w.same("tokens", want, got)
		for _, page := range []database.Page{{Limit: -1}, {Limit: 501}, {After: "x"}} {
			_, _, err := w.tokens.Tokens(ctx, page)
			w.refused("a bad page", err, &quotad.Error{Code: quotad.CodeInvalidRequest})
		}
	})
}

func TestNoTokenIsStoredOrShownAgain(t *testing.T) {
	inEach(t, func(w *world) {
		ctx := w.t.Context()
		texts := []string{w.bootstrap("")}
		given := "the-operators-own-text"
		w.bootstrap(given)
		texts = append(texts, given)
		for range 10 {
			token := w.create(quotad.AdminTokenSpec{Name: "svc", Role: quotad.RoleService})
			texts = append(texts, token.Secret)
			if err := w.tokens.Delete(ctx, operator, token.ID, nil); err != nil {
				w.t.Fatal(err)
			}
			token = w.create(quotad.AdminTokenSpec{Name: "svc", Role: quotad.RoleService})
			texts = append(texts, token.Secret)
		}
		tokens, _, err := w.tokens.Tokens(ctx, database.Page{})
		if err != nil || len(tokens) != 11 {
			w.t.Fatalf("%d tokens, %v", len(tokens), err)
		}
		raw, err := json.Marshal(tokens)
		if err != nil {
			w.t.Fatal(err)
		}
		found, err := w.tokens.Find(ctx, given)
		if err != nil {
			w.t.Fatal(err)
		}
		shown := string(raw) + fmt.Sprintf("%v %+v %#v", found, found, found)
		stored := w.dump()
		if !bytes.Contains(stored, []byte(tokens[0].Hint)) || !bytes.Contains(stored, []byte("admin_token.rotated")) {
			w.t.Fatal("not everything was looked at")
		}
		for _, text := range texts {
			part := text
			if text != given {
				part = text[20:52]
			}
			if strings.Contains(shown, part) || bytes.Contains(stored, []byte(part)) {
				w.t.Error("the text of a token is in the database or was shown again")
			}
		}
		if hint := found.Token.Hint; hint != "…" {
			w.t.Errorf("the hint %q tells of a text that a human chose", hint)
		}
	})
}
