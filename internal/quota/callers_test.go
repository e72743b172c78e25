package quota

import (
	"context"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/secret"
)

func TestWhateverIsWrongWithAKeyTheAnswerIsTheSame(t *testing.T) {
	world(t, func(t *testing.T, n *node) {
		good := n.mustKey("acme")
		n.allow(by(good))

		unknown, _ := secret.Mint(secret.APIKey, n.Now())
		forged := secret.MintFor(secret.APIKey, good.ID)
		disabled := n.mustKey("acme", func(k *quotad.KeySpec) { k.Status = quotad.KeyDisabled })
		revoked := n.mustKey("acme")
		n.revoke(revoked.ID)
		soon := n.Now().Add(time.Minute)
		expired := n.mustKey("acme", func(k *quotad.KeySpec) { k.ExpiresAt = &soon })
		n.Advance(time.Minute)
		elsewhere := n.mustKey("acme", func(k *quotad.KeySpec) {
			k.AllowedCIDRs = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
		})
		n.mustTenant("late", "pro")
		suspended := n.mustKey("late")
		n.editTenant("late", func(s *quotad.TenantSpec) { s.Status = quotad.TenantSuspended })

		token := n.mustToken(quotad.RoleService, nil)
		for name, text := range map[string]string{
			"unknown": unknown.Reveal(), "another secret of its id": forged.Reveal(), "disabled": disabled.Secret,
			"revoked": revoked.Secret, "expired": expired.Secret, "address": elsewhere.Secret, "suspended": suspended.Secret,
			"malformed": good.Secret[:len(good.Secret)-1] + "!", "junk": "x", "long": strings.Repeat("k", 1<<20),
			"binary": "\x00\x80\xff\t", "a service token": token.Secret, "upper case": strings.ToUpper(good.Secret),
		} {
			for range 2 { // cold and warm
				d, e := n.fail(Call{APIKey: text, RouteGroup: "exports", Address: address("198.51.100.1")}, quotad.CodeInvalidAPIKey)
				if e.Detail != "" || e.RetryAfter != 0 || e.Fields != nil {
					t.Errorf("%s: the error tells more than its code: %+v", name, e)
				}
				if diff := cmp.Diff(quotad.Decision{}, d); diff != "" {
					t.Errorf("%s: the decision tells something: %s", name, diff)
				}
			}
		}
		n.fail(Call{RouteGroup: "exports"}, quotad.CodeAPIKeyRequired)
		n.fail(Call{RouteGroup: "exports", APIKey: good.Secret, ServiceToken: token.Secret, Tenant: "acme"}, quotad.CodeAmbiguousCredentials)
		n.allow(by(good))
		n.allow(Call{APIKey: elsewhere.Secret, RouteGroup: "exports", Address: address("::ffff:192.0.2.9")})
	})
}

func TestJunkReachesNeitherCacheNorDatabase(t *testing.T) {
	world(t, func(t *testing.T, n *node) {
		good := n.mustKey("acme")
		n.allow(by(good))
		queries := n.tap.queries()
		for i := range len(good.Secret) {
			text := []byte(good.Secret)
			text[i] ^= 1
			n.fail(Call{APIKey: string(text), RouteGroup: "exports"}, quotad.CodeInvalidAPIKey)
		}
		if n.tap.queries() != queries {
			t.Errorf("%d queries for junk", n.tap.queries()-queries)
		}
		if _, unknown := n.keys.Len(); unknown != 0 {
			t.Errorf("%d ids of junk are remembered", unknown)
		}
	})
}

func TestKeyExpiresAtTheVerySecondThoughItIsCached(t *testing.T) {
	world(t, func(t *testing.T, n *node) {
		at := n.Now().Add(20 * time.Second)
		key := n.mustKey("acme", func(k *quotad.KeySpec) { k.ExpiresAt = &at })
		n.allow(by(key))
		n.Advance(20*time.Second - 1)
		n.allow(by(key))
		queries := n.tap.queries()
		n.Advance(1)
		n.fail(by(key), quotad.CodeInvalidAPIKey)
		if n.tap.queries() != queries {
			t.Error("the database was asked")
		}
	})
}

