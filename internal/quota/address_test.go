package quota

import (
	"fmt"
	"testing"

	"github.com/quotad/quotad"
)

func TestGroupsThatAskForNoKey(t *testing.T) {
	world(t, func(t *testing.T, n *node) {
		n.mustGroup(quotad.RouteGroupSpec{
			Name: "login", Match: []string{"POST /login"}, Auth: quotad.AuthNone,
			Limits: []quotad.Limit{rate("tries", "login", quotad.ScopeIP, 5, 60)},
		})
		from := func(addr string) Call {
			return Call{Method: "POST", Path: "/login", Address: address(addr), Door: "authorize"}
		}
		// One subscriber of IPv6 has 2^64 addresses.
		passed := 0
		for i := range 50 {
			if n.decide(from(fmt.Sprintf("2001:db8:1:2::%x", i+1))).Allowed {
				passed++
			}
		}
		if passed != 5 {
			t.Errorf("%d calls of one /64 passed, want 5", passed)
		}
		d := n.allow(from("2001:db8:1:3::1"))
		if d.Tenant != "" || d.KeyID != "" || d.Tier != "" || d.RouteGroup != "login" || d.Limits[0].Remaining != 4 {
			t.Errorf("%+v", d)
		}
		n.allow(from("192.0.2.1"))
		if d := n.allow(from("::ffff:192.0.2.1")); d.Limits[0].Remaining != 3 {
			t.Errorf("an IPv4 address written as IPv6: %+v", d)
		}
		n.allow(from("192.0.2.2"))

		// A key is not looked at, be it good or bad.
		queries := n.tap.queries()
		call := from("192.0.2.3")
		for _, text := range []string{n.mustKey("acme").Secret, "junk"} {
			call.APIKey = text
			n.allow(call)
		}
		if n.tap.queries() != queries {
			t.Error("a key was looked up")
		}
		if d := n.allow(from("192.0.2.3")); d.Limits[0].Remaining != 2 {
			t.Errorf("a key changed the counter: %+v", d)
		}

		// An address that somebody names is believed from services only.
		call.IP = address("192.0.2.9")
		n.fail(call, quotad.CodeInvalidRequest)
		n.fail(Call{RouteGroup: "login"}, quotad.CodeInvalidRequest)
		token := n.mustToken(quotad.RoleService, nil)
		service := Call{ServiceToken: token.Secret, Tenant: "acme", RouteGroup: "login", Address: address("10.0.0.1")}
		n.fail(service, quotad.CodeInvalidRequest)
		service.IP = address("192.0.2.9")
		if d := n.allow(service); d.Limits[0].Remaining != 4 {
			t.Errorf("by a service: %+v", d)
		}
		if d := n.allow(from("192.0.2.9")); d.Limits[0].Remaining != 3 {
			t.Errorf("the same address at the door: %+v", d)
		}
		service.ServiceToken = "qa_junk"
		n.fail(service, quotad.CodeInvalidAPIKey)
	})
}

func TestLimitsPerAddressOfATenant(t *testing.T) {
	world(t, func(t *testing.T, n *node) {
		n.mustTier(quotad.TierSpec{Name: "addresses", Limits: []quotad.Limit{rate("address", "*", quotad.ScopeIP, 1, 60)}})
		n.mustTenant("one", "addresses")
		n.mustTenant("two", "addresses")
		call := by(n.mustKey("one"))
		n.allow(call) // where it came from is not known: no concern of the limit
		n.allow(call)
		call.Address = address("192.0.2.1")
		n.allow(call)
		n.deny(call)
		call.IP = address("192.0.2.2") // the tenant's own user
		n.allow(call)
		n.deny(call)
		other := by(n.mustKey("two"))
		other.Address = address("192.0.2.1")
		n.allow(other)
	})
}

func TestNamedAddressDoesNotOpenTheAllowList(t *testing.T) {
	world(t, func(t *testing.T, n *node) {
		key := n.mustKey("acme", func(k *quotad.KeySpec) { k.AllowedCIDRs = append(k.AllowedCIDRs, mustPrefix("192.0.2.0/24")) })
		call := by(key)
		call.Address, call.IP = address("198.51.100.1"), address("192.0.2.1")
		n.fail(call, quotad.CodeInvalidAPIKey)
		call.Address, call.IP = call.IP, call.Address
		n.allow(call)
		call.Address = address("192.0.3.1")
		n.fail(call, quotad.CodeInvalidAPIKey)
	})
}
