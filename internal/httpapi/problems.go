package httpapi

import (
	"net/http"
	"strings"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/replies"
)

// refuse answers with what an error amounts to.
func (x *exchange) refuse(err error) {
	if x.hungUp(err) {
		x.gone = true
		err = &quotad.Error{Code: quotad.CodeStoreUnavailable, Cause: err}
	}
	p := replies.Failure(err)
	if p.Error == quotad.CodeInternal {
		x.logFailure(err)
	}
	if x.w.Committed {
		// Half an answer can't be taken back; cutting it short shows that it is one.
		panic(http.ErrAbortHandler)
	}
	x.writeProblem(&p)
}

// deny answers a call that a limit or a quota refuses.
func (x *exchange) deny(d *quotad.Decision) error {
	p := replies.Denial(d)
	if x.door == doorCheck {
		p.Limits = d.Limits
	}
	x.decisionHeaders(d)
	x.writeProblem(&p)
	return nil
}

// writeProblem is the one writer of refusals.
func (x *exchange) writeProblem(p *quotad.Problem) {
	x.answerAtOnce()
	language := x.messages.Pick(joined(x.r.Header["Accept-Language"]))
	p.Message = language.Text(p.Error, p.RetryAfter)

	h, status := x.w.Header(), p.Status
	x.values.Refusal(p)
	x.values.Set("Content-Type", replies.MediaType(joined(x.r.Header["Accept"])))
	x.values.Set("Content-Language", language.Tag())
	h["Vary"] = append(h["Vary"], "Accept, Accept-Language")
	if x.denied != 0 {
		x.values.SetInt("X-Quotad-Status", int64(status))
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
