package httpapi

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/quotad/quotad"
)

// refuse answers with what an error amounts to.
func (x *exchange) refuse(err error) {
	if x.hungUp(err) {
		x.gone = true
		err = &quotad.Error{Code: quotad.CodeStoreUnavailable, Cause: err}
	}
	p := quotad.ProblemOf(err)
	if p.Error == quotad.CodeInternal {
		x.logFailure(err)
	}
	if x.w.Committed {
		// Half an answer can't be taken back; cutting it short shows that it is one.
		panic(http.ErrAbortHandler)
	}
	switch p.Error {
	case quotad.CodeInvalidAPIKey, quotad.CodeInternal:
		// Why a key does not work, or what broke, is not for the caller.
		p = quotad.ProblemOf(&quotad.Error{Code: p.Error})
	case quotad.CodeLimiterUnavailable, quotad.CodeStoreUnavailable:
		p.RetryAfter = max(p.RetryAfter, 1)
	}
	x.writeProblem(&p)
}

// deny answers a call that a limit or a quota refuses.
func (x *exchange) deny(d *quotad.Decision) error {
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
	if x.door == doorCheck {
		p.Limits = d.Limits
	}
	x.decisionHeaders(d)
	x.writeProblem(&p)
	return nil
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

// writeProblem is the one writer of refusals.
func (x *exchange) writeProblem(p *quotad.Problem) {
	x.answerAtOnce()
	language := x.messages.Pick(joined(x.r.Header["Accept-Language"]))
	p.Message = language.Text(p.Error, p.RetryAfter)

	h, status := x.w.Header(), p.Status
	h["Cache-Control"] = noStore
	h["X-Content-Type-Options"] = noSniff
	h["Content-Type"] = jsonType
	if acceptsProblem(joined(x.r.Header["Accept"])) {
		h["Content-Type"] = problemJSONType
	}
	x.values.set("Content-Language", language.Tag())
	h["Vary"] = append(h["Vary"], "Accept, Accept-Language")
	if status == http.StatusUnauthorized {
		h["WWW-Authenticate"] = challenge
	}
	if p.RetryAfter > 0 {
		x.values.int(p.RetryAfter)
		x.values.end("Retry-After")
	}
	if x.denied != 0 {
		x.values.int(int64(status))
		x.values.end("X-Quotad-Status")
		status = x.deniedStatus(status)
	}
	x.body = p.AppendJSON(x.body[:0])
	_ = x.write(status, x.body)
}

// deniedStatus is what stands for a status towards a gateway that asked for one
// status for all refusals. 401 and 403 it knows, and 500 is no decision.
func (x *exchange) deniedStatus(status int) int {
	if status == http.StatusUnauthorized || status == http.StatusInternalServerError {
		return status
	}
	return x.denied
}

// acceptsProblem reports whether an Accept header names application/problem+json
// and does not prefer application/json to it. Wildcards don't name it.
func acceptsProblem(accept string) bool {
	if !strings.Contains(accept, "problem+json") {
		return false
	}
	problem, plain := 0.0, 0.0
	for part := range strings.SplitSeq(accept, ",") {
		media, parameters, _ := strings.Cut(part, ";")
		switch strings.ToLower(strings.TrimSpace(media)) {
		case "application/problem+json":
			problem = max(problem, weight(parameters))
		case "application/json":
			plain = max(plain, weight(parameters))
		}
	}
	return problem > 0 && problem >= plain
}

// weight is the q of an Accept header's element; 1 where there is none.
func weight(parameters string) float64 {
	for p := range strings.SplitSeq(parameters, ";") {
		name, value, ok := strings.Cut(strings.TrimSpace(p), "=")
		if ok && strings.EqualFold(name, "q") {
			q, err := strconv.ParseFloat(value, 64)
			if err != nil || q < 0 {
				return 0
			}
			return min(q, 1)
		}
	}
	return 1
}

// joined is the value of a header that may have been sent in several lines.
func joined(lines []string) string {
	switch len(lines) {
	case 0:
		return ""
	case 1:
		return lines[0]
	default:
		return strings.Join(lines, ",")
	}
}
