package quotad

import (
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Problem is the one JSON shape of every answer that is not a success, on the
// metered API and the admin API alike. It is an RFC 9457 problem document too.
type Problem struct {
	Error Code `json:"error"`
	// Message is for people, in the language that they asked for.
	Message string `json:"message"`
	// RetryAfter is the whole seconds, rounded up and at least 1, after which the
	// same call may succeed; left out where nothing is known of that.
	RetryAfter int64  `json:"retry_after,omitempty"`
	Type       string `json:"type"`
	Title      string `json:"title"`
	Status     int    `json:"status"`
	// Detail says in English what is wrong with this one request.
	Detail string `json:"detail"`
	// ViolatedPolicies are the names of the limits that refuse the call.
	ViolatedPolicies []string `json:"violated-policies,omitempty"`
	// Fields are all faults of the body by field.
	Fields Faults `json:"fields,omitempty"`
	// Limits are where the limits of a refused call stand.
	Limits []LimitStatus `json:"limits,omitempty"`
}

// ProblemOf is the answer that an error amounts to. What is not an *Error is
// CodeInternal and shows nothing of its text.
func ProblemOf(err error) Problem {
	var e *Error
	if !errors.As(err, &e) {
		e = &Error{Code: CodeInternal}
	}
	p := Problem{
		Error: e.Code, Message: messages[e.Code], Status: e.Code.Status(), Detail: e.Detail,
		RetryAfter: WholeSeconds(e.RetryAfter), Fields: e.Fields,
	}
	p.Type, p.Title = problemType(p.Status)
	if p.Message == "" {
		p.Message = p.Title
	}
	if p.Detail == "" {
		p.Detail = p.Message
	}
	return p
}

// WholeSeconds is a wait as JSON and headers carry it: rounded up.
func WholeSeconds(d time.Duration) int64 {
	s := int64(d / time.Second)
	if d > time.Duration(s)*time.Second {
		s++
	}
	return s
}

// problemType is the problem type of a status and the title that goes with it:
// the registered ones of rate limiting, else none of its own.
func problemType(status int) (uri, title string) {
	switch status {
	case http.StatusTooManyRequests:
		return "https://iana.org/assignments/http-problem-types#quota-exceeded",
			"Request cannot be satisfied as assigned quota has been exceeded"
	case http.StatusServiceUnavailable:
		return "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",
			"Request cannot be satisfied due to temporary server capacity constraints"
	default:
		return "about:blank", http.StatusText(status)
	}
}

// messages are the English messages by code.
var messages = map[Code]string{
	CodeAPIKeyRequired:       "An API key is required: send it in the X-API-Key header.",
	CodeInvalidAPIKey:        "The API key is not valid.",
	CodeAmbiguousCredentials: "Send one credential only.",
	CodeInvalidCost:          "The cost must be a whole number of units, 0 or more.",
	CodeCostExceedsLimit:     "The cost is above what the limit can ever admit.",
	CodeInvalidPath:          "The path is not valid.",
	CodeInvalidRequest:       "The request is not valid.",
	CodeRouteNotAllowed:      "This API key may not call this route group.",
	CodeRateLimitExceeded:    "Too many requests: the rate limit is exceeded.",
	CodeQuotaExceeded:        "The quota of this period is used up.",
	CodeLimiterUnavailable:   "The limiter is unavailable. Try again shortly.",
	CodeStoreUnavailable:     "The store is unavailable. Try again shortly.",
	CodeUpstreamUnavailable:  "The service behind the gateway is unavailable. Try again shortly.",
	CodeUpstreamTimeout:      "The service behind the gateway did not answer in time.",
	CodeUnauthorized:         "A valid admin token is required: send it as Authorization: Bearer.",
	CodeForbidden:            "This admin token's role does not allow that.",
	CodeNotFound:             "There is no such resource.",
	CodeMethodNotAllowed:     "This resource does not answer that method.",
	CodeExists:               "A resource of that name exists.",
	CodeInUse:                "The resource is in use.",
	CodeConflict:             "The request conflicts with the state of the resource.",
	CodePreconditionFailed:   "The resource has changed since it was read.",
	CodePayloadTooLarge:      "The body is too large.",
	CodeUnsupportedMedia:     "The body's media type is not supported.",
	CodeInvalidFields:        "Some fields are not valid.",
	CodeIdempotencyMismatch:  "This Idempotency-Key was used for another request.",
	CodeInternal:             "Something went wrong on our side.",
}

// AcceptsProblem reports whether an Accept header names application/problem+json
// and does not prefer application/json to it. Wildcards don't name it.
func AcceptsProblem(accept string) bool {
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
