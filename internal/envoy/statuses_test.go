package envoy

import (
	"math"
	"testing"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/quotad/quotad"
)

func TestUnitsAreThoseOfExactWindowsAndOfPeriods(t *testing.T) {
	t.Parallel()
	window := func(w int64) quotad.LimitStatus { return quotad.LimitStatus{Algorithm: quotad.FixedWindow, Window: w} }
	period := func(w int64) quotad.LimitStatus {
		return quotad.LimitStatus{Algorithm: quotad.CalendarQuota, Window: w}
	}
	for _, c := range []struct {
		limit quotad.LimitStatus
		want  string
	}{
		{window(1), "SECOND"}, {window(60), "MINUTE"}, {window(3600), "HOUR"}, {window(86400), "DAY"}, {window(604800), "WEEK"},
		{window(2), "UNKNOWN"}, {window(300), "UNKNOWN"}, {window(86401), "UNKNOWN"}, {window(30 * 86400), "UNKNOWN"}, {window(365 * 86400), "UNKNOWN"},
		{period(23 * 3600), "DAY"}, {period(86400), "DAY"}, {period(25 * 3600), "DAY"},
		{period(7*86400 - 3600), "WEEK"}, {period(7 * 86400), "WEEK"}, {period(28 * 86400), "MONTH"}, {period(31*86400 + 3600), "MONTH"},
		{period(365 * 86400), "YEAR"}, {period(366 * 86400), "YEAR"}, {period(60), "UNKNOWN"}, {period(40 * 86400), "UNKNOWN"},
	} {
		if got := unitOf(&c.limit).String(); got != c.want {
			t.Errorf("%s of %d s: got %s, want %s", c.limit.Algorithm, c.limit.Window, got, c.want)
		}
	}
}

func TestNumbersNeverWrap(t *testing.T) {
	t.Parallel()
	d := quotad.Decision{Allowed: true, Limits: []quotad.LimitStatus{limit("base", quotad.MaxUnits, quotad.MaxUnits-1, 60, 1)}}
	st := &ratelimitv3.RateLimitResponse_DescriptorStatus{}
	(&result{known: true, decision: d}).describe(st)
	if st.GetLimitRemaining() != math.MaxUint32 || st.GetCurrentLimit().GetRequestsPerUnit() != math.MaxUint32 {
		t.Errorf("got %v", st)
	}
	for n, want := range map[int64]uint32{-1: 0, 0: 0, math.MinInt64: 0, 1 << 32: math.MaxUint32, 1<<32 - 1: math.MaxUint32, 7: 7} {
		if got := clamp(n); got != want {
			t.Errorf("%d: got %d", n, got)
		}
	}
	st = &ratelimitv3.RateLimitResponse_DescriptorStatus{}
	(&result{known: true, decision: quotad.Decision{Allowed: true}}).describe(st)
	if st.GetLimitRemaining() != math.MaxUint32 || st.GetCurrentLimit() != nil || st.GetCode() != isOK {
		t.Errorf("unlimited: %v", st)
	}
}
