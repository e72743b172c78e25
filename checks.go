package quotad

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strconv"
)

// MaxChecks is the most checks of one call of POST /v1/checks.
const MaxChecks = 100

// CheckRequest is the body of POST /v1/check, and each of the "checks" in that of
// POST /v1/checks. It names the route group, or the method and path of a call.
type CheckRequest struct {
	RouteGroup string `json:"route_group,omitempty"`
	Method     string `json:"method,omitempty"`
	// Path is as it stands on the request line, still encoded; a query does not count.
	Path string `json:"path,omitempty"`
	// Cost is in units, 0 to MaxUnits; nil means the route group's own, 0 peeks.
	Cost *int64 `json:"cost,omitempty"`
	// Subject is the tenant's own end user, at most 255 bytes.
	Subject string `json:"subject,omitempty"`
	// IP is the end user's address, for limits of scope ip.
	IP string `json:"ip,omitempty"`
	// Tenant is who a service token speaks for; with an API key it is refused.
	Tenant string `json:"tenant,omitempty"`

	// APIKey is the caller's, for a Client to send in its header.
	APIKey Credential `json:"-"`
	// ForwardedFor is the address that the call came from, for a Client to tell: as
	// the IP, where a service token asks and none is set; else in X-Forwarded-For,
	// which quotad believes of its --trusted-proxies, and then also compares with the
	// allowed_cidrs of a key.
	ForwardedFor netip.Addr `json:"-"`
}

// CheckResult is one of the "results" that POST /v1/checks answers with: what
// POST /v1/check would have answered to that check, with its status. Where that is
// 200 it holds the Decision, else the Problem. Its JSON is the members of the one or
// the other beside "status".
type CheckResult struct {
	Status   int
	Decision *Decision
	Problem  *Problem
}

// AppendJSON appends the result as JSON to b.
func (r *CheckResult) AppendJSON(b []byte) []byte {
	if r.Problem != nil {
		return r.Problem.AppendJSON(b) // it holds its status
	}
	return r.Decision.AppendResult(b)
}

// AppendResult appends an admitted decision, as POST /v1/checks answers with it, to b.
func (d *Decision) AppendResult(b []byte) []byte {
	b = append(b, `{"status":`...)
	b = strconv.AppendInt(b, http.StatusOK, 10)
	at := len(b)
	b = d.AppendJSON(b)
	b[at] = ',' // in place of the decision's brace
	return b
}

// Answer is the result as Client.Check gives it: a decision, or the error that kept
// it from being made.
func (r *CheckResult) Answer() (Decision, error) {
	switch {
	case r.Decision != nil:
		return *r.Decision, nil
	case r.Problem != nil:
		return answerOf(r.Problem)
	default:
		return Decision{}, &Error{Code: CodeInternal, Cause: errors.New("a check's result holds neither a decision nor a problem")}
	}
}

// MarshalJSON writes what AppendJSON does.
func (r CheckResult) MarshalJSON() ([]byte, error) {
	if r.Decision == nil && r.Problem == nil {
		return nil, fmt.Errorf("write a check's result: it holds neither a decision nor a problem")
	}
	return r.AppendJSON(nil), nil
}

// UnmarshalJSON reads a result of either kind. Members that it does not know it
// leaves out, as a later server may send more.
func (r *CheckResult) UnmarshalJSON(text []byte) error {
	var either eitherResult
	if err := json.Unmarshal(text, &either); err != nil {
		return fmt.Errorf("read a check's result: %w", err)
	}
	*r = either.result()
	return nil
}

// eitherResult has the members of both kinds of result, so that one is read at once,
// before its kind is known.
type eitherResult struct {
	Decision // what both kinds have goes here, where it stands less deep
	problemResult
}

type problemResult struct{ Problem }

// result is the result of the kind that the status says; it is a part of e.
func (e *eitherResult) result() CheckResult {
	r := CheckResult{Status: e.Problem.Status}
	if r.Status == http.StatusOK {
		r.Decision = &e.Decision
		return r
	}
	e.Problem.RetryAfter, e.Problem.Limits = e.Decision.RetryAfter, e.Decision.Limits
	r.Problem = &e.Problem
	return r
}
