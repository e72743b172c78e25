package quota

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/ratelimit"
)

var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func inUTC() *calendar { return &calendar{zone: time.UTC, anchor: 1} }

// everyScope is one limit of each scope, as a tier declares them.
func everyScope() []limit {
	var limits []limit
	for _, scope := range quotad.Scopes {
		limits = append(limits, limit{Limit: rate("per-"+string(scope), "*", scope, 10, 60), Declared: inTier})
	}
	return limits
}

// named is the counters of a call by the policies that they stand for.
func named(t *testing.T, p *plan, who identities) map[string]ratelimit.Counter {
	t.Helper()
	who.bits = 64
	_, charges, limits := p.bind(who)
	if len(charges) != len(limits) {
		t.Fatalf("%d charges and %d limits", len(charges), len(limits))
	}
	all := map[string]ratelimit.Counter{}
	for i, l := range limits {
		all[l.Policy] = charges[i].Counter
	}
	return all
}

func policies(all map[string]ratelimit.Counter) string {
	var names []string
	for _, scope := range quotad.Scopes {
		if _, ok := all["per-"+string(scope)]; ok {
			names = append(names, string(scope))
		}
	}
	return strings.Join(names, " ")
}

func TestLimitsWithoutAnIdentityDoNotConcernTheCall(t *testing.T) {
	address := netip.MustParseAddr("192.0.2.1")
	byKey := newPlan(everyScope(), "acme", "key1", quotad.FailLocal, inUTC(), noon)
	byService := newPlan(everyScope(), "acme", "", quotad.FailLocal, inUTC(), noon)
	for _, c := range []struct {
		name string
		plan *plan
		who  identities
		want string
	}{
		{"key, all known", byKey, identities{subject: "ann", address: address}, "key tenant subject ip"},
		{"key, no subject", byKey, identities{address: address}, "key tenant ip"},
		{"key, no address", byKey, identities{subject: "ann"}, "key tenant subject"},
		{"key, neither", byKey, identities{}, "key tenant"},
		{"service, all known", byService, identities{subject: "ann", address: address}, "key tenant subject ip"},
		{"service, neither", byService, identities{}, "key tenant"},
	} {
		if got := policies(named(t, c.plan, c.who)); got != c.want {
			t.Errorf("%s: limits per %s, want %s", c.name, got, c.want)
		}
	}
}

func TestWhoSharesACounter(t *testing.T) {
	at := func(s string) netip.Addr { return netip.MustParseAddr(s) }
	ann := identities{subject: "ann", address: at("2001:db8:1:2::1")}
	counters := func(tenant, key string, who identities) map[string]ratelimit.Counter {
		return named(t, newPlan(everyScope(), tenant, key, quotad.FailLocal, inUTC(), noon), who)
	}
	first := counters("acme", "key1", ann)
	for _, c := range []struct {
		name   string
		other  map[string]ratelimit.Counter
		shared string
	}{
		{"the same", counters("acme", "key1", ann), "key tenant subject ip"},
		{"another key of the tenant", counters("acme", "key2", ann), "tenant subject ip"},
		{"another tenant", counters("emca", "key1", ann), ""},
		{"another subject", counters("acme", "key1", identities{subject: "bob", address: ann.address}), "key tenant ip"},
		{"a neighbour in the same /64", counters("acme", "key1", identities{subject: "ann", address: at("2001:db8:1:2:ffff::2")}), "key tenant subject ip"},
		{"one in the next /64", counters("acme", "key1", identities{subject: "ann", address: at("2001:db8:1:3::1")}), "key tenant subject"},
		{"a service that speaks for ann", counters("acme", "", ann), "tenant subject ip"},
		{"a service that names nobody", counters("acme", "", identities{}), "tenant"},
		{"a subject named like the key", counters("acme", "", identities{subject: "key1"}), "tenant"},
	} {
		same := map[string]ratelimit.Counter{}
		for policy, counter := range c.other {
			if first[policy] == counter {
				same[policy] = counter
			}
		}
		if got := policies(same); got != c.shared {
			t.Errorf("%s: shares the counters per %q, want %q", c.name, got, c.shared)
		}
	}

	service := func(subject string) ratelimit.Counter {
		return counters("acme", "", identities{subject: subject})["per-key"]
	}
	nobody := service("")
	if service("ann") == service("bob") || service("ann") == nobody || service("") != nobody {
		t.Error("scope key of a service's calls counts by subject, else by tenant")
	}
}

func TestCountersOfOneCallAreDistinctAndInOneShard(t *testing.T) {
	limits := everyScope()
	for _, l := range everyScope() {
		l.Declared, l.RouteGroup = inGroup, "exports"
		limits = append(limits, l)
	}
	p := newPlan(limits, "acme", "key1", quotad.FailLocal, inUTC(), noon)
	shard, charges, _ := p.bind(identities{subject: "ann", address: netip.MustParseAddr("192.0.2.1"), bits: 64})
	seen := map[ratelimit.Counter]bool{}
	for _, charge := range charges {
		seen[charge.Counter] = true
	}
	if len(seen) != 8 || shard != ratelimit.ShardOf("acme") {
		t.Errorf("%d distinct counters of 8, in shard %d", len(seen), shard)
	}
}

func TestOpenGroupsCountByAddressAloneAndSpread(t *testing.T) {
	p := newOpenPlan([]quotad.Limit{rate("login", "login", quotad.ScopeIP, 5, 60)}, quotad.FailLocal)
	shards, counters := map[ratelimit.Shard]bool{}, map[ratelimit.Counter]bool{}
	for i := range 50 {
		who := identities{address: netip.MustParseAddr(fmt.Sprintf("192.0.2.%d", i)), bits: 64}
		shard, charges, _ := p.bind(who)
		shards[shard], counters[charges[0].Counter] = true, true
		if again, _, _ := p.bind(who); again != shard {
			t.Fatal("an address changes its shard")
		}
	}
	if len(counters) != 50 || len(shards) < 10 {
		t.Errorf("50 addresses: %d counters in %d shards", len(counters), len(shards))
	}
}

func TestPlanOfATierThatNeedsNothingOfTheCallIsBoundWithoutHashing(t *testing.T) {
	p := newPlan(everyScope()[:2], "acme", "key1", quotad.FailLocal, inUTC(), noon)
	if n := testing.AllocsPerRun(100, func() { p.bind(identities{}) }); n > 1 {
		t.Errorf("%v allocations", n)
	}
}
