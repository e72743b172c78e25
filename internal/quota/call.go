package quota

import (
	"fmt"
	"net/netip"
	"strconv"

	"github.com/quotad/quotad"
)

// Call is one question: may this caller do this now?
type Call struct {
	// APIKey is the secret as presented; "" when the call carries none.
	APIKey string
	// ServiceToken is an admin token of role service, which speaks for Tenant.
	ServiceToken string
	Tenant       string
	// Vouched is true where the door itself answers for Tenant, Subject and IP, as a
	// service token would: it knows the peer in another way.
	Vouched bool
	// RouteGroup names the group; where it is "" Method and Path find it.
	RouteGroup string
	Method     string
	// Path is as it stands on the request line, still encoded, without the query.
	Path string
	// Cost is the units that the call takes; nil means the group's own cost.
	Cost *int64
	// Subject is the tenant's own end user, by quotad.ValidSubject; "" when none is
	// named. It is a claim of the caller, or of a proxy that the operator trusts.
	Subject string
	// Address is where the call came from; it is matched against allowed_cidrs,
	// and counted by scope ip where IP is not set.
	Address netip.Addr
	// IP is the end user's address that a check names in its body. Scope ip counts
	// it in place of Address. It is a claim of the caller, so allowed_cidrs never
	// look at it: whoever holds a leaked key could claim any address.
	IP netip.Addr
	// Fault is what the door found wrong with the call before it could be asked, as a
	// *quotad.Error; nil of a call that can be. The Checker answers with it where it
	// would look at the call itself: once the call is counted by its address, for who
	// sends nonsense is held to the same limits as others, and once its credential has
	// proven good. The other fields hold what the door could read. A fault of the
	// credential itself, such as two of them, leaves nothing to be proven.
	Fault error
	// Door names the front door for metrics: one of ping, check, checks, authorize,
	// limits, gateway, ratelimit and extauthz.
	Door string
	// Queue is where the call is held back for a leaky bucket; nil where that is up to
	// whoever gets the decision. Where it has no place, the bucket refuses what it
	// would delay.
	Queue Queue
}

// Queue holds calls back.
type Queue interface {
	// Enter reports whether there is a place for the call. It is asked before the call
	// is charged, where a limit of the tenant's may delay it, and each time says the
	// same. The tenant is "" in a group that asks for no key.
	Enter(tenant string) bool
}

// CostRule is what ParseCost takes, as it stands behind "must be".
const CostRule = "a whole number from 0 to 9007199254740991, given once"

// ParseCost reads a cost: digits, with no sign, fraction, exponent, space or
// leading zero.
func ParseCost(text string) (int64, bool) {
	if text == "" || len(text) > 1 && text[0] == '0' {
		return 0, false
	}
	for i := range len(text) {
		if text[i] < '0' || text[i] > '9' {
			return 0, false
		}
	}
	cost, err := strconv.ParseInt(text, 10, 64)
	return cost, err == nil && cost <= quotad.MaxUnits
}

// wrong is what is wrong with a call by itself, whoever makes it and wherever.
func (c *Call) wrong() error {
	switch {
	case c.Fault != nil:
		return c.Fault
	case c.Subject != "" && !quotad.ValidSubject(c.Subject):
		return &quotad.Error{Code: quotad.CodeInvalidRequest, Fields: quotad.Faults{"subject": "must be " + quotad.SubjectRule}}
	case c.Cost == nil:
		return nil
	case *c.Cost < 0:
		return quotad.NewError(quotad.CodeInvalidCost, "cost must be at least 0")
	case *c.Cost > quotad.MaxUnits:
		return quotad.NewError(quotad.CodeInvalidCost, fmt.Sprintf("cost must be at most %d", int64(quotad.MaxUnits)))
	}
	return nil
}

// units is the cost of a call in its group.
func (c *Call) units(group *group) int64 {
	if c.Cost == nil {
		return group.cost
	}
	return *c.Cost
}

// ofCredential reports whether a fault is one of the credential: there is none that
// could be looked at.
func ofCredential(fault error) bool {
	code := codeOf(fault)
	return code == quotad.CodeAmbiguousCredentials || code == quotad.CodeAPIKeyRequired
}
