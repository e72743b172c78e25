package quota

import (
	"fmt"
	"net/netip"
	"strconv"
	"testing"
	"time"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/database"
	"github.com/quotad/quotad/internal/database/databasetest"
	"github.com/quotad/quotad/internal/ratelimit"
	"github.com/quotad/quotad/internal/secret"
	"github.com/quotad/quotad/internal/testenv"
)

// perMinute are options with limits on an address; 0 is none.
func perMinute(calls, failures int64) func(*Options) {
	return func(o *Options) {
		o.IPLimit, o.FailedKeyLimit = Rate{calls, time.Minute}, Rate{failures, time.Minute}
	}
}

// gated is a furnished node, on each engine, with limits on an address.
func gated(t *testing.T, change func(*Options), f func(t *testing.T, n *node)) {
	t.Parallel()
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		n := newNode(t, db, testenv.NewClock(), nil, change)
		n.furnish()
		n.editTier("pro", func(s *quotad.TierSpec) { s.RateLimit = quotad.Units(1000) })
		f(t, n)
	})
}

func from(call Call, addr string) Call {
	call.Address = netip.MustParseAddr(addr)
	return call
}

// keptOut is a call that a limit on its address must refuse.
func (n *node) keptOut(call Call, policy string) quotad.Decision {
	n.t.Helper()
	d := n.deny(call)
	if len(d.Limits) != 1 || d.Limits[0].Policy != policy || d.Limits[0].Remaining != 0 || d.RetryAfter < 1 || d.RetryAfter > 120 ||
		d.Refusal() != quotad.CodeRateLimitExceeded || d.Tenant != "" || d.KeyID != "" || d.RouteGroup != "" {
		n.t.Fatalf("%+v", d)
	}
	return d
}

func TestAnAddressIsLimitedBeforeAnybodyIsLookedUp(t *testing.T) {
	gated(t, perMinute(5, 0), func(t *testing.T, n *node) {
		key := n.mustKey("acme")
		for i := range 5 {
			if d := n.allow(from(by(key), "192.0.2.1")); len(d.Limits) != 1 || d.Limits[0].Remaining != int64(999-i) {
				t.Fatalf("%+v", d)
			}
		}
		queries := n.tap.queries()
		for range 15 {
			unknown, _ := secret.Mint(secret.APIKey, n.Now())
			n.keptOut(from(Call{APIKey: unknown.Reveal(), RouteGroup: "exports"}, "192.0.2.1"), policyAddress)
			n.keptOut(from(by(key), "192.0.2.1"), policyAddress)
			n.keptOut(from(Call{Method: "GET", Path: "nonsense"}, "::ffff:192.0.2.1"), policyAddress)
		}
		if n.tap.queries() != queries {
			t.Error("the database was asked for a call that is kept out")
		}
		// Others are as they were, and so is the key.
		if d := n.allow(from(by(key), "192.0.2.2")); d.Limits[0].Remaining != 994 {
			t.Errorf("%+v", d)
		}
		n.allow(by(key)) // its address is not known
		d := n.keptOut(from(by(key), "192.0.2.1"), policyAddress)
		n.Advance(time.Duration(d.RetryAfter) * time.Second)
		n.allow(from(by(key), "192.0.2.1"))
	})
}

func TestAnIPv6NetworkIsOneAddress(t *testing.T) {
	for bits, c := range map[int]struct{ same, other string }{
		0:   {"2001:db8:1:2::%x", "2001:db8:1:3::1"}, // 64
		48:  {"2001:db8:1:%x::1", "2001:db8:2:2::1"},
		56:  {"2001:db8:1:2%02x::1", "2001:db8:1:300::1"},
		128: {"2001:db8:1:2::1", "2001:db8:1:2::2"},
	} {
		t.Run(fmt.Sprint(bits), func(t *testing.T) {
			t.Parallel()
			n := newNode(t, databasetest.SQLite(t), testenv.NewClock(), nil, func(o *Options) {
				perMinute(5, 0)(o)
				o.IPv6Prefix = bits
			})
			n.furnish()
			call, passed := by(n.mustKey("acme")), 0
			for i := range 50 {
				addr := c.same
				if bits != 128 {
					addr = fmt.Sprintf(c.same, i+1)
				}
				if n.decide(from(call, addr)).Allowed {
					passed++
				}
			}
			if passed != 5 {
				t.Errorf("%d calls of one network passed, want 5", passed)
			}
			n.allow(from(call, c.other))
		})
	}
}

