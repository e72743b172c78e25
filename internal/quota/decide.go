package quota

import (
	"fmt"
	"time"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/ratelimit"
)

// report writes the store's answer into a decision whose Limits stand as bind
// returned them.
func report(d *quotad.Decision, out ratelimit.Outcome, status []ratelimit.Status) {
	d.Allowed = out.Allowed
	d.Degraded = out.Degraded != ""
	d.DegradedBy = out.Degraded
	d.DelayMS = 0
	if out.Allowed { // a call that is refused is to come back, not to wait
		d.DelayMS = int64((out.Delay + time.Millisecond - 1) / time.Millisecond)
	}
	never := false
	for i := range d.Limits {
		l, s := &d.Limits[i], &status[i]
		l.Allowed = s.Allowed
		l.Remaining = max(0, s.Remaining)
		l.ResetAfter = quotad.WholeSeconds(s.Reset)
		l.ResetAt = out.Now.Add(s.Reset)
		if s.Allowed {
			continue
		}
		if l.Limit > 0 && d.Cost <= l.Limit {
			// Whoever is refused by a millisecond waits a second, never none.
			l.RetryAfter = max(1, quotad.WholeSeconds(s.Retry))
			l.ResetAfter = l.RetryAfter
		}
		if !l.Shadow {
			never = never || l.RetryAfter == 0
			d.RetryAfter = max(d.RetryAfter, l.RetryAfter)
		}
	}
	// A limit of 0 never passes, however long the caller waits for the others.
	if never {
		d.RetryAfter = 0
	}
}

// tooMuch is the error of a cost that an enforced limit can never hold.
func tooMuch(cost int64, limits []quotad.LimitStatus) error {
	for _, l := range limits {
		if !l.Shadow && l.Limit > 0 && cost > l.Limit {
			kind := "limit"
			if l.Algorithm == quotad.CalendarQuota {
				kind = "quota"
			}
			return quotad.NewError(quotad.CodeCostExceedsLimit,
				fmt.Sprintf("a cost of %d can never pass: the %s %q holds %d", cost, kind, l.Policy, l.Limit))
		}
	}
	return quotad.ErrCostExceedsLimit
}
