package replies

import (
	"net/http"
	"strconv"

	"github.com/quotad/quotad"
)

// Denial is the problem of a call that a limit or a quota refuses.
func Denial(d *quotad.Decision) quotad.Problem {
	p := quotad.ProblemOf(&quotad.Error{Code: d.Refusal()})
	p.RetryAfter = d.RetryAfter
	if l, ok := d.Strictest(); ok {
		p.Detail = string(appendDetail(make([]byte, 0, 96), &l, d.Cost))
	}
	for i := range d.Limits {
		if l := &d.Limits[i]; !l.Allowed && !l.Shadow {
			p.ViolatedPolicies = append(p.ViolatedPolicies, l.Policy)
		}
	}
	return p
}

// appendDetail says which limit refuses, and by how much.
func appendDetail(b []byte, l *quotad.LimitStatus, cost int64) []byte {
	if l.Algorithm == quotad.CalendarQuota {
		b = append(b, "The quota "...)
	} else {
		b = append(b, "The limit "...)
	}
	b = append(b, l.Policy...)
	b = append(b, " has "...)
	b = strconv.AppendInt(b, l.Remaining, 10)
	b = append(b, " of "...)
	b = strconv.AppendInt(b, l.Limit, 10)
	b = append(b, " units left, and the call takes "...)
	b = strconv.AppendInt(b, cost, 10)
	return append(b, '.')
}

// Failure is the problem of a call that an error kept from being decided. Why a key
// does not work, or what broke, is not for the caller.
func Failure(err error) quotad.Problem {
	p := quotad.ProblemOf(err)
	switch p.Error {
	case quotad.CodeInvalidAPIKey, quotad.CodeInternal:
		p = quotad.ProblemOf(&quotad.Error{Code: p.Error})
	case quotad.CodeLimiterUnavailable, quotad.CodeStoreUnavailable:
		p.RetryAfter = max(p.RetryAfter, 1)
	}
	return p
}

// Challenge is the WWW-Authenticate of an answer that asks for a key.
const Challenge = `ApiKey realm="quotad"`

// Refusal adds the headers that a problem has whatever its media type: what it asks
// of the caller, and that nobody may keep it.
func (v *Values) Refusal(p *quotad.Problem) {
	v.Set("Cache-Control", "no-store")
	v.Set("X-Content-Type-Options", "nosniff")
	if p.Status == http.StatusUnauthorized {
		v.Set("WWW-Authenticate", Challenge)
	}
	if p.RetryAfter > 0 {
		v.SetInt("Retry-After", p.RetryAfter)
	}
}

// The media types of a problem.
const (
	JSON        = "application/json"
	ProblemJSON = "application/problem+json"
)

// MediaType is that of a problem for a client with this Accept header.
func MediaType(accept string) string {
	if quotad.AcceptsProblem(accept) {
		return ProblemJSON
	}
	return JSON
}
