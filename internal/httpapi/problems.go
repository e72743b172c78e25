package httpapi

import (
	"fmt"
	"net/http"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

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
	if x.door == doorCheck || x.door == doorChecks {
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
	if x.denied != 0 {
		x.values.Set("X-Quotad-Problem", string(appendASCII(make([]byte, 0, len(x.body)), x.body)))
	}
	_ = x.write(status, x.body)
}

// appendASCII appends a JSON text as a header can carry it: what is not ASCII, which
// stands in strings only, is escaped.
func appendASCII(b, text []byte) []byte {
	for len(text) > 0 {
		r, n := utf8.DecodeRune(text)
		text = text[n:]
		if r < utf8.RuneSelf {
			b = append(b, byte(r))
			continue
		}
		for _, unit := range utf16.AppendRune(make([]uint16, 0, 2), r) {
			b = fmt.Appendf(b, `\u%04x`, unit)
		}
	}
	return b
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
