// Package quotad is the vocabulary of the quota service and its Go client:
// limits, tiers, tenants, keys, route groups, decisions, the kinds of error, their
// JSON, and what asks for decisions over HTTP.
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
// # Client
//
// A Client asks a quotad whether a caller may do something now: Check for one
// question, CheckAll for many, Limits for what is left. Client.Middleware asks about
// each request of an http.Handler; for echo there is the package quotadecho.
//
//	client, err := quotad.NewClient("http://quotad:8080", quotad.ClientOptions{OnFailure: quotad.FailOpen})
//	…
//	http.ListenAndServe(":80", client.Middleware(quotad.MiddlewareOptions{})(api))
//
// What a Client does where quotad fails:
//
//	away, slow, or broken by a proxy    ClientOptions.OnFailure answers: FailClosed
//	                                    with ErrLimiterUnavailable (503), FailOpen
//	                                    with an allowed Decision that is Degraded
//	                                    (X-Quotad-Degraded: open).
//	so five times in a row              no call is sent for a second, then one, and
//	                                    all again when that is answered. Until then
//	                                    each has cost ClientOptions.Timeout at most.
//	answers 503 itself                  stands, whatever the policy.
//	a proxy answers 4xx in its words    an error of CodeInternal, never an admission:
//	                                    a caller could make a proxy say it.
//	the answer is lost                  the charge may have been made. It is never
//	                                    sent again.
//
// A refusal is told again from memory, for as long as the same question can't pass
// but a second at most, the time in which an edit reaches all nodes too. A wait is
// rounded up, so its last second is not remembered, and neither is a degraded
// refusal: no call is refused that quotad would admit, but for an edit meanwhile.
// 4096 refusals are remembered, by key or tenant and the whole question.
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
