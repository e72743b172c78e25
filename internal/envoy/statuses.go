package envoy

import (
	"math"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/quotad/quotad"
)

// describe writes what a descriptor came to. The strictest of its limits speaks for
// it. Without one (unlimited, or nothing that we know) there is no current_limit, and
// Envoy shows nothing.
func (r *result) describe(to *ratelimitv3.RateLimitResponse_DescriptorStatus) {
	to.Code = ratelimitv3.RateLimitResponse_OK
	if r.refused() {
		to.Code = ratelimitv3.RateLimitResponse_OVER_LIMIT
	}
	l, ok := r.decision.Strictest()
	if !ok {
		if r.known && !r.refused() { // unlimited
			to.LimitRemaining = math.MaxUint32
		}
		return
	}
	to.CurrentLimit = &ratelimitv3.RateLimitResponse_RateLimit{
		Name: l.Policy, RequestsPerUnit: clamp(l.Limit), Unit: unitOf(&l),
	}
	to.LimitRemaining = clamp(l.Remaining)
	to.DurationUntilReset = &durationpb.Duration{Seconds: l.ResetAfter}
}

// clamp is a number of units as Envoy has room for it.
func clamp(n int64) uint32 { return uint32(min(max(n, 0), math.MaxUint32)) }

const (
	minute = 60
	hour   = 60 * minute
	day    = 24 * hour
	week   = 7 * day
)

// unitOf is the unit of Envoy's that a limit's window is, or its quota's period. Other
// windows have none and are UNKNOWN, which Envoy leaves out: a multiplier, which the
// protocol has by now, would be passed over by all Envoys before 1.40, and clients
// told of ten per minute where it is ten per five.
func unitOf(l *quotad.LimitStatus) ratelimitv3.RateLimitResponse_RateLimit_Unit {
	if l.Algorithm == quotad.CalendarQuota {
		return periodOf(l.Window)
	}
	switch l.Window {
	case 1:
		return ratelimitv3.RateLimitResponse_RateLimit_SECOND
	case minute:
		return ratelimitv3.RateLimitResponse_RateLimit_MINUTE
	case hour:
		return ratelimitv3.RateLimitResponse_RateLimit_HOUR
	case day:
		return ratelimitv3.RateLimitResponse_RateLimit_DAY
	case week:
		return ratelimitv3.RateLimitResponse_RateLimit_WEEK
	}
	return ratelimitv3.RateLimitResponse_RateLimit_UNKNOWN
}

// periodOf is the unit of a quota's period by its length, which summer time and the
// calendar stretch.
func periodOf(length int64) ratelimitv3.RateLimitResponse_RateLimit_Unit {
	switch within := func(from, to int64) bool { return from*day-2*hour <= length && length <= to*day+2*hour }; {
	case within(1, 1):
		return ratelimitv3.RateLimitResponse_RateLimit_DAY
	case within(7, 7):
		return ratelimitv3.RateLimitResponse_RateLimit_WEEK
	case within(28, 31):
		return ratelimitv3.RateLimitResponse_RateLimit_MONTH
	case within(365, 366):
		return ratelimitv3.RateLimitResponse_RateLimit_YEAR
	}
	return ratelimitv3.RateLimitResponse_RateLimit_UNKNOWN
}
