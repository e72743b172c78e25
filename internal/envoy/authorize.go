package envoy

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/replies"
)

// authorizations is envoy.service.auth.v3.Authorization.
type authorizations struct{ *Server }

// doorExtAuthz is the service's name in metrics.
const doorExtAuthz = "extauthz"

// Check tells Envoy whether the call that it holds may pass, and as whose.
func (s authorizations) Check(ctx context.Context, r *authv3.CheckRequest) (*authv3.CheckResponse, error) {
	if r.GetAttributes().GetRequest().GetHttp() == nil {
		return nil, status.Error(codes.InvalidArgument, "attributes.request.http is required: only the HTTP filter can ask here")
	}
	if _, err := s.peer(ctx); err != nil {
		return nil, err
	}
	held := readHeld(r.GetAttributes())
	if held.preflight() {
		return held.admit(&quotad.Decision{}, nil), nil
	}
	decision, err := s.checker.Check(ctx, held.call(s.proxies))
	if err != nil && (ctx.Err() != nil || quotad.ProblemOf(err).Error == quotad.CodeInternal) {
		return nil, unanswered(ctx, err)
	}
	v := s.values.Get().(*replies.Values)
	defer s.values.Put(v)
	if err != nil {
		return s.deny(held, replies.Failure(err), v), nil
	}
	v.Decision(&decision, s.now(), s.ietf)
	if !decision.Allowed {
		return s.deny(held, replies.Denial(&decision), v), nil
	}
	return held.admit(&decision, v), nil
}

// admit lets the call pass. What it carries of quotad's headers to the upstream is what
// we say, and nothing else of that name; its key stays here.
func (h *held) admit(d *quotad.Decision, v *replies.Values) *authv3.CheckResponse {
	ok := &authv3.OkHttpResponse{Headers: make([]*corev3.HeaderValueOption, 0, 6)}
	remove := append(h.ours, "x-api-key")
	delay := "" // for the upstream to wait: nobody else does
	if d.DelayMS > 0 {
		delay = strconv.FormatInt(d.DelayMS, 10)
	}
	for _, to := range [...]struct{ name, value string }{
		{"x-quotad-tenant", d.Tenant}, {"x-quotad-key-id", d.KeyID}, {"x-quotad-tier", d.Tier},
		{"x-quotad-route-group", d.RouteGroup}, {"x-quotad-subject", h.subject}, {"x-quotad-delay-ms", delay},
	} {
		if to.value != "" {
			ok.Headers = append(ok.Headers, set(to.name, to.value))
			remove = slices.DeleteFunc(remove, func(name string) bool { return name == to.name }) // Envoy removes after it has set
		}
	}
	ok.HeadersToRemove = remove
	if v != nil {
		ok.ResponseHeadersToAdd = options(v, 2)
		// An answer that carries one caller's numbers is that caller's: where the upstream
		// says itself that caches may keep it, one for each key.
		private, vary := set("cache-control", "private"), set("vary", "X-API-Key")
		private.AppendAction = corev3.HeaderValueOption_ADD_IF_ABSENT
		vary.AppendAction = corev3.HeaderValueOption_APPEND_IF_EXISTS_OR_ADD
		ok.ResponseHeadersToAdd = append(ok.ResponseHeadersToAdd, private, vary)
	}
	return &authv3.CheckResponse{
		Status:       &rpcstatus.Status{Code: int32(codes.OK)},
		HttpResponse: &authv3.CheckResponse_OkResponse{OkResponse: ok},
	}
}

// deny refuses the call with what the client is to read.
func (s authorizations) deny(h *held, p quotad.Problem, v *replies.Values) *authv3.CheckResponse {
	language := s.messages.Pick(h.acceptLanguage)
	p.Message = language.Text(p.Error, p.RetryAfter)
	v.Refusal(&p)
	v.Set("Content-Type", replies.MediaType(h.accept))
	v.Set("Content-Language", language.Tag())
	vary := "Accept, Accept-Language"
	if s.origins.Vary() {
		vary = "Origin, " + vary
	}
	v.Set("Vary", vary)
	if origin := s.origins.Allow(h.origin); origin != "" {
		v.Set("Access-Control-Allow-Origin", origin)
		v.Set("Access-Control-Expose-Headers", replies.ExposedHeaders)
	}
	return &authv3.CheckResponse{
		Status: &rpcstatus.Status{Code: int32(codeOf(p.Status)), Message: string(p.Error)},
		HttpResponse: &authv3.CheckResponse_DeniedResponse{DeniedResponse: &authv3.DeniedHttpResponse{
			Status:  &typev3.HttpStatus{Code: typev3.StatusCode(p.Status)},
			Headers: options(v, 0),
			Body:    string(p.AppendJSON(make([]byte, 0, 512))),
		}},
	}
}

// codeOf is gRPC's code for the status of a refusal; any but OK refuses.
func codeOf(httpStatus int) codes.Code {
	switch httpStatus {
	case http.StatusUnauthorized:
		return codes.Unauthenticated
	case http.StatusForbidden:
		return codes.PermissionDenied
	case http.StatusTooManyRequests:
		return codes.ResourceExhausted
	case http.StatusServiceUnavailable:
		return codes.Unavailable
	default:
		return codes.InvalidArgument
	}
}

// options are the gathered headers, each in place of what stands under its name, with
// room for more.
func options(v *replies.Values, more int) []*corev3.HeaderValueOption {
	n := v.Len()
	list := make([]*corev3.HeaderValueOption, n, n+more)
	v.Each(func(i int, name, value string) { list[i] = set(lower(name), value) })
	return list
}

// set is a header that overwrites. Envoys that don't know the action overwrite, too, as
// long as the older field "append" is left out.
func set(name, value string) *corev3.HeaderValueOption {
	h := &struct {
		option corev3.HeaderValueOption
		header corev3.HeaderValue
	}{}
	h.header.Key, h.header.Value = name, value
	h.option.Header, h.option.AppendAction = &h.header, corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD
	return &h.option
}

// lowered are the names of headers that most answers have, as Envoy has them.
var lowered = map[string]string{
	"X-RateLimit-Limit": "x-ratelimit-limit", "X-RateLimit-Remaining": "x-ratelimit-remaining", "X-RateLimit-Reset": "x-ratelimit-reset",
	"RateLimit-Policy": "ratelimit-policy", "RateLimit": "ratelimit", "Retry-After": "retry-after",
}

// lower is a header's name in lower case.
func lower(name string) string {
	if known, ok := lowered[name]; ok {
		return known
	}
	return strings.ToLower(name)
}
