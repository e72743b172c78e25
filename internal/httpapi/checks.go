package httpapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"unicode/utf8"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/messages"
	"github.com/quotad/quotad/internal/quota"
	"github.com/quotad/quotad/internal/replies"
)

// maxChecksBody is the longest body of a list of checks, in bytes.
const maxChecksBody = 1 << 20

// checks answers POST /v1/checks: many questions of one caller at once. Each has its
// own result, so that the answer is 200 unless none was asked.
func (x *exchange) checks() error {
	key, token, err := x.keyOrToken()
	if err != nil {
		return err
	}
	x.call.APIKey, x.call.ServiceToken = key, token
	if _, err := x.query(); err != nil {
		return err
	}
	body, err := x.readBody(maxChecksBody)
	if err != nil {
		return err
	}
	calls, err := decodeChecks(body, token != "")
	if err != nil {
		return err
	}
	of := x.question()
	calls[0].APIKey, calls[0].ServiceToken, calls[0].Address, calls[0].Door = key, token, of.Address, of.Door // those of all
	results, decision, err := x.checker.CheckAll(x.r.Context(), calls)
	switch {
	case err != nil:
		return err
	case results == nil: // kept out by its address
		return x.deny(&decision)
	}
	return x.writeResults(results)
}

// writeResults answers with the results. Their limits are of many counters, maybe of
// many tenants, so none of them speaks for the answer in its headers.
func (x *exchange) writeResults(results []quota.Result) error {
	language := x.messages.Pick(joined(x.r.Header["Accept-Language"]))
	b, worded := append(x.body[:0], `{"results":[`...), false
	var degraded []string
	for i := range results {
		if i > 0 {
			b = append(b, ',')
		}
		r := &results[i]
		switch {
		case r.Decision.DegradedBy == quotad.FailOpen:
			degraded = degradedOpen
		case r.Decision.DegradedBy == quotad.FailLocal && degraded == nil:
			degraded = degradedLocal
		}
		if r.Err == nil && r.Decision.Allowed {
			b = r.Decision.AppendResult(b)
			continue
		}
		p := x.problemOf(r, language)
		b, worded = p.AppendJSON(b), true
	}
	x.body = append(b, `]}`...)

	h := x.w.Header()
	h["Cache-Control"], h["Content-Type"] = noStore, jsonType
	if degraded != nil {
		h["X-Quotad-Degraded"] = degraded
	}
	if worded {
		x.values.Set("Content-Language", language.Tag())
		h["Vary"] = append(h["Vary"], "Accept-Language")
	}
	return x.write(http.StatusOK, x.body)
}

// problemOf is what a check alone would have been answered.
func (x *exchange) problemOf(r *quota.Result, language *messages.Language) quotad.Problem {
	var p quotad.Problem
	switch {
	case r.Err == nil:
		p = replies.Denial(&r.Decision)
		p.Limits = r.Decision.Limits
	case x.hungUp(r.Err):
		x.gone = true
		p = replies.Failure(&quotad.Error{Code: quotad.CodeStoreUnavailable, Cause: r.Err})
	default:
		if p = replies.Failure(r.Err); p.Error == quotad.CodeInternal {
			x.logFailure(r.Err)
		}
	}
	p.Message = language.Text(p.Error, p.RetryAfter)
	return p
}

// decodeChecks reads the body of a list of checks. What is wrong with one check is the
// Fault of its call, with all its fields by their path in the body, such as
// "checks[3].cost". What is wrong with the body as a whole is an error, which then
// names the faults of the checks, too.
func decodeChecks(body []byte, byToken bool) ([]quota.Call, error) {
	if !utf8.Valid(body) || !json.Valid(body) {
		return nil, unreadableChecks(string(body), byToken)
	}
	m := members{text: string(body)}
	if !m.open() {
		return nil, quotad.NewError(quotad.CodeInvalidRequest, "The body must be one JSON object.")
	}
	var faults quotad.Faults
	var calls []quota.Call
	given := false
	for m.next() && len(faults) < maxFaults {
		switch name := unquote(m.key); {
		case name != "checks":
			faults.Add(shown(name), "is not a field of this body")
		case given:
			faults.Add(name, twice(name))
		default:
			given = true
			calls = checksOf(m.value, byToken, &faults)
		}
	}
	if !given {
		faults.Add("checks", "is required")
	}
	if len(faults) > 0 {
		addFaults(&faults, calls)
		return nil, faulty(faults)
	}
	return calls, nil
}

// checksOf reads the list of checks.
func checksOf(text string, byToken bool, faults *quotad.Faults) []quota.Call {
	list := members{text: text}
	if !list.openArray() {
		faults.Add("checks", "must be a list")
		return nil
	}
	var calls []quota.Call
	for list.nextElement() {
		if len(calls) == quotad.MaxChecks {
			calls = nil
			break
		}
		if calls == nil {
			calls = make([]quota.Call, 0, min(quotad.MaxChecks, 1+len(text)/16)) // about the shortest check
		}
		var call quota.Call
		var wrong quotad.Faults
		if m := (members{text: list.value}); !m.open() {
			call.Fault = faulty(quotad.Faults{pathOf(len(calls)): "must be an object"})
		} else if call, wrong = checkOf(&m, byToken); len(wrong) > 0 {
			call.Fault = faulty(below(pathOf(len(calls)), wrong))
		}
		calls = append(calls, call)
	}
	if len(calls) == 0 {
		faults.Add("checks", fmt.Sprintf("must hold 1 to %d checks", quotad.MaxChecks))
	}
	return calls
}

// pathOf is where a check stands in the body.
func pathOf(i int) string { return "checks[" + strconv.Itoa(i) + "]" }

// below are faults of an object that stands at a path.
func below(path string, faults quotad.Faults) quotad.Faults {
	at := make(quotad.Faults, len(faults))
	for field, fault := range faults {
		at[path+"."+field] = fault
	}
	return at
}

// addFaults adds the faults of calls, as far as one answer lists them.
func addFaults(faults *quotad.Faults, calls []quota.Call) {
	for i := range calls {
		wrong, ok := calls[i].Fault.(*quotad.Error)
		if !ok {
			continue
		}
		for field, fault := range wrong.Fields {
			if len(*faults) < maxFaults {
				faults.Add(field, fault)
			}
		}
	}
}

// unreadableChecks is the fault of a body that is not JSON: that of its costs, where
// all the rest is JSON.
func unreadableChecks(text string, byToken bool) error {
	repaired, at := make([]byte, 0, len(text)), 0
	for _, cost := range bareCost.FindAllStringSubmatchIndex(text, -1) {
		if !json.Valid([]byte(text[cost[2]:cost[3]])) {
			repaired = append(append(repaired, text[at:cost[2]]...), `""`...) // no cost, but JSON
			at = cost[3]
		}
	}
	if repaired = append(repaired, text[at:]...); at > 0 && utf8.Valid(repaired) && json.Valid(repaired) {
		calls, err := decodeChecks(repaired, byToken)
		var faults quotad.Faults
		if addFaults(&faults, calls); err == nil {
			err = faulty(faults)
		}
		if err != nil {
			return err
		}
	}
	return quotad.NewError(quotad.CodeInvalidRequest, "The body is not valid JSON in UTF-8.")
}