func TestFailedKeysAreLimitedByAddressAndGoodOnesNever(t *testing.T) {
	gated(t, perMinute(0, 7), func(t *testing.T, n *node) {
		good := n.mustKey("acme")
		unknown, _ := secret.Mint(secret.APIKey, n.Now())
		n.mustTenant("gone", "pro")
		suspended := n.mustKey("gone")
		n.editTenant("gone", func(s *quotad.TenantSpec) { s.Status = quotad.TenantSuspended })
		expired := n.mustKey("acme", func(k *quotad.KeySpec) { at := n.Now().Add(time.Second); k.ExpiresAt = &at })
		n.Advance(2 * time.Second)
		failing := []string{
			"junk", unknown.Reveal(), secret.MintFor(secret.APIKey, good.ID).Reveal(), suspended.Secret, expired.Secret,
			n.mustKey("acme", func(k *quotad.KeySpec) { k.Status = quotad.KeyDisabled }).Secret,
			n.mustKey("acme", func(k *quotad.KeySpec) { k.AllowedCIDRs = append(k.AllowedCIDRs, mustPrefix("10.0.0.0/8")) }).Secret,
		}
		if len(failing) != 7 {
			t.Fatal("one of each, and then it is used up")
		}
		for i, text := range failing {
			addr := fmt.Sprintf("192.0.2.%d", i+1)
			bad := from(Call{APIKey: text, RouteGroup: "exports", Door: "check"}, addr)
			for range 6 {
				n.fail(bad, quotad.CodeInvalidAPIKey)
			}
			n.allow(from(by(good), addr))
			n.fail(bad, quotad.CodeInvalidAPIKey) // one request counts once, and a good one not at all
			for range 3 {
				n.keptOut(bad, policyFailedKeys)
				n.allow(from(by(good), addr))
			}
			n.fail(from(Call{RouteGroup: "exports"}, addr), quotad.CodeAPIKeyRequired) // none is not a failed one
		}
		// Of each kind one: they share the counter.
		for _, text := range failing {
			n.fail(from(Call{APIKey: text, RouteGroup: "exports"}, "192.0.2.99"), quotad.CodeInvalidAPIKey)
		}
		d := n.keptOut(from(Call{APIKey: "junk", RouteGroup: "exports"}, "192.0.2.99"), policyFailedKeys)
		n.Advance(time.Duration(d.RetryAfter) * time.Second)
		n.fail(from(Call{APIKey: "junk", RouteGroup: "exports"}, "192.0.2.99"), quotad.CodeInvalidAPIKey)
		for range 20 { // whose address is not known
			n.fail(Call{APIKey: "junk", RouteGroup: "exports"}, quotad.CodeInvalidAPIKey)
		}
	})
}

func TestTwoCredentialsAreOneFailedKey(t *testing.T) {
	gated(t, perMinute(0, 2), func(t *testing.T, n *node) {
		key := n.mustKey("acme")
		ambiguous := quotad.NewError(quotad.CodeAmbiguousCredentials, "X-API-Key is sent more than once.")
		both := from(by(key), "192.0.2.1")
		both.ServiceToken = n.mustToken(quotad.RoleService, nil).Secret
		n.fail(from(Call{Fault: ambiguous, Door: "ping"}, "192.0.2.1"), quotad.CodeAmbiguousCredentials)
		n.fail(both, quotad.CodeAmbiguousCredentials)
		n.keptOut(from(Call{Fault: ambiguous, Door: "ping"}, "192.0.2.1"), policyFailedKeys)
		n.keptOut(both, policyFailedKeys)
		n.allow(from(by(key), "192.0.2.1"))
		// Other faults are no failed keys.
		for range 5 {
			n.fail(from(Call{APIKey: key.Secret, Fault: quotad.NewError(quotad.CodeInvalidCost, "")}, "192.0.2.2"), quotad.CodeInvalidCost)
		}
	})
}

