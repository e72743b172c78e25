package quota

import (
	"strconv"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/ratelimit"
)

// counterName is all that tells one counter from another. What is left out is
// as much of a decision as what is in: neither a tier's name nor a limit's size
// is a part, so that a tenant who changes tier, and a limit that is raised,
// lowered or overridden by a key, keep what was used. Nor is a quota's instant of
// beginning, so that a tenant who moves to another time zone within a period keeps
// what was used in it.
type counterName struct {
	// Kind says what ID is; "" where the limit counts a tenant as a whole.
	Kind identity
	// Tenant is "" in groups that know no tenant.
	Tenant string
	ID     string
	// Declared is where the limit stands, so that a tier and a group may use the
	// same policy name for different limits.
	Declared declared
	// RouteGroup is the limit's own: a group's name, or quotad.AllGroups. A base
	// limit counts each group by itself, so there it is the group of the call.
	RouteGroup string
	Policy     string
	Algorithm  quotad.Algorithm
	Window     int64 // seconds
	// Period is that of a quota, which stands in Window's place, and PeriodFirst the
	// date on which it began.
	Period      quotad.Period
	PeriodFirst string
}

// identity is what kind of thing a counter is for.
type identity string

// The identities. They are not the scopes: a limit of scope key counts the calls
// of a service token by subject, or by tenant.
const (
	ofTenant  identity = "tenant"
	ofKey     identity = "key"
	ofSubject identity = "subject"
	ofAddress identity = "address"
)

// declared is the kind of resource that a limit is written in.
type declared string

// Where limits stand.
const (
	inTier  declared = "tier"
	inGroup declared = "route_group"
)

// counter is the name as the stores know it.
func (n counterName) counter() ratelimit.Counter {
	span := strconv.FormatInt(n.Window, 10)
	if n.Period != "" {
		span = string(n.Period) + " " + n.PeriodFirst
	}
	return ratelimit.CounterOf(
		string(n.Kind), n.Tenant, n.ID, string(n.Declared), n.RouteGroup, n.Policy, string(n.Algorithm), span,
	)
}
