package httpapi

import (
	"net/http"
	"strconv"
	"time"

	"github.com/quotad/quotad"
)

// Header values that never change, shared by all answers.
var (
	noStore         = []string{"no-store"}
	noSniff         = []string{"nosniff"}
	jsonType        = []string{"application/json"}
	problemJSONType = []string{"application/problem+json"}
	closeConnection = []string{"close"}
	challenge       = []string{`ApiKey realm="quotad"`}
	degradedOpen    = []string{string(quotad.FailOpen)}
	degradedLocal   = []string{string(quotad.FailLocal)}
)

// headerValues gathers the values of an answer's headers in one text, so that
// they cost two allocations however many they are. Names are written as given.
type headerValues struct {
	text  []byte
	names [16]string
	ends  [16]int
	n     int
}

func (v *headerValues) int(n int64) { v.text = strconv.AppendInt(v.text, n, 10) }

// end makes what was appended since the last end the value of a header.
func (v *headerValues) end(name string) {
	v.names[v.n], v.ends[v.n] = name, len(v.text)
	v.n++
}

func (v *headerValues) set(name, value string) {
	v.text = append(v.text, value...)
	v.end(name)
}

// flush moves the values into the header.
func (v *headerValues) flush(h http.Header) {
	text, values, start := string(v.text), make([]string, v.n), 0
	for i := range v.n {
		values[i] = text[start:v.ends[i]]
		h[v.names[i]] = values[i : i+1 : i+1]
		start = v.ends[i]
	}
	v.reset()
}

func (v *headerValues) reset() { v.text, v.n = v.text[:0], 0 }

// decisionHeaders sets the headers of a metered answer, whatever its status:
// those of the strictest limit, those of all enforced limits, how long an admitted
// call is to wait, and what marks a degraded answer. No answer to a metered call may be stored: its headers are
// one caller's, and true for a moment.
func (x *exchange) decisionHeaders(d *quotad.Decision) {
	h := x.w.Header()
	h["Cache-Control"] = noStore
	switch d.DegradedBy {
	case quotad.FailOpen:
		h["X-Quotad-Degraded"] = degradedOpen
	case quotad.FailLocal:
		h["X-Quotad-Degraded"] = degradedLocal
	}
	v := &x.values
	if d.DelayMS > 0 {
		v.int(d.DelayMS)
		v.end("X-Quotad-Delay-Ms")
	}
	l, ok := d.Strictest()
	if !ok {
		return
	}
	v.int(l.Limit)
	v.end("X-RateLimit-Limit")
	v.int(l.Remaining)
	v.end("X-RateLimit-Remaining")
	v.int(x.reset(&l))
	v.end("X-RateLimit-Reset")
	if x.ietf {
		v.text = appendPolicies(v.text, d.Limits)
		v.end("RateLimit-Policy")
		v.text = appendLimits(v.text, d.Limits)
		v.end("RateLimit")
	}
}

// reset is the moment that ResetAfter names, in seconds of Unix time, rounded up.
func (x *exchange) reset(l *quotad.LimitStatus) int64 {
	at := l.ResetAt
	if at.IsZero() {
		at = x.now().Add(time.Duration(l.ResetAfter) * time.Second)
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