func TestWhatADoorRefusesIsCountedByAddress(t *testing.T) {
	gated(t, perMinute(3, 0), func(t *testing.T, n *node) {
		fault := from(Call{Fault: quotad.NewError(quotad.CodeInvalidRequest, "no JSON"), Door: "check"}, "192.0.2.1")
		for range 3 {
			n.fail(fault, quotad.CodeAPIKeyRequired)
		}
		n.keptOut(fault, policyAddress)
		n.keptOut(from(by(n.mustKey("acme")), "192.0.2.1"), policyAddress)
	})
}

// Who does not prove who it is learns nothing of what else is wrong with its call.
func TestFaultsAreToldToThoseWhoProveWhoTheyAre(t *testing.T) {
	gated(t, perMinute(100, 3), func(t *testing.T, n *node) {
		n.mustGroup(quotad.RouteGroupSpec{
			Name: "login", Match: []string{"POST /login"}, Auth: quotad.AuthNone,
			Limits: []quotad.Limit{rate("tries", "login", quotad.ScopeIP, 2, 300)},
		})
		n.mustTenant("gone", "pro")
		n.editTenant("gone", func(s *quotad.TenantSpec) { s.Status = quotad.TenantSuspended })
		token := n.mustToken(quotad.RoleService, nil).Secret
		narrow := n.mustKey("acme", func(k *quotad.KeySpec) { k.RouteGroups = []string{"exports"} })
		fault := quotad.NewError(quotad.CodeInvalidCost, "")
		for name, c := range map[string]struct {
			call Call
			want quotad.Code
		}{
			"no key":                         {Call{RouteGroup: "exports"}, quotad.CodeAPIKeyRequired},
			"no key, and nothing else":       {Call{}, quotad.CodeAPIKeyRequired},
			"a bad key":                      {Call{APIKey: "junk", RouteGroup: "exports"}, quotad.CodeInvalidAPIKey},
			"a key":                          {Call{APIKey: narrow.Secret, RouteGroup: "exports"}, quotad.CodeInvalidCost},
			"a key, another's group":         {Call{APIKey: narrow.Secret, RouteGroup: "default"}, quotad.CodeInvalidCost},
			"a key, no such group":           {Call{APIKey: narrow.Secret, RouteGroup: "nowhere"}, quotad.CodeInvalidCost},
			"a token":                        {Call{ServiceToken: token, Tenant: "acme", RouteGroup: "exports"}, quotad.CodeInvalidCost},
			"a token, no tenant":             {Call{ServiceToken: token}, quotad.CodeInvalidCost},
			"a token, a suspended tenant":    {Call{ServiceToken: token, Tenant: "gone"}, quotad.CodeInvalidAPIKey},
			"a bad token":                    {Call{ServiceToken: "qa_guess", Tenant: "acme", RouteGroup: "exports"}, quotad.CodeInvalidAPIKey},
			"vouched":                        {Call{Vouched: true, Tenant: "acme", RouteGroup: "exports"}, quotad.CodeInvalidCost},
			"a group that needs no key":      {Call{Method: "POST", Path: "/login"}, quotad.CodeInvalidCost},
			"the same, with a key":           {Call{Method: "POST", Path: "/login", APIKey: "junk"}, quotad.CodeInvalidCost},
			"the same, with a token":         {Call{Method: "POST", Path: "/login", ServiceToken: token}, quotad.CodeInvalidCost},
			"the same, with a bad token":     {Call{Method: "POST", Path: "/login", ServiceToken: "qa_guess"}, quotad.CodeInvalidAPIKey},
			"the same, with no such subject": {Call{Method: "POST", Path: "/login", Subject: "\n"}, quotad.CodeInvalidCost},
		} {
			c.call.Fault = fault
			c.call.Address = address("192.0.2." + strconv.Itoa(1+len(name)))
			if _, err := n.Check(t.Context(), c.call); codeOf(err) != c.want {
				t.Errorf("%s: %v, want %s", name, err, c.want)
			}
			results, _, err := n.CheckAll(t.Context(), []Call{c.call})
			if err == nil {
				err = results[0].Err
			}
			if codeOf(err) != c.want {
				t.Errorf("%s, in a list: %v, want %s", name, err, c.want)
			}
			if _, err := n.Limits(t.Context(), c.call); c.call.RouteGroup != "" && codeOf(err) != c.want {
				t.Errorf("%s, of limits: %v, want %s", name, err, c.want)
			}
		}
		// A bad key is a failed key, whatever else is wrong.
		bad := from(Call{APIKey: "junk", Fault: fault}, "192.0.2.250")
		for range 3 {
			n.fail(bad, quotad.CodeInvalidAPIKey)
		}
		n.keptOut(bad, policyFailedKeys)
	})
}

