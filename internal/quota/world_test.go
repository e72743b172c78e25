package quota

import (
	"context"
	"errors"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/admintokens"
	"github.com/quotad/quotad/internal/apikeys"
	"github.com/quotad/quotad/internal/database"
	"github.com/quotad/quotad/internal/database/databasetest"
	"github.com/quotad/quotad/internal/events"
	"github.com/quotad/quotad/internal/ratelimit"
	"github.com/quotad/quotad/internal/testenv"
	"github.com/quotad/quotad/internal/tiers"
)

var operator = quotad.Actor{Type: "system", Name: "test"}

// node is a Checker on a database, with the stores that operators write through. The
// clock is that of the stores, the caches and, by default, the counters.
type node struct {
	*Checker
	*testenv.Clock
	t      testing.TB
	store  *tiers.Store
	apikey *apikeys.Store
	token  *admintokens.Store
	log    *events.Log
	tap    *tap
}

// newNode returns a node of its own on db. Limiter is by default the memory of
// this node.
func newNode(t testing.TB, db *database.DB, clock *testenv.Clock, limiter Limiter, change ...func(*Options)) *node {
	t.Helper()
	log := events.NewLog(db, events.Options{Now: clock.Now})
	n := &node{
		Clock: clock, t: t, log: log,
		store:  tiers.NewStore(db, log, tiers.Options{Now: clock.Now}),
		apikey: apikeys.NewStore(db, log, apikeys.Options{Now: clock.Now}),
		token:  admintokens.NewStore(db, log, admintokens.Options{Now: clock.Now}),
	}
	if limiter == nil {
		limiter = ratelimit.NewMemory(ratelimit.MemoryOptions{Now: clock.Now})
	}
	opts := Options{Now: clock.Now, Pause: 100 * time.Millisecond, LoadBudget: hasty * testenv.Patience}
	for _, f := range change {
		f(&opts)
	}
	n.tap = &tap{keys: n.apikey, store: n.store, token: n.token}
	n.Checker = New(Sources{Keys: n.tap, Tenants: n.tap, Tiers: n.tap, RouteGroups: n.tap, Tokens: n.tap}, limiter, opts)
	cancel := log.Subscribe(func(notice events.Notice) { n.Invalidate(notice.Resource, notice.ID) }, n.Resync)
	t.Cleanup(cancel)
	return n
}

// world runs f on a node with a tier "pro" of 10/60, a tenant "acme" on it and a
// group "exports", on each engine.
func world(t *testing.T, f func(t *testing.T, n *node)) {
	t.Parallel()
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		n := newNode(t, db, testenv.NewClock(), nil)
		n.furnish()
		f(t, n)
	})
}

func (n *node) furnish() {
	n.t.Helper()
	n.mustTier(quotad.TierSpec{Name: "pro", RateLimit: quotad.Units(10)})
	n.mustTenant("acme", "pro")
	n.mustGroup(quotad.RouteGroupSpec{Name: "exports", Match: []string{"POST /v1/exports", "GET /v1/exports/{id...}"}})
}

