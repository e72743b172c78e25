package quota

import "github.com/quotad/quotad"

// limit is one limit that holds for a call, and where it is written.
type limit struct {
	quotad.Limit
	Declared declared
	// Period is that of a quota, whose RateWindow is 0; "" of every other limit.
	Period quotad.Period
}

// limitsOf lists the limits of a call in a route group that asks for a key: by
// the tier, with the key's own override (key is nil for a service token), then the
// group's own, then the tier's quotas. Those without a number of units count
// nothing and are left out.
//
// The base limit counts each group by itself. Limits of the tier that name this
// group and have scope key take its place, whatever the size they set; one that
// is a shadow does not, because trying a limit out must not switch another off.
func limitsOf(tier *quotad.TierSpec, key *quotad.KeySpec, group *quotad.RouteGroupSpec) []limit {
	var list []limit
	add := func(l quotad.Limit, d declared) {
		if l.RateLimit != nil {
			list = append(list, limit{Limit: l, Declared: d})
		}
	}
	if !replacesBase(tier.Limits, group.Name) {
		add(base(tier, key, group.Name), inTier)
	}
	for _, l := range tier.Limits {
		if l.RouteGroup == group.Name || l.RouteGroup == quotad.AllGroups {
			add(l, inTier)
		}
	}
	for _, l := range group.Limits {
		add(l, inGroup)
	}
	for _, q := range tier.Quotas {
		if q.Quota != nil && (q.RouteGroup == group.Name || q.RouteGroup == quotad.AllGroups) {
			list = append(list, quotaLimit(q))
		}
	}
	return list
}

// quotaLimit is a quota as a limit of the algorithm that counts in periods.
func quotaLimit(q quotad.Quota) limit {
	return limit{Limit: quotad.Limit{
		Name: q.Name, RouteGroup: q.RouteGroup, Scope: q.Scope, Algorithm: quotad.CalendarQuota, RateLimit: q.Quota, Shadow: q.Shadow,
	}, Declared: inTier, Period: q.Period}
}

func replacesBase(limits []quotad.Limit, group string) bool {
	for _, l := range limits {
		if l.RouteGroup == group && l.Scope == quotad.ScopeKey && !l.Shadow {
			return true
		}
	}
	return false
}

// base is the base limit of a group. A key's own rate_limit and rate_window
// stand in for the tier's; the algorithm and shadow stay the tier's, and a
// bucket holds the key's rate_limit, as a burst made for another rate says
// nothing of this one.
//
// An override was written without knowing the tier, so its size may be more than
// the tier's algorithm counts exactly in that window. It is then counted by the
// next algorithm that does, which for all sizes is fixed_window at the latest.
func base(tier *quotad.TierSpec, key *quotad.KeySpec, group string) quotad.Limit {
	l := tier.Base()
	l.RouteGroup = group
	if key == nil || key.RateLimit == nil || key.RateWindow == nil {
		return l
	}
	l.RateLimit, l.RateWindow, l.Burst = key.RateLimit, *key.RateWindow, nil
	if !l.Countable() {
		l.Algorithm, l.MaxDelayMS = quotad.SlidingWindowCounter, 0
	}
	if !l.Countable() {
		l.Algorithm = quotad.FixedWindow
	}
	return l
}