func TestAServiceThatProvesWhoItIsIsNotLimitedByAddress(t *testing.T) {
	gated(t, perMinute(4, 2), func(t *testing.T, n *node) {
		token := n.mustToken(quotad.RoleService, nil)
		n.mustTenant("gone", "pro")
		n.editTenant("gone", func(s *quotad.TenantSpec) { s.Status = quotad.TenantSuspended })
		call := from(Call{ServiceToken: token.Secret, Tenant: "acme", RouteGroup: "exports", Door: "check"}, "192.0.2.1")
		bad, absent, suspended := call, call, call
		bad.ServiceToken = secret.MintFor(secret.AdminToken, token.ID).Reveal()
		absent.Tenant, suspended.Tenant = "nobody", "gone"
		for range 20 {
			n.allow(call)
			n.fail(absent, quotad.CodeInvalidRequest)
			n.fail(suspended, quotad.CodeInvalidAPIKey) // not the service's credential
		}
		n.fail(bad, quotad.CodeInvalidAPIKey)
		n.fail(bad, quotad.CodeInvalidAPIKey)
		n.keptOut(bad, policyFailedKeys)
		n.keptOut(bad, policyFailedKeys)
		n.keptOut(bad, policyAddress) // the fifth
		n.allow(call)
		n.Invalidate(quotad.ResourceAdminToken, token.ID)
		n.allow(call)
		vouched := from(Call{Vouched: true, Tenant: "gone", RouteGroup: "exports"}, "192.0.2.2")
		for range 4 {
			n.fail(vouched, quotad.CodeInvalidAPIKey) // no key of that address
		}
	})
}

func TestGroupsThatAskForNoKeyAreLimitedByAddress(t *testing.T) {
	gated(t, perMinute(3, 1), func(t *testing.T, n *node) {
		n.mustGroup(quotad.RouteGroupSpec{
			Name: "login", Match: []string{"POST /login"}, Auth: quotad.AuthNone,
			Limits: []quotad.Limit{rate("tries", "login", quotad.ScopeIP, 2, 300)},
		})
		login := from(Call{Method: "POST", Path: "/login", APIKey: "junk"}, "192.0.2.1")
		n.allow(login)
		n.allow(login)
		if d := n.deny(login); d.Limits[0].Policy != "tries" {
			t.Errorf("%+v", d)
		}
		n.keptOut(login, policyAddress)
	})
}

func TestAskingForLimitsIsCountedByAddress(t *testing.T) {
	gated(t, perMinute(4, 1), func(t *testing.T, n *node) {
		ask := func(call Call) ([]quotad.Decision, error) { return n.Limits(t.Context(), from(call, "192.0.2.1")) }
		call, bad := Call{APIKey: n.mustKey("acme").Secret}, Call{APIKey: "junk"}
		if d, err := ask(call); err != nil || len(d) != 2 {
			t.Fatalf("%+v, %v", d, err)
		}
		if _, err := ask(bad); codeOf(err) != quotad.CodeInvalidAPIKey {
			t.Error(err)
		}
		for _, c := range []struct {
			call   Call
			policy string
		}{{bad, policyFailedKeys}, {bad, policyFailedKeys}, {call, policyAddress}, {bad, policyAddress}} {
			d, err := ask(c.call)
			if err != nil || len(d) != 1 || d[0].Allowed || d[0].RouteGroup != "" || d[0].Limits[0].Policy != c.policy {
				t.Errorf("want %s: %+v, %v", c.policy, d, err)
			}
		}
	})
}

func TestFaultsAreAnsweredWhereNoAddressIsLimited(t *testing.T) {
	t.Parallel()
	n := newNode(t, databasetest.SQLite(t), testenv.NewClock(), nil)
	for range 3 {
		n.fail(from(Call{Fault: quotad.NewError(quotad.CodeAmbiguousCredentials, ""), Door: "ping"}, "192.0.2.1"), quotad.CodeAmbiguousCredentials)
		n.fail(from(Call{Fault: quotad.NewError(quotad.CodeInvalidCost, ""), Door: "ping"}, "192.0.2.1"), quotad.CodeAPIKeyRequired)
	}
}

