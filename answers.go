package quotad

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"
)

// answer is what was said to one question.
type answer struct {
	decision Decision
	// err is what kept quotad from deciding, an *Error.
	err error
	// problem is how quotad worded a refusal or an error; nil where it did not.
	problem *Problem
	headers relayed
	// failure is why a failure policy answered in quotad's place.
	failure error
}

// relayed are the headers of an answer that its question's own caller is to see,
// as relayedNames lists them. Whoever relays them need not know how they are made.
type relayed [len(relayedNames)][]string

// relayedNames are spelt as net/http does, so that handlers find and replace them.
var relayedNames = [...]string{
	"X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset", "Ratelimit-Policy", "Ratelimit",
	"X-Quotad-Degraded", "Content-Language",
}

// Indexes of relayedNames.
const (
	relayedDegraded = 5 + iota
	relayedLanguage
)

// errOdd is an answer that no quotad gives. What a proxy in between made of the
// request is not quotad's word, so it is handled as if none had been given.
var errOdd = errors.New("the answer is not quotad's")

// readAnswer reads what came back to a check. An error means that quotad has not
// spoken: a failure policy has to.
func readAnswer(status int, h http.Header, body []byte) (*answer, error) {
	a := &answer{}
	for i, key := range relayedNames {
		if v := h[key]; len(v) > 0 {
			a.headers[i] = v[:1:1] // shared by all that it is told to, so nobody may append to it in place
		}
	}
	if status == http.StatusOK {
		if err := readDecision(body, &a.decision); err != nil {
			return nil, err
		}
		if a.decision.Degraded {
			a.decision.DegradedBy = a.headers.degradedBy()
		}
		return a, nil
	}
	p, err := readProblem(status, h, body)
	if err != nil {
		return nil, err
	}
	if p == nil {
		a.err = odd(status)
		return a, nil
	}
	a.problem = p
	a.decision, a.err = answerOf(p)
	a.decision.DegradedBy = a.headers.degradedBy()
	a.decision.Degraded = a.decision.DegradedBy != ""
	return a, nil
}

// readDecision reads an admission. Only one that says so is one: a proxy's empty
// object is not.
func readDecision(body []byte, d *Decision) error {
	if err := json.Unmarshal(body, d); err != nil {
		return fmt.Errorf("%w: 200 OK without a decision: %w", errOdd, err)
	}
	if !d.Allowed {
		return fmt.Errorf("%w: 200 OK with a decision that does not allow the call", errOdd)
	}
	return nil
}

// degradedBy is the policy that answered in place of quotad's counters, "" if none did.
func (r *relayed) degradedBy() FailurePolicy {
	if v := r[relayedDegraded]; v != nil {
		return FailurePolicy(v[0])
	}
	return ""
}

// readProblem reads an answer that is not a success. nil is an answer in somebody
// else's words to what was wrong with the request: sending it anew would not help,
// and letting it pass would let a request pass that was made to be answered so.
func readProblem(status int, h http.Header, body []byte) (*Problem, error) {
	p := &Problem{}
	if json.Unmarshal(body, p) != nil || !p.says(status) {
		switch {
		case status < 400, status >= 500, status == http.StatusRequestTimeout, status == http.StatusTooManyRequests:
			return nil, fmt.Errorf("%w: %d %s", errOdd, status, http.StatusText(status))
		}
		return nil, nil
	}
	if p.Error = codeOf(status, p.Error); p.Error == CodeInternal {
		return nil, errors.New("quotad failed: 500 internal")
	}
	if p.RetryAfter <= 0 {
		p.RetryAfter = retryAfter(h)
	}
	return p, nil
}

// says reports whether the problem is one, of the status that it came with. Others
// write "error" too, but hardly a problem document around it.
//
// That there is no such resource, or method, no question is answered with: the base URL
// is wrong then, and nothing that a caller should be told.
func (p *Problem) says(status int) bool {
	return p.Error != "" && p.Title != "" && p.Status == status && status != http.StatusNotFound && status != http.StatusMethodNotAllowed
}

// odd is the error of an answer in somebody else's words.
func odd(status int) error {
	return &Error{Code: CodeInternal, Cause: fmt.Errorf("%w: %d %s; is the base URL that of a metered listener?", errOdd, status, http.StatusText(status))}
}

// codeOf reads the one table of errors backwards. A code that it does not have,
// as a newer quotad may send, is taken for one of the status.
func codeOf(status int, said Code) Code {
	if s, known := statuses[said]; known && s == status {
		return said
	}
	for _, c := range []Code{
		CodeInvalidRequest, CodeInvalidAPIKey, CodeForbidden, CodeNotFound, CodeMethodNotAllowed, CodeConflict,
		CodePreconditionFailed, CodePayloadTooLarge, CodeUnsupportedMedia, CodeInvalidFields, CodeRateLimitExceeded, CodeLimiterUnavailable,
	} {
		if statuses[c] == status {
			return c
		}
	}
	if 400 <= status && status < 500 {
		return CodeInvalidRequest
	}
	return CodeInternal
}

// retryAfter is the seconds of a Retry-After; 0 when it has none.
func retryAfter(h http.Header) int64 {
	seconds, err := strconv.ParseInt(h.Get("Retry-After"), 10, 64)
	if err != nil || seconds < 0 {
		return 0
	}
	return seconds
}

// answerOf is what a problem says: that a limit or a quota refuses, which is a
// decision, or why none was made.
func answerOf(p *Problem) (Decision, error) {
	if p.Status == http.StatusTooManyRequests {
		return Decision{RetryAfter: p.RetryAfter, Limits: slices.Clone(p.Limits)}, nil
	}
	return Decision{}, p.err()
}

// err is the error that ProblemOf made the problem of, as far as it shows it.
func (p *Problem) err() *Error {
	e := &Error{Code: p.Error, Detail: p.Detail, Fields: p.Fields, RetryAfter: time.Duration(p.RetryAfter) * time.Second}
	if e.Detail == p.Message || e.Detail == messages[p.Error] {
		e.Detail = ""
	}
	return e
}
