// Package quotad is the vocabulary of the quota service and what its clients
// share with it: limits, tiers, tenants, keys, route groups, decisions, the
// kinds of error, and their JSON.
//
// It imports nothing but the standard library, and every other package of the
// module may import it.
//
// # Words
//
// Each word has one meaning everywhere: in Go, JSON, SQL, metrics and docs.
//
//   - tenant: a customer of the company that runs quotad.
//   - tier: a named set of limits; each tenant has exactly one.
//   - route group: a named set of method and path patterns with one cost.
//     What matches no group belongs to the group "default".
//   - limit: at most so many units in a window, for a scope, by an algorithm.
//   - window: the length of time that a limit speaks of, in whole seconds.
//   - quota: at most so many units in each period of the calendar.
//   - period: a day, week, month or year of a tenant's own calendar.
//   - burst: the capacity of a token bucket, or the queue of a leaky one.
//   - key: an API key. Its id is public, its secret is never stored.
//   - subject: a tenant's own end user, as named by the caller.
//   - cost: the units that a call takes; 0 peeks.
//   - decision: the answer to "may this caller do this now?".
//   - policy: a limit's name as clients see it.
//   - shadow: evaluated, counted and reported, never enforced.
//
// # Units
//
// JSON carries windows and waits in whole seconds, rounded up, delays in
// milliseconds where the name ends in _ms, and times in RFC 3339 UTC. Units of
// a limit are integers from 0 to MaxUnits.
//
// # Errors
//
// A refusal by a limit is a value (Decision.Allowed is false). Everything else
// that keeps a question from being answered is an *Error with one of the Codes;
// errors.Is(err, ErrNotFound) and its siblings compare codes.
//
// # Example
//
//	tier := quotad.TierSpec{
//		Name: "pro", RateLimit: quotad.Units(1000), RateWindow: 60,
//		Algorithm: quotad.SlidingWindowCounter,
//	}
//	if faults := tier.Validate(); faults != nil {
//		// faults["rate_window"] == "must be at least 1"
//	}
package quotad
