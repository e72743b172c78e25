package quotad

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Code is the kind of an error, as it stands in the "error" field of an answer.
type Code string

// The codes of the metered API.
const (
	CodeAPIKeyRequired       Code = "api_key_required"
	CodeInvalidAPIKey        Code = "invalid_api_key"
	CodeAmbiguousCredentials Code = "ambiguous_credentials"
	CodeInvalidCost          Code = "invalid_cost"
	CodeCostExceedsLimit     Code = "cost_exceeds_limit"
	CodeInvalidPath          Code = "invalid_path"
	CodeInvalidRequest       Code = "invalid_request"
	CodeRouteNotAllowed      Code = "route_not_allowed"
	CodeRateLimitExceeded    Code = "rate_limit_exceeded"
	CodeQuotaExceeded        Code = "quota_exceeded"
	CodeLimiterUnavailable   Code = "limiter_unavailable"
	CodeStoreUnavailable     Code = "store_unavailable"
	CodeUpstreamUnavailable  Code = "upstream_unavailable"
	CodeUpstreamTimeout      Code = "upstream_timeout"
)

// The codes of the admin API beside them.
const (
	CodeUnauthorized        Code = "unauthorized"
	CodeForbidden           Code = "forbidden"
	CodeNotFound            Code = "not_found"
	CodeMethodNotAllowed    Code = "method_not_allowed"
	CodeExists              Code = "exists"
	CodeInUse               Code = "in_use"
	CodeConflict            Code = "conflict"
	CodePreconditionFailed  Code = "precondition_failed"
	CodePayloadTooLarge     Code = "payload_too_large"
	CodeUnsupportedMedia    Code = "unsupported_media_type"
	CodeInvalidFields       Code = "invalid_fields"
	CodeIdempotencyMismatch Code = "idempotency_mismatch"
	CodeInternal            Code = "internal"
)

// statuses is the one table from codes to HTTP statuses; clients read it too.
var statuses = map[Code]int{
	CodeAPIKeyRequired:       http.StatusUnauthorized,
	CodeInvalidAPIKey:        http.StatusUnauthorized,
	CodeAmbiguousCredentials: http.StatusBadRequest,
	CodeInvalidCost:          http.StatusBadRequest,
	CodeCostExceedsLimit:     http.StatusBadRequest,
	CodeInvalidPath:          http.StatusBadRequest,
	CodeInvalidRequest:       http.StatusBadRequest,
	CodeRouteNotAllowed:      http.StatusForbidden,
	CodeRateLimitExceeded:    http.StatusTooManyRequests,
	CodeQuotaExceeded:        http.StatusTooManyRequests,
	CodeLimiterUnavailable:   http.StatusServiceUnavailable,
	CodeStoreUnavailable:     http.StatusServiceUnavailable,
	CodeUpstreamUnavailable:  http.StatusBadGateway,
	CodeUpstreamTimeout:      http.StatusGatewayTimeout,
	CodeUnauthorized:         http.StatusUnauthorized,
	CodeForbidden:            http.StatusForbidden,
	CodeNotFound:             http.StatusNotFound,
	CodeMethodNotAllowed:     http.StatusMethodNotAllowed,
	CodeExists:               http.StatusConflict,
	CodeInUse:                http.StatusConflict,
	CodeConflict:             http.StatusConflict,
	CodePreconditionFailed:   http.StatusPreconditionFailed,
	CodePayloadTooLarge:      http.StatusRequestEntityTooLarge,
	CodeUnsupportedMedia:     http.StatusUnsupportedMediaType,
	CodeInvalidFields:        http.StatusUnprocessableEntity,
	CodeIdempotencyMismatch:  http.StatusUnprocessableEntity,
	CodeInternal:             http.StatusInternalServerError,
}

// Status is the HTTP status of a code; 500 for a code that is not listed.
func (c Code) Status() int {
	if s, ok := statuses[c]; ok {
		return s
	}
	return http.StatusInternalServerError
}

// Error is everything that keeps a question from being answered. Its text is for
// operators and logs; what a caller reads is written from the code.
type Error struct {
	Code Code
	// Detail says in plain English what is wrong with this one request, with no
	// secret in it; "" where the code says all.
	Detail string
	// Fields are all faults of a body by field, with CodeInvalidFields.
	Fields Faults
	// RetryAfter is how long to wait before the same request may succeed; 0 says nothing.
	RetryAfter time.Duration
	// Cause is the failure behind it, for logs only.
	Cause error
}

// NewError returns an error of the code with a detail for the caller.
func NewError(code Code, detail string) *Error { return &Error{Code: code, Detail: detail} }

// Error lists the code, the detail, the faults and the cause.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(string(e.Code))
	if e.Detail != "" {
		b.WriteString(": " + e.Detail)
	}
	for _, field := range slices.Sorted(maps.Keys(e.Fields)) {
		b.WriteString("; " + field + " " + e.Fields[field])
	}
	if e.Cause != nil {
		b.WriteString(": " + e.Cause.Error())
	}
	return b.String()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

// Is reports whether target is an *Error of the same code, so that
// errors.Is(err, ErrNotFound) holds for every "not found", whatever its detail.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code
}

// Sentinels to compare with errors.Is.
var (
	ErrInvalidAPIKey      = &Error{Code: CodeInvalidAPIKey}
	ErrCostExceedsLimit   = &Error{Code: CodeCostExceedsLimit}
	ErrLimiterUnavailable = &Error{Code: CodeLimiterUnavailable}
	ErrStoreUnavailable   = &Error{Code: CodeStoreUnavailable}
	ErrNotFound           = &Error{Code: CodeNotFound}
	ErrExists             = &Error{Code: CodeExists}
	ErrInUse              = &Error{Code: CodeInUse}
	ErrConflict           = &Error{Code: CodeConflict}
	ErrPreconditionFailed = &Error{Code: CodePreconditionFailed}
	ErrInvalidFields      = &Error{Code: CodeInvalidFields}
)
