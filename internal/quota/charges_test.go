package quota

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/quotad/quotad"
)

// The narrow limit refuses: the broad one is not charged. Then the other way round.
func TestAllLimitsAreChargedOrNone(t *testing.T) {
	world(t, func(t *testing.T, n *node) {
		n.mustTier(quotad.TierSpec{Name: "layers", RateLimit: nil, Limits: []quotad.Limit{rate("key", "*", quotad.ScopeKey, 100, 60)}})
		n.mustTenant("layered", "layers")
		n.mustGroup(quotad.RouteGroupSpec{Name: "narrow", Limits: []quotad.Limit{rate("group", "narrow", quotad.ScopeKey, 5, 60)}})
		n.mustGroup(quotad.RouteGroupSpec{Name: "roomy", Limits: []quotad.Limit{rate("group", "roomy", quotad.ScopeKey, 500, 60)}})
		key := n.mustKey("layered")
		spend := func(group string, calls int) (allowed int) {
			for range calls {
				if n.decide(Call{APIKey: key.Secret, RouteGroup: group}).Allowed {
					allowed++
				}
			}
			return allowed
		}
		if got := spend("narrow", 55); got != 5 {
			t.Errorf("%d calls to the narrow group passed, want 5", got)
		}
		if got := spend("default", 96); got != 95 {
			t.Errorf("%d calls elsewhere passed, want 95", got)
		}
		if got := spend("roomy", 10); got != 0 {
			t.Errorf("%d calls passed beyond the key's limit", got)
		}
		if left := n.remaining(Call{APIKey: key.Secret, RouteGroup: "roomy"}); left["group"] != 500 {
			t.Errorf("refused calls were charged to the group's limit: %v", left)
		}
		if d := n.deny(Call{APIKey: key.Secret, RouteGroup: "roomy"}); len(d.Limits) != 2 || d.Limits[0].Allowed || !d.Limits[1].Allowed {
			t.Errorf("which of the limits refuses: %+v", d.Limits)
		}
	})
}

func TestSeveralLimitsOnOneKey(t *testing.T) {
	world(t, func(t *testing.T, n *node) {
		n.mustTier(quotad.TierSpec{Name: "three", RateLimit: quotad.Units(20), Limits: []quotad.Limit{
			rate("ten-minutes", "*", quotad.ScopeKey, 200, 600), rate("day", "*", quotad.ScopeTenant, 5000, 86400),
		}})
		n.mustTenant("triple", "three")
		key, other := n.mustKey("triple"), n.mustKey("triple")
		n.allow(by(key))
		if diff := cmp.Diff(map[string]int64{"base": 19, "ten-minutes": 199, "day": 4999}, n.remaining(by(key))); diff != "" {
			t.Error(diff)
		}
		n.allow(Call{APIKey: key.Secret, RouteGroup: "default"})
		if diff := cmp.Diff(map[string]int64{"base": 19, "ten-minutes": 198, "day": 4998}, n.remaining(by(key))); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff(map[string]int64{"base": 20, "ten-minutes": 200, "day": 4998}, n.remaining(by(other))); diff != "" {
			t.Error(diff)
		}
	})
}

func TestGroupsCountApart(t *testing.T) {
	world(t, func(t *testing.T, n *node) {
		n.mustTier(quotad.TierSpec{Name: "apart", RateLimit: nil, Limits: []quotad.Limit{
			rate("a", "exports", quotad.ScopeKey, 10, 2592000), rate("b", "default", quotad.ScopeKey, 5, 3600),
		}})
		n.mustTenant("two", "apart")
		key := n.mustKey("two")
		a := n.allow(by(key))
		b := n.allow(Call{APIKey: key.Secret, RouteGroup: "default"})
		if a.Limits[0].Remaining != 9 || b.Limits[0].Remaining != 4 {
			t.Errorf("%+v, %+v", a.Limits, b.Limits)
		}
	})
}

func TestTenantsWhoseNamesLookAlikeShareNothing(t *testing.T) {
	world(t, func(t *testing.T, n *node) {
		n.mustTier(quotad.TierSpec{Name: "one", RateLimit: quotad.Units(1), Limits: []quotad.Limit{rate("all", "*", quotad.ScopeTenant, 1, 60)}})
		n.mustGroup(quotad.RouteGroupSpec{Name: "b.c"})
		n.mustGroup(quotad.RouteGroupSpec{Name: "c"})
		n.mustTenant("a", "one")
		n.mustTenant("a.b", "one")
		first, second := n.mustKey("a"), n.mustKey("a.b")
		n.allow(Call{APIKey: first.Secret, RouteGroup: "b.c"})
		n.deny(Call{APIKey: first.Secret, RouteGroup: "b.c"})
		n.allow(Call{APIKey: second.Secret, RouteGroup: "c"})

		// Subjects may be any text.
		n.mustTier(quotad.TierSpec{Name: "subjects", Limits: []quotad.Limit{rate("user", "*", quotad.ScopeSubject, 1, 60)}})
		n.mustTenant("s", "subjects")
		key := n.mustKey("s")
		for _, subject := range []string{"a", "b", "a:b", "a|b", "a/b", "a__1", "a%3Ab", "{a}", "a b", "a'b", "A", "é", "e\u0301", "日本語", key.ID, "s"} {
			call := by(key)
			call.Subject = subject
			n.allow(call)
			n.deny(call)
		}
		n.mustTenant("t", "subjects")
		other := by(n.mustKey("t"))
		other.Subject = "a" // used up by the other tenant's
		n.allow(other)
		for _, subject := range []string{"a\n", "a\x00", " a", "a ", "\xff", strings.Repeat("a", 256)} {
			other.Subject = subject
			if _, e := n.fail(other, quotad.CodeInvalidRequest); !e.Fields.Has("subject") {
				t.Errorf("%q: %v", subject, e)
			}
			if _, err := n.Limits(t.Context(), other); codeOf(err) != quotad.CodeInvalidRequest {
				t.Errorf("limits of %q: %v", subject, err)
			}
		}
	})
}
