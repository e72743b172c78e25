package quotad

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// MiddlewareOptions tune a middleware. The zero value works.
type MiddlewareOptions struct {
	// Question makes the question that a request is; QuestionOf by default. Its
	// error is answered by its code, where it is an *Error, else as CodeInternal.
	Question func(r *http.Request) (CheckRequest, error)
	// Skip reports whether a request is let through unasked, such as a health
	// check; none is by default.
	Skip func(r *http.Request) bool
	// OnError is told why quotad did not decide: that it is away (then the failure
	// policy answers), or that what came back, or Question, was broken. What a
	// caller did wrong is not an error. Nobody is told by default.
	OnError func(r *http.Request, err error)
}

// Middleware asks quotad about each request before the next handler gets it.
//
// An admitted request goes on with the rate headers set on its answer, which is
// marked as private, and with the Decision in its context (DecisionFrom); one that
// a leaky bucket lets wait does so here, and leaves when its client hangs up. A
// refused one is answered as quotad's other front doors do: status, headers, and
// one Problem in the language and media type that it asks for.
//
// CORS preflights are let through unasked. Put a CORS middleware around this one, so
// that pages can read refusals. The ResponseWriter is handed on as it is.
//
// The charge is made even when the client hangs up meanwhile. Questions with neither
// an APIKey nor a Tenant are asked without a credential, whatever the Client's own.
func (c *Client) Middleware(o MiddlewareOptions) func(next http.Handler) http.Handler {
	if o.Question == nil {
		o.Question = func(r *http.Request) (CheckRequest, error) { return QuestionOf(r), nil }
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if isPreflight(r) || o.Skip != nil && o.Skip(r) {
				next.ServeHTTP(w, r)
				return
			}
			a := c.judge(r, &o)
			if a.err != nil || !a.decision.Allowed {
				a.refuse(w, r)
				return
			}
			a.relay(w.Header())
			if !wait(r.Context(), a.decision.DelayMS) {
				return // nobody is left to be answered
			}
			next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), decisionKey{}, &a.decision)))
		})
	}
}

type decisionKey struct{}

// DecisionFrom is the decision by which Middleware admitted the request of the
// context; ok is false where none did.
func DecisionFrom(ctx context.Context) (d Decision, ok bool) {
	p, ok := ctx.Value(decisionKey{}).(*Decision)
	if !ok {
		return Decision{}, false
	}
	return *p, true
}

// isPreflight reports whether a browser asks what its page may send.
func isPreflight(r *http.Request) bool {
	return r.Method == http.MethodOptions && r.Header.Get("Origin") != "" && r.Header.Get("Access-Control-Request-Method") != ""
}

// judge asks about a request, and tells OnError what there is to tell.
func (c *Client) judge(r *http.Request, o *MiddlewareOptions) *answer {
	a, err := c.question(r, o)
	if err != nil {
		a = &answer{err: err}
	}
	if o.OnError != nil {
		var e *Error
		switch {
		case a.failure != nil:
			o.OnError(r, a.failure)
		case a.err != nil && (!errors.As(a.err, &e) || e.Code == CodeInternal):
			o.OnError(r, a.err)
		}
	}
	return a
}

func (c *Client) question(r *http.Request, o *MiddlewareOptions) (*answer, error) {
	q, err := o.Question(r)
	if err != nil {
		return nil, err
	}
	by, err := c.credentials(q.APIKey, q.Tenant, "")
	if err != nil {
		return nil, err
	}
	if len(q.Path) > maxPath {
		return nil, NewError(CodeInvalidPath, "The path is too long.")
	}
	// What a caller who hangs up leaves behind is a whole charge, and a connection
	// that can be used again.
	return c.ask(context.WithoutCancel(r.Context()), &q, by, acceptLanguage(r))
}

// maxPath is the longest path that is asked about, in bytes; quotad takes none of
// that length.
const maxPath = 32 << 10

// acceptLanguage is what the request says of the language that it is to be answered
// in. One too long to be meant is left out.
func acceptLanguage(r *http.Request) string {
	if said := r.Header["Accept-Language"]; len(said) == 1 && len(said[0]) <= 512 && sendable(said[0]) {
		return said[0]
	}
	return ""
}

// Header values that never change, shared by all answers.
var (
	privateOnly  = []string{"private"}
	noStore      = []string{"no-store"}
	noSniff      = []string{"nosniff"}
	problemTypes = []string{"application/problem+json"}
	english      = []string{"en"}
	challenge    = []string{`ApiKey realm="quotad"`}
)

// relay sets the headers of a call that quotad has judged. Its answer is one
// caller's, whatever the handler makes of it; but a handler may say otherwise.
func (a *answer) relay(h http.Header) {
	for i := range relayedLanguage {
		if v := a.headers[i]; v != nil {
			h[relayedNames[i]] = v
		}
	}
	if h.Get("Cache-Control") == "" {
		h["Cache-Control"] = privateOnly
	}
}

// refuse answers a call that does not go on.
func (a *answer) refuse(w http.ResponseWriter, r *http.Request) {
	p := a.asProblem()
	h := w.Header()
	a.relay(h)
	h["Cache-Control"], h["X-Content-Type-Options"] = noStore, noSniff
	h["Content-Type"] = jsonTypes
	if AcceptsProblem(strings.Join(r.Header["Accept"], ",")) {
		h["Content-Type"] = problemTypes
	}
	h["Content-Language"] = english
	if said := a.headers[relayedLanguage]; said != nil {
		h["Content-Language"] = said
	}
	h.Add("Vary", "Accept, Accept-Language")
	if p.Status == http.StatusUnauthorized {
		h["Www-Authenticate"] = challenge
	}
	if p.RetryAfter > 0 {
		h["Retry-After"] = []string{strconv.FormatInt(p.RetryAfter, 10)}
	}
	body := p.AppendJSON(make([]byte, 0, 1024))
	h["Content-Length"] = []string{strconv.Itoa(len(body))}
	w.WriteHeader(p.Status)
	_, _ = w.Write(body) // net/http keeps it from HEAD; whoever hung up needs no answer
}

// asProblem is what a refusal says, as quotad worded it where it did. Where all
// limits stand is for who asked, not for its caller.
func (a *answer) asProblem() Problem {
	if a.problem == nil {
		return ProblemOf(a.err)
	}
	p := *a.problem
	p.Limits = nil
	return p
}

// wait lets so many milliseconds pass; false when the context ended first.
func wait(ctx context.Context, ms int64) bool {
	if ms <= 0 {
		return true
	}
	timer := time.NewTimer(time.Duration(ms) * time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
