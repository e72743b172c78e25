package envoy

import (
	"context"
	"errors"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/quota"
	"github.com/quotad/quotad/internal/replies"
)

// rateLimits is envoy.service.ratelimit.v3.RateLimitService.
type rateLimits struct{ *Server }

// doorRateLimit is the service's name in metrics.
const doorRateLimit = "ratelimit"

// ShouldRateLimit judges the descriptors of one request: all of them are charged, or
// none is.
func (s rateLimits) ShouldRateLimit(ctx context.Context, r *ratelimitv3.RateLimitRequest) (*ratelimitv3.RateLimitResponse, error) {
	if err := wellFormed(r); err != nil {
		return nil, err
	}
	mayNameTenants, err := s.peer(ctx)
	if err != nil {
		return nil, err
	}
	descriptors := r.GetDescriptors()
	results := make([]result, len(descriptors))
	calls := make([]quota.Call, 0, 4)
	for i, d := range descriptors {
		e := entriesOf(d)
		switch {
		case !e.known():
			s.metrics.unknown.Inc()
			continue
		case e.given[entryTenant] && !mayNameTenants:
			return nil, errTenant
		}
		results[i].known = true
		calls = append(calls, e.call(hits(d, r.GetHitsAddend())))
	}
	if err := s.decide(ctx, calls, results); err != nil {
		return nil, unanswered(ctx, err)
	}
	return s.respond(results), nil
}

// errTenant keeps whoever reaches the listener from spending what is any tenant's.
var errTenant = status.Error(codes.PermissionDenied, "a descriptor names a tenant: send a service token in the metadata as "+
	"authorization: Bearer, or let all who reach this listener name tenants with --grpc-trust=tenants")

// result is what one descriptor came to.
type result struct {
	known    bool
	decision quotad.Decision
	err      error // a refusal: isDecided
}

// decide writes the answers to the calls into the results that are known. The error
// is a failure.
func (s rateLimits) decide(ctx context.Context, calls []quota.Call, results []result) error {
	switch len(calls) {
	case 0:
		return nil
	case 1:
		for i := range results {
			if results[i].known {
				results[i].decision, results[i].err = s.checker.Check(ctx, calls[0])
			}
		}
	default:
		answers := s.checker.CheckTogether(ctx, calls)
		for i, n := 0, 0; i < len(results); i++ {
			if results[i].known {
				results[i].decision, results[i].err = answers[n].Decision, answers[n].Err
				n++
			}
		}
	}
	for i, n := 0, 0; i < len(results); i++ {
		if !results[i].known {
			continue
		}
		if err := results[i].err; err != nil && !isDecided(err) {
			return err
		}
		s.stand(ctx, &calls[n], &results[i])
		n++
	}
	return nil
}

// stand adds to a call that asks for more than there can ever be where its limits
// stand: Envoy shows them.
func (s rateLimits) stand(ctx context.Context, call *quota.Call, r *result) {
	var e *quotad.Error
	if !errors.As(r.err, &e) || e.Code != quotad.CodeCostExceedsLimit && e.Code != quotad.CodeInvalidCost {
		return
	}
	if d, err := s.checker.Peek(ctx, *call); err == nil {
		r.decision = d
	}
}

// respond says what the descriptors came to.
func (s rateLimits) respond(results []result) *ratelimitv3.RateLimitResponse {
	a := newAnswer(len(results))
	var speaker *result
	for i := range results {
		r := &results[i]
		r.describe(a.Statuses[i])
		if r.known && (speaker == nil || r.louder(speaker)) {
			speaker = r
		}
	}
	a.OverallCode = ratelimitv3.RateLimitResponse_OK
	if speaker == nil {
		return &a.RateLimitResponse
	}
	v := s.values.Get().(*replies.Values)
	defer s.values.Put(v)
	if speaker.err == nil {
		v.Decision(&speaker.decision, s.now(), s.ietf)
	}
	if speaker.refused() {
		a.OverallCode = ratelimitv3.RateLimitResponse_OVER_LIMIT
		p := speaker.problem()
		v.Refusal(&p)
		v.Set("Content-Type", replies.JSON)
		a.RawBody = p.AppendJSON(make([]byte, 0, 512))
	}
	a.headers(v)
	return &a.RateLimitResponse
}

// refused reports whether the descriptor is over its limit.
func (r *result) refused() bool { return r.known && (r.err != nil || !r.decision.Allowed) }

// louder reports whether r says more about the request than the other, and so speaks
// for it in headers and body: one that can't be right at all, then the refusal with the
// longest wait, then what has least left.
func (r *result) louder(other *result) bool {
	if r.refused() != other.refused() {
		return r.refused()
	}
	if (r.err != nil) != (other.err != nil) {
		return r.err != nil
	}
	if r.err != nil {
		return false
	}
	a, ok := r.decision.Strictest()
	b, limited := other.decision.Strictest()
	switch {
	case !ok || !limited:
		return ok
	case !r.refused():
		return a.Remaining < b.Remaining
	case r.decision.RetryAfter == 0 || other.decision.RetryAfter == 0: // never
		return r.decision.RetryAfter == 0 && other.decision.RetryAfter != 0
	default:
		return r.decision.RetryAfter > other.decision.RetryAfter
	}
}

// problem is what the client reads who is refused.
func (r *result) problem() quotad.Problem {
	if r.err != nil {
		return replies.Failure(r.err)
	}
	return replies.Denial(&r.decision)
}

// answer is a response with everything that it points to, so that it is one piece of memory.
type answer struct {
	ratelimitv3.RateLimitResponse
	one    [1]ratelimitv3.RateLimitResponse_DescriptorStatus
	first  [1]*ratelimitv3.RateLimitResponse_DescriptorStatus
	values [maxHeaders]corev3.HeaderValue
	named  [maxHeaders]*corev3.HeaderValue
}

// maxHeaders is the most headers that one response has.
const maxHeaders = 12

func newAnswer(descriptors int) *answer {
	a := &answer{}
	if descriptors == 1 {
		a.first[0] = &a.one[0]
		a.Statuses = a.first[:]
		return a
	}
	list := make([]ratelimitv3.RateLimitResponse_DescriptorStatus, descriptors)
	a.Statuses = make([]*ratelimitv3.RateLimitResponse_DescriptorStatus, descriptors)
	for i := range list {
		a.Statuses[i] = &list[i]
	}
	return a
}

// headers moves the gathered headers into the response.
func (a *answer) headers(v *replies.Values) {
	v.Each(func(i int, name, value string) {
		a.values[i].Key, a.values[i].Value = lower(name), value
		a.named[i] = &a.values[i]
		a.ResponseHeadersToAdd = a.named[:i+1]
	})
}
