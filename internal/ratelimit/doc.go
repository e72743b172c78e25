// Package ratelimit judges calls against limits in one atomic step.
//
// An algorithm is a few pure functions of a state, a time, a limit and a cost
// (algorithms.go and the file of each). Two stores run them: Memory under a lock,
// and Redis in one Lua script (take.lua) that holds the same decisions. What a
// caller is told (units left, waits) is computed in Go alone, from the state that
// either store reports, so that the two can only differ in a decision; random
// sequences hold both against a slow model in rational numbers.
//
// # Algorithms
//
//	sliding_window_counter  Cloudflare, "How we built rate limiting capable of scaling
//	                        to millions of domains" (2017). An estimate: exact on what
//	                        it counts, the previous window taken as even. Admits less
//	                        than the limit under constant polling of tiny limits, and
//	                        up to 2L−1 in a rolling window to a caller who aims at it.
//	sliding_window_log      Exact for every window, for memory in proportion to calls.
//	fixed_window            Smallest. Up to 2L around a boundary.
//	token_bucket            Burst at once, then a steady rate.
//	leaky_bucket            Its mirror image as a queue: a call that does not fit waits
//	                        for up to MaxDelay.
//	calendar_quota          Counts in a period that the caller names.
//
// Refused calls are not counted: a caller who hammers is served again as soon as one
// who waits.
//
// # Units
//
// Times are whole milliseconds, windows whole seconds, units and costs integers to
// quotad.MaxUnits; nothing is rounded but what a caller is told, and that upwards.
// Redis's clock is the only clock of a Redis store, a monotonic one that of a Memory.
// A clock that steps back makes time stand still and gives nothing back.
//
// # One call, many limits, many calls
//
// All charges of a call are judged on the same instant; if every enforced limit
// admits the cost, each is charged, else none is. A shadow is charged when it admits,
// and never refuses. Calls that wait for Redis at the same time travel as one list,
// which the script judges in order (batch.go, lane.go). A call that is known to be
// refused costs no round trip (refusals.go).
//
// A caller may bring many calls at once (questions.go). They go with those of others,
// and wake it once. Each sees what those before it charged; where they do not fit into
// one list, the rest goes when that is back. In a Cluster those of each hash tag go by
// themselves, as they share no counter.
//
// # Errors and failure
//
//   - quotad.ErrCostExceedsLimit: the cost is above the size of an enforced limit.
//   - ErrPeriod: the store's time is outside a quota's period; ask again with the right one.
//   - anything else from Redis: the call may or may not have been charged. It is never
//     sent again. Failover answers it by a policy: open admits, closed is
//     quotad.ErrLimiterUnavailable, local holds the same limits in this node's memory,
//     so that n nodes admit at most n times the limit while Redis is away.
//
// A list that stalls takes nothing but its own calls with it: those behind it go after
// a tenth of the time budget, and to the breaker it is one failure. Many calls that one
// caller brings have one budget in all, and each its own policy.
//
// A counter that Redis evicts or loses in a failover begins anew: run it with the
// noeviction policy and watch evicted_keys.
//
// # Example
//
// A bucket of 3 units that refills one a second:
//
//	limit := ratelimit.Limit{Algorithm: quotad.TokenBucket, Units: 1, Window: time.Second, Burst: 3}
//	at 0s, cost 2: allowed, 1 left, full again in 2s
//	at 0s, cost 2: refused, 1 left, retry in 1s
//	at 1s, cost 0: allowed, 2 left, full again in 1s: a peek, nothing is charged
//
// testdata/scenarios holds many more, as tests.
package ratelimit
