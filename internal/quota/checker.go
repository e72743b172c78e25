package quota

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/apikeys"
)

// Options tune a Checker. The zero value works.
type Options struct {
	// CacheSize is the most keys, and the most tenants, that are remembered;
	// 50 000 by default, about 2 KB each.
	CacheSize int
	// UnknownSize is the most ids remembered as unknown; 10 000 by default,
	// about 150 bytes each.
	UnknownSize int
	// CacheTTL is how long what was looked up is served without asking again;
	// 60 s by default. What is in use is looked up anew LoadBudget before that, or
	// half of it. It bounds how late a revoke is seen where notices of changes do
	// not arrive and the database answers.
	CacheTTL time.Duration
	// UnknownTTL is how long an id is remembered as unknown; 2 s by default and at most.
	UnknownTTL time.Duration
	// CacheStale is how long past CacheTTL an entry is served while the database
	// is away; 10 min by default. time.Nanosecond switches that off.
	CacheStale time.Duration
	// LoadBudget is how long one look-up in the database may take; 2 s by default. It
	// is waited for a fortieth of that where what was known before may serve instead.
	LoadBudget time.Duration
	// Pause is the time between two tries to reach a database that is away; 1 s by default.
	Pause time.Duration
	// IPv6Prefix is how many bits of an IPv6 address make one caller: 48 to 128, 64 by default.
	IPv6Prefix int
	// IPLimit holds for each address, by Call.Address, before anybody knows whose a
	// call is; none by default. Calls with a service token that works, and those
	// without an address, are not counted.
	IPLimit Rate
	// FailedKeyLimit holds for the calls of an address whose credential fails: those
	// beyond it are refused by the limit instead. None by default.
	FailedKeyLimit Rate
	// Addresses is about how many addresses are remembered for these two limits, in a
	// memory of their own, about 100 bytes for each and limit; 100 000 by default. Of
	// more, those that are idle soonest are forgotten.
	Addresses int
	// OnStoreFailure holds where a tier says nothing; quotad.FailLocal by default.
	OnStoreFailure quotad.FailurePolicy
	// LogInterval is the least time between two lines about the same thing; 10 s by default.
	LogInterval time.Duration
	// Now is the clock of TTLs and expiries; time.Now by default.
	Now func() time.Time
	// Touch is told of every use of a key; nobody by default.
	Touch Touch
	// Logger gets refusals and failures; none by default.
	Logger *slog.Logger
	// Registerer gets the metrics; none by default.
	Registerer prometheus.Registerer
}

// The bounds of IPv6Prefix: what a site is given, and one address.
const minIPv6Prefix, maxIPv6Prefix = 48, 128

