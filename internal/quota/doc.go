// Package quota answers the one question: may this caller do this now?
//
// A call goes one straight way: find its route group, find out who calls (key →
// tenant → tier, through caches), list the limits that hold, charge all of them
// in one step or none, and report where they stand.
//
// # Which limits hold
//
// In a group that asks for a key, in this order:
//
//   - the tier's base limit, counted per key and per group. Limits of the tier
//     that name the group and have scope key take its place (unless they are
//     shadows: trying a limit out switches no other off). A key's own rate_limit
//     and rate_window stand in for those of the base limit, and for no other; a
//     bucket then holds the key's rate_limit, without the tier's burst.
//   - every other limit of the tier that names the group, or "*";
//   - the group's own limits;
//   - the tier's quotas that name the group, or "*".
//
// A limit or quota of null counts nothing and is not reported. In a group
// that asks for no key, only the group's own limits hold, each per address.
//
// # What a limit counts by
//
//	scope    a call with a key      a call with a service token
//	key      the key                its subject, else the tenant
//	tenant   the tenant             the tenant
//	subject  tenant and subject     tenant and subject
//	ip       tenant and address     tenant and the address that the check names
//
// A limit per subject or per address does not concern a call without one, and is
// not reported for it; nobody shares a counter of "unknown". The address is the
// one that a check names as its ip, else the one that the call came from; that of
// a service says nothing of its users and is not counted. IPv6 addresses count by
// their /64, or as Options.IPv6Prefix says. In groups that ask for no key all
// tenants share the counters, so there an ip is believed only from a service
// token, and a call whose address is not known is refused as invalid_request.
//
// Counters are named in counters.go: what was used outlives edits of a limit's
// size, a change of tier, a rotated secret, and a key's own rate as long as
// window and algorithm stay the same.
//
// # Quotas
//
// A quota counts in periods of the tenant's own calendar (periods.go):
//
//	day     from midnight to midnight in its time zone: 23 or 25 hours where clocks
//	        change; where they skip midnight, from the instant that they skip to
//	week    from Monday
//	month   from the billing anchor day, or the last day of a month too short for it
//	year    from the billing anchor day of January
//
// Which period it is, the counters' clock says. A node asks by its own, and is
// told where that is wrong; nothing is charged before both agree. The period's
// first date, not its first instant, names the counter: a tenant who moves to
// another zone keeps what it used, as long as it is the same day, week, month or
// year there; another anchor day begins a new period. A tenant's zone that this
// machine does not know is taken for UTC, and logged.
//
// # Before authentication
//
// Options.IPLimit and FailedKeyLimit hold for each Call.Address, whoever calls, and
// before anything is looked up (addresses.go). They count in this node's memory,
// apart from all other counters, and cause no work elsewhere:
//
//	address      every call counts, also one that its door refuses (Call.Fault), but
//	             for those with a service token that works
//	failed-keys  a call whose key fails, for whatever reason, and one with two; the
//	             error stays the answer until this limit refuses. A key that works is
//	             never held to it
//
// A refusal is a Decision without a tenant and a route group, whose one limit has the
// policy's name. A call without an address is held to neither.
//
// # Caches
//
// Keys, tenants, tiers, service tokens and route groups are remembered for
// CacheTTL. What follows from them (a caller's plan in a group) serves only while
// each of them is the very entry that it was made of, so nothing has to be told
// to forget it. Invalidate and Resync are for notices of changes; see cache for
// what they promise. Ids that do not exist are remembered apart and briefly, and
// text that was never minted is refused without a look-up.
//
// # Units
//
// Waits in a Decision are whole seconds, rounded up, at least 1 on a refusal
// (0 from a limit of 0, which never passes). Windows are whole seconds; that of a
// quota is the length of its current period. DelayMS is milliseconds, rounded up.
//
// # Errors
//
// A refusal by a limit is a Decision. Everything else is a *quotad.Error:
// api_key_required, invalid_api_key (whatever is wrong with a credential, its
// tenant or the address that it came from; also for service tokens),
// ambiguous_credentials, route_not_allowed, invalid_path, invalid_request (a
// group, or a service's tenant, that does not exist), invalid_cost,
// cost_exceeds_limit, limiter_unavailable, store_unavailable.
//
// # Failure modes
//
//	database away    what is remembered goes on serving for CacheStale beyond its
//	                 TTL, route groups for ever. What was invalidated does not:
//	                 a key known to be revoked is never admitted again. All else
//	                 is store_unavailable and never remembered as unknown.
//	database hangs   as above. What is in use was asked for before its TTL ended, and
//	                 is not waited for; else the first look-ups wait a fortieth of
//	                 LoadBudget. Those of what is not remembered wait all of it; then
//	                 a breaker keeps further ones off it but for one per Pause.
//	counters away    the tier's on_store_failure answers, else Options.OnStoreFailure.
//	notices lost     changes are seen within CacheTTL; while the database does not
//	                 answer, only once it does, as what is remembered goes on serving.
//	caller hangs up  the charge is made whole, and look-ups go on for the others.
//
// # Example
//
//	checker := quota.New(quota.Sources{Keys: keys, Tenants: tiers, Tiers: tiers, RouteGroups: tiers, Tokens: tokens},
//		failover, quota.Options{Logger: logger, Registerer: registry, Touch: touches})
//	events.Subscribe(func(n events.Notice) { checker.Invalidate(n.Resource, n.ID) }, checker.Resync)
//
//	d, err := checker.Check(ctx, quota.Call{APIKey: key, RouteGroup: "exports", Address: peer, Door: "check"})
//	switch {
//	case err != nil:     // a *quotad.Error
//	case !d.Allowed:     // 429, after d.RetryAfter seconds
//	default:             // go ahead
//	}
package quota
