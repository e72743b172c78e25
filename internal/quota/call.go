package quota

import "net/netip"

// Call is one question: may this caller do this now?
type Call struct {
	// APIKey is the secret as presented; "" when the call carries none.
	APIKey string
	// ServiceToken is an admin token of role service, which speaks for Tenant.
	ServiceToken string
	Tenant       string
	// RouteGroup names the group; where it is "" Method and Path find it.
	RouteGroup string
	Method     string
	// Path is as it stands on the request line, still encoded, without the query.
	Path string
	// Cost is the units that the call takes; nil means the group's own cost.
	Cost *int64
	// Subject is the tenant's own end user; "" when none is named.
	Subject string
	// Address is the client's; it is matched against allowed_cidrs and counted by scope ip.
	Address netip.Addr
	// Door names the front door for metrics: ping, check, authorize or limits.
	Door string
}