func must[V any](t testing.TB, v V, err error) V {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func (n *node) mustTier(spec quotad.TierSpec) {
	n.t.Helper()
	if spec.RateWindow == 0 {
		spec.RateWindow = 60
	}
	if spec.Algorithm == "" {
		spec.Algorithm = quotad.FixedWindow
	}
	spec.SetDefaults()
	_, err := n.store.CreateTier(context.Background(), operator, spec)
	must(n.t, 0, err)
}

func (n *node) editTier(name string, edit func(*quotad.TierSpec)) {
	n.t.Helper()
	_, err := n.store.UpdateTier(context.Background(), operator, name, nil, func(s *quotad.TierSpec) error { edit(s); return nil })
	must(n.t, 0, err)
}

func (n *node) mustTenant(id, tier string) {
	n.t.Helper()
	spec := quotad.TenantSpec{ID: id, Name: id, Tier: tier}
	spec.SetDefaults()
	_, err := n.store.CreateTenant(context.Background(), operator, spec)
	must(n.t, 0, err)
}

func (n *node) editTenant(id string, edit func(*quotad.TenantSpec)) {
	n.t.Helper()
	_, err := n.store.UpdateTenant(context.Background(), operator, id, nil, func(s *quotad.TenantSpec) error { edit(s); return nil })
	must(n.t, 0, err)
}

func (n *node) mustGroup(spec quotad.RouteGroupSpec) {
	n.t.Helper()
	spec.SetDefaults()
	_, err := n.store.CreateRouteGroup(context.Background(), operator, spec)
	must(n.t, 0, err)
}

func (n *node) editGroup(name string, edit func(*quotad.RouteGroupSpec)) {
	n.t.Helper()
	_, err := n.store.UpdateRouteGroup(context.Background(), operator, name, nil, func(s *quotad.RouteGroupSpec) error { edit(s); return nil })
	must(n.t, 0, err)
}

func (n *node) mustKey(tenant string, change ...func(*quotad.KeySpec)) quotad.Key {
	n.t.Helper()
	spec := quotad.KeySpec{Name: "ci"}
	for _, f := range change {
		f(&spec)
	}
	spec.SetDefaults()
	key, err := n.apikey.Create(context.Background(), operator, tenant, spec)
	return must(n.t, key, err)
}

func (n *node) editKey(id string, edit func(*quotad.KeySpec)) {
	n.t.Helper()
	_, err := n.apikey.Update(context.Background(), operator, id, nil, func(s *quotad.KeySpec) error { edit(s); return nil })
	must(n.t, 0, err)
}

func (n *node) revoke(id string) {
	n.t.Helper()
	_, err := n.apikey.Revoke(context.Background(), operator, id, nil)
	must(n.t, 0, err)
}

func (n *node) mustToken(role quotad.Role, expires *time.Time) quotad.AdminToken {
	n.t.Helper()
	token, err := n.token.Create(context.Background(), operator, quotad.AdminTokenSpec{Name: string(role), Role: role, ExpiresAt: expires})
	return must(n.t, token, err)
}

// by is a call to the group "exports" with the key.
func by(key quotad.Key) Call { return Call{APIKey: key.Secret, RouteGroup: "exports", Door: "check"} }

func costing(call Call, units int64) Call {
	call.Cost = &units
	return call
}

// decide is a call that must be decided, one way or the other.
func (n *node) decide(call Call) quotad.Decision {
	n.t.Helper()
	d, err := n.Check(context.Background(), call)
	return must(n.t, d, err)
}

func (n *node) allow(call Call) quotad.Decision {
	n.t.Helper()
	d := n.decide(call)
	if !d.Allowed {
		n.t.Fatalf("refused: %+v", d)
	}
	return d
}

func (n *node) deny(call Call) quotad.Decision {
	n.t.Helper()
	d := n.decide(call)
	if d.Allowed {
		n.t.Fatalf("allowed: %+v", d)
	}
	return d
}

// fail is a call that must end in an error of the code.
func (n *node) fail(call Call, code quotad.Code) (quotad.Decision, *quotad.Error) {
	n.t.Helper()
	d, err := n.Check(context.Background(), call)
	var e *quotad.Error
	if !errors.As(err, &e) || e.Code != code {
		n.t.Fatalf("decision %+v, error %v; want %s", d, err, code)
	}
	return d, e
}

// remaining is what is left of each limit, by policy, without charging any.
func (n *node) remaining(call Call) map[string]int64 {
	n.t.Helper()
	left := map[string]int64{}
	for _, l := range n.decide(costing(call, 0)).Limits {
		left[l.Policy] = l.Remaining
	}
	return left
}

// tap stands between a Checker and the real stores: it counts what is asked and
// can slow it down, without changing any answer.
type tap struct {
	keys  *apikeys.Store
	store *tiers.Store
	token *admintokens.Store

	found, tenants, tiers, groups, tokens atomic.Int64 // queries
	// after runs once a query has been answered, before the answer is handed on.
	after atomic.Pointer[func(what string)]
}

func (p *tap) hold(what string) {
	if f := p.after.Load(); f != nil {
		(*f)(what)
	}
}

func (p *tap) slow(d time.Duration) {
	f := func(string) { time.Sleep(d) }
	p.after.Store(&f)
}

func (p *tap) queries() int64 {
	return p.found.Load() + p.tenants.Load() + p.tiers.Load() + p.groups.Load() + p.tokens.Load()
}

func (p *tap) Find(ctx context.Context, ids []string) (map[string]apikeys.Stored, error) {
	p.found.Add(1)
	v, err := p.keys.Find(ctx, ids)
	p.hold("key")
	return v, err
}

func (p *tap) Tenant(ctx context.Context, id string) (quotad.Tenant, error) {
	p.tenants.Add(1)
	v, err := p.store.Tenant(ctx, id)
	p.hold("tenant")
	return v, err
}

func (p *tap) Tier(ctx context.Context, name string) (quotad.Tier, error) {
	p.tiers.Add(1)
	v, err := p.store.Tier(ctx, name)
	p.hold("tier")
	return v, err
}

func (p *tap) AllRouteGroups(ctx context.Context) ([]quotad.RouteGroup, error) {
	p.groups.Add(1)
	v, err := p.store.AllRouteGroups(ctx)
	p.hold("groups")
	return v, err
}

func (p *tap) Presented(ctx context.Context, texts []string) (map[string]quotad.AdminToken, error) {
	p.tokens.Add(1)
	v, err := p.token.Presented(ctx, texts)
	p.hold("token")
	return v, err
}

func address(s string) netip.Addr { return netip.MustParseAddr(s) }

func mustPrefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }
