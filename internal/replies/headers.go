package replies

import (
	"strconv"
	"time"

	"github.com/quotad/quotad"
)

// Decision adds the headers of a metered answer, whatever its status: those of the
// strictest limit, those of all enforced limits where ietf is true, how long an
// admitted call is to wait, and what marks a degraded answer. now stands in for the
// counters' clock where the decision does not tell it.
func (v *Values) Decision(d *quotad.Decision, now time.Time, ietf bool) {
	if d.DegradedBy != "" {
		v.Set("X-Quotad-Degraded", string(d.DegradedBy))
	}
	if d.DelayMS > 0 {
		v.SetInt("X-Quotad-Delay-Ms", d.DelayMS)
	}
	l, ok := d.Strictest()
	if !ok {
		return
	}
	v.SetInt("X-RateLimit-Limit", l.Limit)
	v.SetInt("X-RateLimit-Remaining", l.Remaining)
	v.SetInt("X-RateLimit-Reset", reset(&l, now))
	if ietf {
		v.text = appendPolicies(v.text, d.Limits)
		v.end("RateLimit-Policy")
		v.text = appendLimits(v.text, d.Limits)
		v.end("RateLimit")
	}
}

// reset is the moment that ResetAfter names, in seconds of Unix time, rounded up.
func reset(l *quotad.LimitStatus, now time.Time) int64 {
	at := l.ResetAt
	if at.IsZero() {
		at = now.Add(time.Duration(l.ResetAfter) * time.Second)
	}
	if at.Nanosecond() > 0 {
		return at.Unix() + 1
	}
	return at.Unix()
}

// appendPolicies appends the enforced limits as RateLimit-Policy has them, such as
// "exports";q=20;w=300.
func appendPolicies(b []byte, limits []quotad.LimitStatus) []byte {
	start := len(b)
	for i := range limits {
		l := &limits[i]
		if l.Shadow {
			continue
		}
		b = appendMember(b, start, l.Policy)
		b = appendParameter(b, ";q=", l.Limit)
		if l.Window > 0 {
			b = appendParameter(b, ";w=", l.Window)
		}
	}
	return b
}

// appendLimits appends the enforced limits as RateLimit has them, such as
// "exports";r=19;t=15. A limit that will never admit the call has no t.
func appendLimits(b []byte, limits []quotad.LimitStatus) []byte {
	start := len(b)
	for i := range limits {
		l := &limits[i]
		if l.Shadow {
			continue
		}
		b = appendMember(b, start, l.Policy)
		b = appendParameter(b, ";r=", l.Remaining)
		if l.Allowed || l.RetryAfter > 0 {
			b = appendParameter(b, ";t=", l.ResetAfter)
		}
	}
	return b
}

// appendMember appends the next item of a structured list: a policy's name.
// Names hold nothing that a structured string would have to escape.
func appendMember(b []byte, start int, policy string) []byte {
	if len(b) > start {
		b = append(b, ", "...)
	}
	b = append(b, '"')
	b = append(b, policy...)
	return append(b, '"')
}

// maxStructured is the greatest integer of a structured field: 15 digits.
const maxStructured = 999_999_999_999_999

func appendParameter(b []byte, name string, n int64) []byte {
	b = append(b, name...)
	return strconv.AppendInt(b, min(n, maxStructured), 10)
}