func (o *Options) setDefaults() {
	o.CacheSize = orDefault(o.CacheSize, 50_000)
	o.UnknownSize = orDefault(o.UnknownSize, 10_000)
	o.CacheTTL = orDefault(o.CacheTTL, time.Minute)
	o.UnknownTTL = min(orDefault(o.UnknownTTL, 2*time.Second), 2*time.Second)
	o.CacheStale = orDefault(o.CacheStale, 10*time.Minute)
	o.LoadBudget = orDefault(o.LoadBudget, 2*time.Second)
	o.Pause = orDefault(o.Pause, time.Second)
	o.Addresses = orDefault(o.Addresses, 100_000)
	o.IPv6Prefix = min(max(orDefault(o.IPv6Prefix, 64), minIPv6Prefix), maxIPv6Prefix)
	o.LogInterval = orDefault(o.LogInterval, 10*time.Second)
	if o.OnStoreFailure == "" {
		o.OnStoreFailure = quotad.FailLocal
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
}

func orDefault[T int | time.Duration](given, otherwise T) T {
	if given <= 0 {
		return otherwise
	}
	return given
}

// Checker answers whether a caller may do something now. It may be used by any
// number of goroutines.
type Checker struct {
	opts    Options
	sources Sources
	limiter Limiter
	guard   *guard
	metrics *metrics
	lines   *lines
	zones   zonesByName
	// addresses are the limits before authentication; nil where there are none.
	addresses *addresses
	ahead     atomic.Int64 // how far the counters' clock is ahead of Now, as it was last seen, in ns

	keys    *cache[*keyEntry]
	tenants *cache[*tenantEntry]
	tiers   *cache[*quotad.Tier]
	tokens  *cache[quotad.AdminToken] // by the hash of the text
	// presented is what tokens are loaded through: anybody can make up texts.
	presented *batch[quotad.AdminToken]
	groups    *cache[*groups] // of one entry
}

// allGroups is the one id in the cache of route groups.
const allGroups = ""

// New returns a Checker that knows nobody yet. It starts nothing; a look-up may
// leave a goroutine behind for as long as LoadBudget.
func New(sources Sources, limiter Limiter, o Options) *Checker {
	clock := o.Now // before there is a default
	o.setDefaults()
	c := &Checker{opts: o, sources: sources, limiter: limiter, metrics: newMetrics(), lines: newLines(o)}
	c.addresses = newAddresses(o, clock, c.metrics)
	c.guard = newGuard(o.Pause, func(from, to string) {
		o.Logger.Warn("database breaker changed state", "from", from, "to", to)
	})

	find := &batch[apikeys.Stored]{budget: o.LoadBudget, find: func(ctx context.Context, ids []string) (map[string]apikeys.Stored, error) {
		return guarded(c.guard, func() (map[string]apikeys.Stored, error) { return sources.Keys.Find(ctx, ids) })
	}}
	c.keys = newCache(c.guard, func(ctx context.Context, id string) (*keyEntry, error) {
		stored, err := find.Find(ctx, id)
		if err != nil {
			return nil, err
		}
		return &keyEntry{stored: stored}, nil
	}, c.cacheOptions(cacheKeys, o.CacheSize))
	c.tenants = newCache(c.guard, func(ctx context.Context, id string) (*tenantEntry, error) {
		tenant, err := guarded(c.guard, func() (quotad.Tenant, error) { return sources.Tenants.Tenant(ctx, id) })
		if err != nil {
			return nil, err
		}
		return c.newTenant(ctx, tenant), nil
	}, c.cacheOptions(cacheTenants, o.CacheSize))
	c.tiers = newCache(c.guard, func(ctx context.Context, name string) (*quotad.Tier, error) {
		tier, err := guarded(c.guard, func() (quotad.Tier, error) { return sources.Tiers.Tier(ctx, name) })
		if err != nil {
			return nil, err
		}
		return &tier, nil
	}, c.cacheOptions(cacheTiers, maxTiers))
	c.presented = &batch[quotad.AdminToken]{budget: o.LoadBudget, find: func(ctx context.Context, texts []string) (map[string]quotad.AdminToken, error) {
		return guarded(c.guard, func() (map[string]quotad.AdminToken, error) { return sources.Tokens.Presented(ctx, texts) })
	}}
	// What a token's id is loaded by is its text, which each call brings along.
	c.tokens = newCache[quotad.AdminToken](c.guard, nil, c.cacheOptions(cacheTokens, maxTokens))
	groups := c.cacheOptions(cacheGroups, 1)
	groups.Sticky = true
	c.groups = newCache(c.guard, c.loadGroups, groups)

	c.metrics.register(o.Registerer, c)
	return c
}

// newTenant is what is kept of a tenant. A zone that this program's or machine's
// tables do not have, which an operator can only have named to another node, is
// taken for UTC: a quota that ends some hours off is better than calls that fail.
func (c *Checker) newTenant(ctx context.Context, tenant quotad.Tenant) *tenantEntry {
	zone, err := c.zones.zone(tenant.TimeZone)
	if err != nil {
		c.lines.failure(ctx, "took a tenant's time zone for UTC", err)
		zone = time.UTC
	}
	return &tenantEntry{tenant: tenant, calendar: calendar{zone: zone, anchor: tenant.BillingAnchorDay}}
}

// Tiers and service tokens are few: these bounds are there to be bounds.
const maxTiers, maxTokens = 10_000, 1_000

func (c *Checker) cacheOptions(which cacheName, size int) cacheOptions {
	return cacheOptions{
		Size: size, UnknownSize: min(c.opts.UnknownSize, max(size, 1000)),
		TTL: c.opts.CacheTTL, UnknownTTL: c.opts.UnknownTTL, Stale: c.opts.CacheStale, Budget: c.opts.LoadBudget,
		Now:     c.opts.Now,
		Observe: func(o outcome) { c.metrics.lookups[which][o].Inc() },
		Excused: func(err error) {
			c.lines.failure(context.Background(), "served what was known before, as a look-up failed",
				fmt.Errorf("look up in %s: %w", cacheNames[which], err))
		},
	}
}

// Invalidate makes what was changed be looked up again before it next serves. It
// is quick, and is to be called for each notice of a change.
func (c *Checker) Invalidate(resource quotad.Resource, id string) {
	switch resource {
	case quotad.ResourceKey:
		c.keys.Invalidate(id)
	case quotad.ResourceTenant:
		c.tenants.Invalidate(id)
	case quotad.ResourceTier:
		c.tiers.Invalidate(id)
	case quotad.ResourceRouteGroup:
		c.groups.Invalidate(allGroups)
	case quotad.ResourceAdminToken:
		c.tokens.Clear() // tokens are few, and not kept by id
	}
}

// Resync makes everything be looked up again before it next serves, because
// notices may have been missed. While the database is away, what was known
// before goes on serving.
func (c *Checker) Resync() {
	c.keys.Revalidate()
	c.tenants.Revalidate()
	c.tiers.Revalidate()
	c.tokens.Revalidate()
	c.groups.Revalidate()
}
