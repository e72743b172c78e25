package quota

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/apikeys"
	"github.com/quotad/quotad/internal/ratelimit"
	"github.com/quotad/quotad/internal/secret"
)

// still is a database that is asked once per row, as everything fits into the caches.
type still struct {
	keys   map[string]apikeys.Stored
	tenant quotad.Tenant
	tier   quotad.Tier
	groups []quotad.RouteGroup
}

func (s *still) Find(context.Context, []string) (map[string]apikeys.Stored, error) {
	return s.keys, nil
}
func (s *still) Tenant(context.Context, string) (quotad.Tenant, error) { return s.tenant, nil }
func (s *still) Tier(context.Context, string) (quotad.Tier, error)     { return s.tier, nil }
func (s *still) AllRouteGroups(context.Context) ([]quotad.RouteGroup, error) {
	return s.groups, nil
}

type noTokens struct{}

func (noTokens) Presented(context.Context, []string) (map[string]quotad.AdminToken, error) {
	return nil, nil
}

// newStill returns a Checker over memory whose one tenant has a tier with the
// limits and quotas, and the text of a key.
func newStill(tb testing.TB, limits []quotad.Limit, quotas ...quotad.Quota) (*Checker, string) {
	tb.Helper()
	text, id := secret.Mint(secret.APIKey, time.Now())
	s := &still{keys: map[string]apikeys.Stored{id: {
		Key:     quotad.Key{ID: id, Tenant: "acme", KeySpec: quotad.KeySpec{Status: quotad.KeyActive}},
		Secrets: []apikeys.StoredSecret{{Sum: text.Sum()}},
	}}}
	s.tenant = quotad.Tenant{TenantSpec: quotad.TenantSpec{ID: "acme", Tier: "pro"}}
	s.tenant.SetDefaults()
	s.tier = quotad.Tier{TierSpec: quotad.TierSpec{Name: "pro", RateLimit: quotad.Units(1_000_000_000), RateWindow: 60, Limits: limits, Quotas: quotas}}
	s.tier.SetDefaults()
	for _, g := range []quotad.RouteGroupSpec{{Name: "default"}, {Name: "exports", Match: []string{"GET /v1/exports/{id...}"}}} {
		g.SetDefaults()
		s.groups = append(s.groups, quotad.RouteGroup{RouteGroupSpec: g})
	}
	c := New(Sources{Keys: s, Tenants: s, Tiers: s, RouteGroups: s, Tokens: noTokens{}},
		ratelimit.NewMemory(ratelimit.MemoryOptions{}), Options{Registerer: prometheus.NewRegistry()})
	return c, text.Reveal()
}

func BenchmarkCheck(b *testing.B) {
	address := netip.MustParseAddr("2001:db8:1:2::3")
	for _, bench := range []struct {
		name   string
		limits []quotad.Limit
		quotas []quotad.Quota
		call   Call
	}{
		{"one limit", nil, nil, Call{RouteGroup: "exports", Door: "check"}},
		{"by path", nil, nil, Call{Method: "GET", Path: "/v1/exports/17", Door: "authorize"}},
		{"three limits", []quotad.Limit{
			rate("all", "*", quotad.ScopeKey, 1_000_000_000, 3600), rate("company", "*", quotad.ScopeTenant, 1_000_000_000, 3600),
		}, nil, Call{RouteGroup: "exports", Door: "check"}},
		{"two quotas", nil, []quotad.Quota{per(quotad.Day, 1_000_000_000), per(quotad.Month, 1_000_000_000)}, Call{RouteGroup: "exports", Door: "check"}},
		{"per address", []quotad.Limit{rate("address", "*", quotad.ScopeIP, 1_000_000_000, 3600)}, nil, Call{RouteGroup: "exports", Door: "check"}},
	} {
		for _, parallel := range []bool{false, true} {
			name := bench.name
			if parallel {
				name += ", parallel"
			}
			b.Run(name, func(b *testing.B) {
				c, key := newStill(b, bench.limits, bench.quotas...)
				call := bench.call
				call.APIKey, call.Address = key, address
				one := func() {
					if d, err := c.Check(b.Context(), call); err != nil || !d.Allowed {
						b.Fatalf("%+v, %v", d, err)
					}
				}
				one()
				b.ReportAllocs()
				if !parallel {
					for b.Loop() {
						one()
					}
					return
				}
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						one()
					}
				})
			})
		}
	}
}

func TestWarmCheckAllocatesLittle(t *testing.T) {
	c, key := newStill(t, []quotad.Limit{rate("company", "*", quotad.ScopeTenant, 1_000_000_000, 3600)})
	call := Call{APIKey: key, RouteGroup: "exports", Door: "check"}
	n := testing.AllocsPerRun(1000, func() {
		if d, err := c.Check(t.Context(), call); err != nil || !d.Allowed {
			t.Fatalf("%+v, %v", d, err)
		}
	})
	if n > 6 {
		t.Errorf("a warm Check makes %v allocations", n)
	}
}