func TestRefusedAddressesAreCountedAndLoggedOnceInAnInterval(t *testing.T) {
	t.Parallel()
	n, log, registry := watched(t, perMinute(1, 1))
	_, before := series(t, registry)
	for i := range 300 {
		call := from(Call{APIKey: "junk", RouteGroup: "exports", Door: "authorize"}, fmt.Sprintf("10.0.%d.%d", i/250, i%250))
		n.fail(call, quotad.CodeInvalidAPIKey)
		n.keptOut(call, policyAddress)
	}
	values, after := series(t, registry)
	for name, want := range map[string]float64{
		"quotad_address_refusals_total policy=address":                                 300,
		"quotad_decisions_total door=authorize reason=rate_limit_exceeded result=deny": 300,
		"quotad_decisions_total door=authorize reason=invalid_api_key result=error":    300,
		"quotad_address_counters": 600,
	} {
		if values[name] != want {
			t.Errorf("%s is %v, want %v", name, values[name], want)
		}
	}
	if after != before {
		t.Errorf("%d series, then %d", before, after)
	}
	lines := log.lines(t)
	if len(lines) != 2 || lines[1]["policy"] != "address" || lines[1]["address"] != "10.0.0.0" || lines[1]["retry_after"] == nil {
		t.Errorf("%d lines: %v", len(lines), lines)
	}
	n.Advance(10 * time.Second)
	n.keptOut(from(Call{APIKey: "junk", Door: "check"}, "10.0.0.1"), policyAddress)
	if lines := log.lines(t); len(lines) != 1 || lines[0]["suppressed"] != 299.0 {
		t.Errorf("after the interval: %v", lines)
	}
	n.addresses.calls.limit.Units = 0
	n.Advance(time.Minute)
	n.fail(from(Call{APIKey: "junk", Door: "check"}, "10.0.9.9"), quotad.CodeInvalidAPIKey)
	n.keptOut(from(Call{APIKey: "junk", Door: "check"}, "10.0.9.9"), policyFailedKeys)
	if lines := log.lines(t); len(lines) != 2 || lines[1]["policy"] != "failed-keys" || lines[1]["suppressed"] != 0.0 {
		t.Errorf("of the other policy: %v", lines)
	}
}

func TestAFloodOfAddressesIsBoundedAndPushesOutNobodyElse(t *testing.T) {
	t.Parallel()
	clock := testenv.NewClock()
	memory := ratelimit.NewMemory(ratelimit.MemoryOptions{Now: clock.Now})
	n := newNode(t, databasetest.SQLite(t), clock, memory, func(o *Options) {
		perMinute(100, 100)(o)
		o.Addresses = 1024
	})
	n.furnish()
	n.allow(by(n.mustKey("acme")))
	kept := memory.Len()
	for i := range 20_000 {
		n.fail(from(Call{APIKey: "junk", RouteGroup: "exports"}, fmt.Sprintf("10.%d.%d.1", i/250, i%250)), quotad.CodeInvalidAPIKey)
	}
	if got := n.addresses.memory.Len(); got > 2048 || got < 1024 {
		t.Errorf("%d counters of addresses", got)
	}
	if memory.Len() != kept {
		t.Errorf("%d counters of tenants, then %d", kept, memory.Len())
	}
}

func BenchmarkAddress(b *testing.B) {
	for name, change := range map[string]func(*Options){"off": perMinute(0, 0), "on": perMinute(1_000_000_000, 100_000_000)} {
		b.Run(name, func(b *testing.B) {
			c, key := newStill(b, nil)
			o := c.opts
			change(&o)
			c.addresses = newAddresses(o, nil, c.metrics)
			call := from(Call{APIKey: key, RouteGroup: "exports", Door: "check"}, "2001:db8:1:2::3")
			b.ReportAllocs()
			for b.Loop() {
				if d, err := c.Check(b.Context(), call); err != nil || !d.Allowed {
					b.Fatalf("%+v, %v", d, err)
				}
			}
		})
	}
}
