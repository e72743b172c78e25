package quota

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/quotad/quotad"
)

// told is what Limits says, as "policy=remaining" by group.
func (n *node) told(call Call) map[string]string {
	n.t.Helper()
	decisions, err := n.Limits(context.Background(), call)
	must(n.t, 0, err)
	told := map[string]string{}
	for _, d := range decisions {
		text := ""
		for _, l := range d.Limits {
			text += fmt.Sprintf("%s=%d ", l.Policy, l.Remaining)
		}
		told[d.RouteGroup] = text
		if d.Cost != 0 || !d.Allowed {
			n.t.Errorf("%+v", d)
		}
	}
	return told
}

func TestLimitsTellWithoutCharging(t *testing.T) {
	world(t, func(t *testing.T, n *node) {
		n.mustTier(quotad.TierSpec{Name: "t", RateLimit: quotad.Units(10), Limits: []quotad.Limit{
			rate("company", "*", quotad.ScopeTenant, 100, 60), rate("exports", "exports", quotad.ScopeKey, 3, 60),
			rate("user", "*", quotad.ScopeSubject, 50, 60),
		}})
		n.mustTenant("told", "t")
		n.mustGroup(quotad.RouteGroupSpec{Name: "login", Auth: quotad.AuthNone, Limits: []quotad.Limit{rate("tries", "login", quotad.ScopeIP, 5, 60)}})
		n.mustGroup(quotad.RouteGroupSpec{Name: "uploads", Limits: []quotad.Limit{rate("own", "uploads", quotad.ScopeTenant, 4, 60)}})
		key := n.mustKey("told")
		call := by(key)
		call.Subject = "ann"
		n.allow(call)
		n.allow(Call{APIKey: key.Secret, RouteGroup: "default"})

		want := map[string]string{
			"default": "base=9 company=98 ",
			"exports": "company=98 exports=2 ",
			"uploads": "base=10 company=98 own=4 ",
		}
		all := Call{APIKey: key.Secret}
		for range 2 {
			if diff := cmp.Diff(want, n.told(all)); diff != "" {
				t.Error(diff)
			}
		}
		all.Subject, all.RouteGroup = "ann", "exports"
		if diff := cmp.Diff(map[string]string{"exports": "company=98 exports=2 user=49 "}, n.told(all)); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff(map[string]string{"login": "tries=5 "}, n.told(Call{RouteGroup: "login", Address: address("192.0.2.1")})); diff != "" {
			t.Error(diff)
		}

		n.editKey(key.ID, func(k *quotad.KeySpec) { k.RouteGroups = []string{"uploads", "login"} })
		if diff := cmp.Diff(map[string]string{"uploads": want["uploads"]}, n.told(Call{APIKey: key.Secret})); diff != "" {
			t.Error(diff)
		}
		for _, c := range []struct {
			call Call
			code quotad.Code
		}{
			{Call{}, quotad.CodeAPIKeyRequired},
			{Call{APIKey: "junk"}, quotad.CodeInvalidAPIKey},
			{Call{APIKey: key.Secret, RouteGroup: "exports"}, quotad.CodeRouteNotAllowed},
			{Call{APIKey: key.Secret, RouteGroup: "nothing"}, quotad.CodeInvalidRequest},
			{Call{RouteGroup: "login"}, quotad.CodeInvalidRequest},
		} {
			if d, err := n.Limits(t.Context(), c.call); !errors.Is(err, &quotad.Error{Code: c.code}) || d != nil {
				t.Errorf("%+v: %+v, %v; want %s", c.call, d, err, c.code)
			}
		}
	})
}

func TestLimitsOfManyGroups(t *testing.T) {
	world(t, func(t *testing.T, n *node) {
		n.editTier("pro", func(s *quotad.TierSpec) {
			s.Limits = []quotad.Limit{rate("a", "*", quotad.ScopeKey, 50, 60), rate("b", "*", quotad.ScopeTenant, 60, 60)}
		})
		for i := range 70 { // with the base limit of each: more than one step reads
			n.mustGroup(quotad.RouteGroupSpec{Name: fmt.Sprintf("g%02d", i)})
		}
		key := n.mustKey("acme")
		n.allow(costing(Call{APIKey: key.Secret, RouteGroup: "g69"}, 3))
		told := n.told(Call{APIKey: key.Secret})
		if len(told) != 72 || told["g00"] != "base=10 a=47 b=57 " || told["g69"] != "base=7 a=47 b=57 " {
			t.Errorf("%d groups: %v", len(told), told)
		}
	})
}

func TestLimitsOfAServicesTenant(t *testing.T) {
	world(t, func(t *testing.T, n *node) {
		token := n.mustToken(quotad.RoleService, nil)
		call := Call{ServiceToken: token.Secret, Tenant: "acme", RouteGroup: "exports"}
		n.allow(call)
		call.RouteGroup = ""
		if diff := cmp.Diff(map[string]string{"default": "base=10 ", "exports": "base=9 "}, n.told(call)); diff != "" {
			t.Error(diff)
		}
	})
}
