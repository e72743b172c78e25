package quotad

import "time"

// Decision answers "may this caller do this now?".
type Decision struct {
	Allowed    bool   `json:"allowed"`
	Tenant     string `json:"tenant"`
	KeyID      string `json:"key_id"`
	Tier       string `json:"tier"`
	RouteGroup string `json:"route_group"`
	Cost       int64  `json:"cost"`
	// RetryAfter is the whole seconds, rounded up and at least 1, after which the
	// same call passes if nothing else is charged meanwhile; 0 when allowed or
	// when it never will (a limit of 0).
	RetryAfter int64 `json:"retry_after"`
	// DelayMS is how long, in milliseconds, rounded up, the caller of an allowed
	// call is to wait before it acts: the longest that a leaky bucket asks for.
	DelayMS int64 `json:"delay_ms"`
	// Degraded is true when a failure policy answered in place of the counter store.
	Degraded bool          `json:"degraded"`
	Limits   []LimitStatus `json:"limits"`

	// DegradedBy is the policy that answered: FailOpen or FailLocal, else "".
	DegradedBy FailurePolicy `json:"-"`
}

// LimitStatus is where one limit stands after a decision.
type LimitStatus struct {
	Policy    string    `json:"policy"`
	Scope     Scope     `json:"scope"`
	Algorithm Algorithm `json:"algorithm"`
	// Limit is the most units that the window, the bucket or the period holds.
	Limit int64 `json:"limit"`
	// Remaining is the units left, never negative.
	Remaining int64 `json:"remaining"`
	// Window is in seconds; of a quota the length of its current period.
	Window int64 `json:"window"`
	// ResetAfter is the whole seconds, rounded up, until more is left: on a
	// refusal the same as RetryAfter.
	ResetAfter int64 `json:"reset_after"`
	// RetryAfter is 0 when this limit allows the call.
	RetryAfter int64 `json:"retry_after"`
	Allowed    bool  `json:"allowed"`
	Shadow     bool  `json:"shadow"`

	// ResetAt is the moment that ResetAfter names, by the counter store's clock. It
	// is not in the JSON, so what a Client returns has none.
	ResetAt time.Time `json:"-"`
}

// Strictest is the enforced limit that speaks for the decision in single-limit
// headers: the refusing one with the longest wait, else the one with least left.
// ok is false when no limit is enforced.
func (d *Decision) Strictest() (l LimitStatus, ok bool) {
	for _, c := range d.Limits {
		if c.Shadow {
			continue
		}
		if !ok || stricter(c, l) {
			l, ok = c, true
		}
	}
	return l, ok
}

// Refusal is the kind of error that a refused decision amounts to: that of the
// limit which speaks for it.
func (d *Decision) Refusal() Code {
	if l, ok := d.Strictest(); ok && l.Algorithm == CalendarQuota {
		return CodeQuotaExceeded
	}
	return CodeRateLimitExceeded
}

// stricter reports whether a says more about the caller's next call than b.
func stricter(a, b LimitStatus) bool {
	if a.Allowed != b.Allowed {
		return !a.Allowed
	}
	if !a.Allowed {
		// A limit of 0 has no wait because it never passes: longest of all.
		if (a.RetryAfter == 0) != (b.RetryAfter == 0) {
			return a.RetryAfter == 0
		}
		return a.RetryAfter > b.RetryAfter
	}
	return a.Remaining < b.Remaining
}
