package quota

import (
	"math"
	"net/netip"
	"time"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/callers"
	"github.com/quotad/quotad/internal/ratelimit"
)

// plan is all that is the same for every call of one caller in one route group,
// so that such a call hashes and looks up nothing twice. It never changes; one that
// has quotas serves while the current period of each lasts.
type plan struct {
	shard ratelimit.Shard
	// byAddress is true where the shard, too, is that of the call's address.
	byAddress bool
	charges   []ratelimit.Charge
	// limits are the charges as they are reported, without where they stand.
	limits []quotad.LimitStatus
	// open are the charges whose counter hangs on the call, in order.
	open []openCharge
	// delays is true where a leaky bucket may let a call wait.
	delays bool
	// policy answers while the counter store is away.
	policy quotad.FailurePolicy
	// from and until are when it serves, in ms since the epoch.
	from, until int64
}

// openCharge is a charge without its counter: of a limit per subject or address.
type openCharge struct {
	at   int // in charges
	name counterName
	// orTenant is true where a call without a subject counts as the tenant;
	// otherwise the limit does not concern a call without the identity.
	orTenant bool
}

// serves reports whether the plan is right for a call at the instant.
func (p *plan) serves(at time.Time) bool {
	ms := at.UnixMilli()
	return p.from <= ms && ms < p.until
}

// newPlan makes the plan of a tenant's calls with a key, or with a service token
// where keyID is "", for the periods of its calendar that hold the instant.
func newPlan(limits []limit, tenant, keyID string, policy quotad.FailurePolicy, calendar *calendar, at time.Time) *plan {
	p := &plan{shard: ratelimit.ShardOf(tenant), policy: policy, from: math.MinInt64, until: math.MaxInt64}
	for _, l := range limits {
		name := counterName{
			Tenant: tenant, Declared: l.Declared, RouteGroup: l.RouteGroup,
			Policy: l.Name, Algorithm: l.Algorithm, Window: l.RateWindow,
		}
		var in period
		if l.Period != "" {
			in = calendar.period(l.Period, at)
			name.Period, name.PeriodFirst = l.Period, in.first
		}
		o := openCharge{at: len(p.charges)}
		switch {
		case l.Scope == quotad.ScopeTenant:
			name.Kind = ofTenant
		case l.Scope == quotad.ScopeSubject:
			name.Kind = ofSubject
		case l.Scope == quotad.ScopeIP:
			name.Kind = ofAddress
		case keyID != "":
			name.Kind, name.ID = ofKey, keyID
		default:
			name.Kind, o.orTenant = ofSubject, true
		}
		p.add(l, name, o, in)
	}
	return p
}

// newOpenPlan makes the plan of a route group that asks for no key. Its limits
// count by address alone; the shard is that of the address, too.
func newOpenPlan(limits []quotad.Limit, policy quotad.FailurePolicy) *plan {
	p := &plan{byAddress: true, policy: policy, from: math.MinInt64, until: math.MaxInt64}
	for _, l := range limits {
		if l.RateLimit == nil {
			continue
		}
		p.add(limit{Limit: l, Declared: inGroup}, counterName{
			Kind: ofAddress, Declared: inGroup, RouteGroup: l.RouteGroup,
			Policy: l.Name, Algorithm: l.Algorithm, Window: l.RateWindow,
		}, openCharge{at: len(p.charges)}, period{})
	}
	return p
}

// add adds a limit; in is the current period of a quota.
func (p *plan) add(l limit, name counterName, o openCharge, in period) {
	charge := ratelimit.Charge{
		Limit: ratelimit.Limit{
			Algorithm: l.Algorithm, Units: *l.RateLimit, Window: time.Duration(l.RateWindow) * time.Second,
			MaxDelay: time.Duration(l.MaxDelayMS) * time.Millisecond,
		},
		Shadow: l.Shadow,
	}
	if l.Period != "" {
		charge.Limit.From, charge.Limit.Until = in.from.UnixMilli(), in.until.UnixMilli()
		p.from, p.until = max(p.from, charge.Limit.From), min(p.until, charge.Limit.Until)
		l.RateWindow = quotad.WholeSeconds(in.until.Sub(in.from))
	}
	if l.Burst != nil {
		charge.Limit.Burst = *l.Burst
	}
	p.delays = p.delays || charge.Limit.MaxDelay > 0 && !l.Shadow
	if name.Kind == ofSubject || name.Kind == ofAddress {
		o.name = name
		p.open = append(p.open, o)
	} else {
		charge.Counter = name.counter()
	}
	p.charges = append(p.charges, charge)
	p.limits = append(p.limits, quotad.LimitStatus{
		Policy: l.Name, Scope: l.Scope, Algorithm: l.Algorithm,
		Limit: charge.Limit.Size(), Window: l.RateWindow, Shadow: l.Shadow,
	})
}

// identities are what a call itself brings for its limits to count by.
type identities struct {
	subject string
	address netip.Addr
	bits    int // of an IPv6 address
	tenant  string
	queue   Queue // as Call.Queue
}

// hurried reports whether the call can't be held back as long as one of the limits may
// ask it to.
func (i identities) hurried(p *plan) bool {
	return i.queue != nil && p.delays && !i.queue.Enter(i.tenant)
}

// of returns the identity of a kind; "" where the call has none.
func (i identities) of(kind identity) string {
	switch {
	case kind == ofSubject:
		return i.subject
	case i.address.IsValid():
		return callers.Network(i.address, i.bits).String()
	}
	return ""
}

// endUser is the address that a call's limits per address count. A tenant may
// name that of its end user. The address of a service is that of the service and
// says nothing of who it asks for.
func endUser(call Call) netip.Addr {
	if call.IP.IsValid() || call.ServiceToken != "" || call.Vouched {
		return call.IP
	}
	return call.Address
}

// bind returns the charges of one call and what to report of each; the caller
// may write to limits, not to charges.
//
// A limit per subject, or per address, concerns the calls that have one: a call
// without is not counted by it, rather than all such calls together. Only a
// service token's calls fall back to the tenant, where the scope is key.
func (p *plan) bind(who identities) (shard ratelimit.Shard, charges []ratelimit.Charge, limits []quotad.LimitStatus) {
	limits = make([]quotad.LimitStatus, 0, len(p.limits))
	hurried := who.hurried(p)
	if len(p.open) == 0 && !hurried {
		return p.shard, p.charges, append(limits, p.limits...)
	}
	charges = make([]ratelimit.Charge, 0, len(p.charges))
	open := p.open
	for i := range p.charges {
		charge := p.charges[i]
		if len(open) > 0 && open[0].at == i {
			name := open[0].name
			name.ID = who.of(name.Kind)
			if name.ID == "" && open[0].orTenant {
				name.Kind = ofTenant
			}
			open = open[1:]
			if name.ID == "" && name.Kind != ofTenant {
				continue
			}
			charge.Counter = name.counter()
		}
		if hurried {
			charge.Limit.MaxDelay = 0
		}
		charges = append(charges, charge)
		limits = append(limits, p.limits[i])
	}
	return p.shardOf(who), charges, limits
}

func (p *plan) shardOf(who identities) ratelimit.Shard {
	if p.byAddress {
		return ratelimit.ShardOf(who.of(ofAddress))
	}
	return p.shard
}
