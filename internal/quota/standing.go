package quota

import (
	"sync/atomic"
	"time"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/apikeys"
)

// keyEntry and tenantEntry are what the caches keep of a key and a tenant: the
// row, and the standing that was last made of it.
type keyEntry struct {
	stored   apikeys.Stored
	standing atomic.Pointer[standing]
}

type tenantEntry struct {
	tenant   quotad.Tenant
	calendar calendar
	// standing is that of calls with a service token.
	standing atomic.Pointer[standing]
}

// standing is all that is known of a caller before it says what it wants. It is
// made of entries of four caches and serves only as long as each of them would
// still be found there: whoever uses it has looked all four up, and compares.
// So no invalidation has to know what was derived from what.
type standing struct {
	key    *quotad.Key // nil for a service token
	tenant *tenantEntry
	tier   *quotad.Tier
	groups *groups
	plans  []atomic.Pointer[plan] // by group.at; made when they are first asked for
}

// newStanding returns the standing kept at p, or a new one in its place if
// anything that it was made of has been loaded again since.
func newStanding(p *atomic.Pointer[standing], key *quotad.Key, tenant *tenantEntry, tier *quotad.Tier, groups *groups) *standing {
	if s := p.Load(); s != nil && s.tenant == tenant && s.tier == tier && s.groups == groups {
		return s
	}
	s := &standing{key: key, tenant: tenant, tier: tier, groups: groups, plans: make([]atomic.Pointer[plan], len(groups.list))}
	p.Store(s)
	return s
}

// mayCall reports whether the caller may use the group at all.
func (s *standing) mayCall(g *group) bool {
	return s.key == nil || s.key.MayCall(g.spec.Name)
}

// plan returns the plan of the caller's calls in a group that asks for a key, at an
// instant. The policy is the server's own.
func (s *standing) plan(g *group, policy quotad.FailurePolicy, at time.Time) *plan {
	if p := s.plans[g.at].Load(); p != nil && p.serves(at) {
		return p
	}
	if s.tier.OnStoreFailure != nil {
		policy = *s.tier.OnStoreFailure
	}
	var spec *quotad.KeySpec
	var id string
	if s.key != nil {
		spec, id = &s.key.KeySpec, s.key.ID
	}
	p := newPlan(limitsOf(&s.tier.TierSpec, spec, &g.spec), s.tenant.tenant.ID, id, policy, &s.tenant.calendar, at)
	s.plans[g.at].Store(p)
	return p
}

// describe writes who calls into a decision.
func (s *standing) describe(d *quotad.Decision) {
	d.Tenant, d.Tier = s.tenant.tenant.ID, s.tier.Name
	if s.key != nil {
		d.KeyID = s.key.ID
	}
}