func TestChangesTakeEffectAtOnceOnTheNodeThatMadeThem(t *testing.T) {
	world(t, func(t *testing.T, n *node) {
		key, revoked := n.mustKey("acme"), n.mustKey("acme")
		n.allow(by(key))
		n.allow(by(revoked))
		n.revoke(revoked.ID)
		n.fail(by(revoked), quotad.CodeInvalidAPIKey)

		n.editKey(key.ID, func(k *quotad.KeySpec) { k.Status = quotad.KeyDisabled })
		n.fail(by(key), quotad.CodeInvalidAPIKey)
		n.editKey(key.ID, func(k *quotad.KeySpec) { k.Status = quotad.KeyActive })
		n.allow(by(key))

		n.editKey(key.ID, func(k *quotad.KeySpec) { k.RouteGroups = []string{"default"} })
		n.fail(by(key), quotad.CodeRouteNotAllowed)
		n.editKey(key.ID, func(k *quotad.KeySpec) { k.RouteGroups = nil })
		n.allow(by(key))

		n.editTenant("acme", func(s *quotad.TenantSpec) { s.Status = quotad.TenantSuspended })
		n.fail(by(key), quotad.CodeInvalidAPIKey)
		n.editTenant("acme", func(s *quotad.TenantSpec) { s.Status = quotad.TenantActive })
		n.allow(by(key))

		n.mustTier(quotad.TierSpec{Name: "none", RateLimit: quotad.Units(0)})
		n.editTenant("acme", func(s *quotad.TenantSpec) { s.Tier = "none" })
		if d := n.deny(by(key)); d.Tier != "none" || d.RetryAfter != 0 {
			t.Errorf("on a tier of 0: %+v", d)
		}
		n.editTenant("acme", func(s *quotad.TenantSpec) { s.Tier = "pro" })
		if err := n.store.DeleteTier(context.Background(), operator, "none", nil); err != nil {
			t.Fatal(err)
		}
		n.allow(by(key))
	})
}

func TestKeyTriedBeforeItExistedWorksOnceItDoes(t *testing.T) {
	world(t, func(t *testing.T, n *node) {
		key := n.mustKey("acme")
		n.Resync() // so that the cache has not heard of it
		tried, id := secret.Mint(secret.APIKey, n.Now())
		n.fail(Call{APIKey: tried.Reveal(), RouteGroup: "exports"}, quotad.CodeInvalidAPIKey)
		n.Invalidate(quotad.ResourceKey, id)
		queries := n.tap.found.Load()
		n.fail(Call{APIKey: tried.Reveal(), RouteGroup: "exports"}, quotad.CodeInvalidAPIKey)
		if n.tap.found.Load() != queries+1 {
			t.Error("after a notice the id was not looked up again")
		}
		n.fail(Call{APIKey: tried.Reveal(), RouteGroup: "exports"}, quotad.CodeInvalidAPIKey)
		n.Advance(2 * time.Second)
		n.fail(Call{APIKey: tried.Reveal(), RouteGroup: "exports"}, quotad.CodeInvalidAPIKey)
		if n.tap.found.Load() != queries+2 {
			t.Error("an unknown id is remembered for other than 2 s")
		}
		n.allow(by(key))
	})
}

func TestRotatedSecretBelongsToTheSameKey(t *testing.T) {
	world(t, func(t *testing.T, n *node) {
		key := n.mustKey("acme")
		n.allow(costing(by(key), 7))
		renewed, err := n.apikey.Rotate(context.Background(), operator, key.ID, nil, 10*time.Second)
		must(t, 0, err)
		renewed.ID = key.ID
		if d := n.allow(by(renewed)); d.KeyID != key.ID || d.Limits[0].Remaining != 2 {
			t.Errorf("the new secret: %+v", d)
		}
		n.Advance(10*time.Second - 1)
		n.allow(by(key))
		n.Advance(1)
		n.fail(by(key), quotad.CodeInvalidAPIKey)
		n.allow(by(renewed))
	})
}

