package quota

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/ratelimit"
)

func TestSecondsAreRoundedUp(t *testing.T) {
	for d, want := range map[time.Duration]int64{
		0: 0, 1: 1, time.Millisecond: 1, time.Second - 1: 1, time.Second: 1, time.Second + 1: 2, time.Minute: 60,
		1<<63 - 1: 9223372037,
	} {
		if got := quotad.WholeSeconds(d); got != want {
			t.Errorf("WholeSeconds(%v) = %d, want %d", d, got, want)
		}
	}
}

func TestReport(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 500_000_000, time.UTC)
	of := func(policy string, size int64) quotad.LimitStatus {
		return quotad.LimitStatus{Policy: policy, Limit: size, Window: 60}
	}
	shadow := of("shadow", 1)
	shadow.Shadow = true
	refused := ratelimit.Status{Reset: 2100 * time.Millisecond, Retry: 2100 * time.Millisecond}
	longer := ratelimit.Status{Reset: time.Hour, Retry: time.Hour}
	allowed := ratelimit.Status{Allowed: true, Remaining: 3, Reset: 900 * time.Millisecond}

	for name, c := range map[string]struct {
		cost       int64
		limits     []quotad.LimitStatus
		status     []ratelimit.Status
		allowed    bool
		retryAfter int64
		each       []int64 // retry_after of each limit
	}{
		"allowed":                      {1, []quotad.LimitStatus{of("a", 5)}, []ratelimit.Status{allowed}, true, 0, []int64{0}},
		"refused":                      {1, []quotad.LimitStatus{of("a", 5), of("b", 5)}, []ratelimit.Status{refused, allowed}, false, 3, []int64{3, 0}},
		"the longest wait":             {1, []quotad.LimitStatus{of("a", 5), of("b", 5)}, []ratelimit.Status{longer, refused}, false, 3600, []int64{3600, 3}},
		"a shadow makes nobody wait":   {1, []quotad.LimitStatus{of("a", 5), shadow}, []ratelimit.Status{refused, longer}, false, 3, []int64{3, 3600}},
		"nor does it refuse":           {1, []quotad.LimitStatus{shadow}, []ratelimit.Status{longer}, true, 0, []int64{3600}},
		"a cost no shadow ever admits": {2, []quotad.LimitStatus{shadow}, []ratelimit.Status{{}}, true, 0, []int64{0}},
		"0 never passes":               {1, []quotad.LimitStatus{of("a", 0), of("b", 5)}, []ratelimit.Status{{Reset: time.Minute}, longer}, false, 0, []int64{0, 3600}},
		"refused within a millisecond": {1, []quotad.LimitStatus{of("a", 5)}, []ratelimit.Status{{}}, false, 1, []int64{1}},
	} {
		t.Run(name, func(t *testing.T) {
			d := quotad.Decision{Cost: c.cost, Limits: c.limits}
			report(&d, ratelimit.Outcome{Allowed: c.allowed, Now: now}, c.status)
			if d.Allowed != c.allowed || d.RetryAfter != c.retryAfter || d.Degraded {
				t.Errorf("allowed %v, retry after %d, degraded %v; want %v, %d", d.Allowed, d.RetryAfter, d.Degraded, c.allowed, c.retryAfter)
			}
			var each []int64
			for i, l := range d.Limits {
				each = append(each, l.RetryAfter)
				if l.ResetAt != now.Add(c.status[i].Reset) || l.Remaining != c.status[i].Remaining || l.Allowed != c.status[i].Allowed {
					t.Errorf("limit %d is reported as %+v", i, l)
				}
				if l.RetryAfter != 0 && l.ResetAfter != l.RetryAfter {
					t.Errorf("limit %d: reset after %d, retry after %d", i, l.ResetAfter, l.RetryAfter)
				}
			}
			if diff := cmp.Diff(c.each, each); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestDelayIsInMillisecondsRoundedUp(t *testing.T) {
	for delay, want := range map[time.Duration]int64{0: 0, 1: 1, time.Millisecond: 1, 1500 * time.Microsecond: 2} {
		var d quotad.Decision
		if report(&d, ratelimit.Outcome{Allowed: true, Delay: delay}, nil); d.DelayMS != want {
			t.Errorf("a delay of %v is %d ms, want %d", delay, d.DelayMS, want)
		}
	}
}

func TestDegradedDecisionSaysByWhat(t *testing.T) {
	for _, policy := range []quotad.FailurePolicy{quotad.FailOpen, quotad.FailLocal} {
		d := quotad.Decision{}
		report(&d, ratelimit.Outcome{Allowed: true, Degraded: policy}, nil)
		if !d.Degraded || d.DegradedBy != policy {
			t.Errorf("%s: %+v", policy, d)
		}
	}
}