func TestTenantMadeAnewDoesNotInheritKeys(t *testing.T) {
	world(t, func(t *testing.T, n *node) {
		n.mustTenant("gone", "pro")
		key := n.mustKey("gone")
		n.allow(by(key))
		n.revoke(key.ID)
		n.fail(by(key), quotad.CodeInvalidAPIKey)
		// As a node sees it that has missed the notice of the key.
		active := n.mustKey("acme")
		n.allow(by(active))
		k, err := n.keys.Get(context.Background(), active.ID, n.Now())
		must(t, 0, err)
		was := k.standing.Load()
		earlier := &tenantEntry{tenant: was.tenant.tenant}
		earlier.tenant.CreatedAt = earlier.tenant.CreatedAt.Add(-time.Hour)
		k.standing.Store(&standing{key: was.key, tenant: earlier, tier: was.tier, groups: was.groups})
		queries := n.tap.found.Load()
		n.allow(by(active))
		if n.tap.found.Load() != queries+1 {
			t.Error("a key that was used with an earlier tenant of the name was not looked up again")
		}

		if err := n.store.DeleteTenant(context.Background(), operator, "gone", nil); err != nil {
			t.Fatal(err)
		}
		n.fail(by(key), quotad.CodeInvalidAPIKey)
	})
}

func TestServiceTokens(t *testing.T) {
	world(t, func(t *testing.T, n *node) {
		n.mustTier(quotad.TierSpec{Name: "wide", RateLimit: quotad.Units(3), Limits: []quotad.Limit{
			rate("user", "*", quotad.ScopeSubject, 2, 60), rate("address", "*", quotad.ScopeIP, 9, 60),
		}})
		n.mustTenant("shop", "wide")
		at := n.Now().Add(time.Hour)
		token := n.mustToken(quotad.RoleService, &at)
		call := Call{ServiceToken: token.Secret, Tenant: "shop", RouteGroup: "exports", Door: "check", Address: address("192.0.2.1")}
		as := func(subject string) Call { c := call; c.Subject = subject; return c }

		// Scope key counts by subject, and by tenant where none is named.
		d := n.allow(call)
		if d.Tenant != "shop" || d.KeyID != "" || d.Tier != "wide" || len(d.Limits) != 1 || d.Limits[0].Remaining != 2 {
			t.Errorf("without a subject: %+v", d)
		}
		if d := n.allow(as("ann")); len(d.Limits) != 2 || d.Limits[0].Remaining != 2 || d.Limits[1].Remaining != 1 {
			t.Errorf("with a subject: %+v", d)
		}
		n.allow(as("ann"))
		if d := n.deny(as("ann")); !d.Limits[0].Allowed || d.Limits[1].Allowed || d.Limits[1].Policy != "user" {
			t.Errorf("at the subject's limit: %+v", d)
		}
		n.allow(as("bob"))
		named := as("cid")
		named.IP = address("192.0.2.77")
		if d := n.allow(named); len(d.Limits) != 3 {
			t.Errorf("with an address named: %+v", d)
		}

		// Keys' route_groups are no concern of services; tenants are theirs to name.
		for _, tenant := range []string{"", "nobody", "No Name", strings.Repeat("x", 1000)} {
			wrong := call
			wrong.Tenant = tenant
			n.fail(wrong, quotad.CodeInvalidRequest)
		}
		n.editTenant("shop", func(s *quotad.TenantSpec) { s.Status = quotad.TenantSuspended })
		n.fail(call, quotad.CodeInvalidAPIKey)
		n.editTenant("shop", func(s *quotad.TenantSpec) { s.Status = quotad.TenantActive })
		n.allow(call)

		for _, role := range []quotad.Role{quotad.RoleOwner, quotad.RoleOperator, quotad.RoleViewer} {
			wrong := call
			wrong.ServiceToken = n.mustToken(role, nil).Secret
			n.fail(wrong, quotad.CodeInvalidAPIKey)
		}
		for _, text := range []string{"x", "qa_", n.mustKey("acme").Secret, secret.MintFor(secret.AdminToken, token.ID).Reveal()} {
			wrong := call
			wrong.ServiceToken = text
			n.fail(wrong, quotad.CodeInvalidAPIKey)
		}
		n.allow(as("eve"))
		queries := n.tap.tokens.Load()
		n.allow(as("dan"))
		if n.tap.tokens.Load() != queries {
			t.Error("a warm token was looked up")
		}
		n.Advance(time.Hour)
		n.fail(call, quotad.CodeInvalidAPIKey)

		second := n.mustToken(quotad.RoleService, nil)
		call.ServiceToken = second.Secret
		n.allow(call)
		if err := n.token.Delete(context.Background(), operator, second.ID, nil); err != nil {
			t.Fatal(err)
		}
		n.fail(call, quotad.CodeInvalidAPIKey)
	})
}
