package envoy

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/grpc/codes"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/quota"
)

func TestAnAdmittedCallGoesOnAsTheCallersOwn(t *testing.T) {
	t.Parallel()
	s := serve(t, &answers{decision: admitted()}, Options{})
	r := s.may(t, check("/v1/exports/7", "x-quotad-tenant: forged", "x-quotad-admin: yes", "x-quotad-subject: forged", "accept: */*",
		"x_quotad_tenant: forged", "X-Quotad_Tier: forged", "x_api_key: forged", "x_quota: mine"))
	ok := r.GetOkResponse()
	if r.GetStatus().GetCode() != 0 || ok == nil {
		t.Fatalf("got %v", r)
	}
	if diff := cmp.Diff(map[string]string{
		"x-quotad-tenant": "acme", "x-quotad-key-id": "k1", "x-quotad-tier": "pro", "x-quotad-route-group": "exports",
	}, optionValues(t, ok.GetHeaders())); diff != "" {
		t.Error(diff)
	}
	removed := slices.Sorted(slices.Values(ok.GetHeadersToRemove()))
	if diff := cmp.Diff([]string{"x-api-key", "x-quotad-admin", "x-quotad-subject", "x-quotad_tier", "x_api_key", "x_quotad_tenant"}, removed); diff != "" {
		t.Errorf("removed: %s", diff)
	}
	if diff := cmp.Diff(map[string]string{
		"x-ratelimit-limit": "20", "x-ratelimit-remaining": "19", "x-ratelimit-reset": "1796040015",
		"ratelimit-policy": `"base";q=1000;w=60, "exports";q=20;w=300`, "ratelimit": `"base";r=900;t=12, "exports";r=19;t=15`,
		"cache-control": "private", "vary": "X-API-Key",
	}, optionValues(t, ok.GetResponseHeadersToAdd())); diff != "" {
		t.Error(diff)
	}
	for _, o := range append(ok.GetHeaders(), ok.GetResponseHeadersToAdd()...) {
		want := corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD
		switch o.GetHeader().GetKey() {
		case "cache-control": // the upstream's own goes before
			want = corev3.HeaderValueOption_ADD_IF_ABSENT
		case "vary": // and this beside it
			want = corev3.HeaderValueOption_APPEND_IF_EXISTS_OR_ADD
		}
		if o.GetAppendAction() != want {
			t.Errorf("%s: %s", o.GetHeader().GetKey(), o.GetAppendAction())
		}
	}
}

func TestARefusalIsWhatTheClientReads(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		answers *answers
		status  int32
		grpc    codes.Code
		code    quotad.Code
		headers map[string]string
	}{
		{&answers{decision: refused()}, 429, codes.ResourceExhausted, quotad.CodeRateLimitExceeded, map[string]string{
			"retry-after": "30", "x-ratelimit-remaining": "0", "ratelimit": `"base";r=900;t=12, "exports";r=0;t=30`,
		}},
		{&answers{err: &quotad.Error{Code: quotad.CodeAPIKeyRequired}}, 401, codes.Unauthenticated, quotad.CodeAPIKeyRequired, map[string]string{"www-authenticate": `ApiKey realm="quotad"`}},
		{&answers{err: &quotad.Error{Code: quotad.CodeInvalidAPIKey, Detail: "why"}}, 401, codes.Unauthenticated, quotad.CodeInvalidAPIKey, nil},
		{&answers{err: &quotad.Error{Code: quotad.CodeRouteNotAllowed}}, 403, codes.PermissionDenied, quotad.CodeRouteNotAllowed, nil},
		{&answers{err: &quotad.Error{Code: quotad.CodeInvalidPath}}, 400, codes.InvalidArgument, quotad.CodeInvalidPath, nil},
		{&answers{err: &quotad.Error{Code: quotad.CodeLimiterUnavailable}}, 503, codes.Unavailable, quotad.CodeLimiterUnavailable, map[string]string{"retry-after": "1"}},
		{&answers{err: &quotad.Error{Code: quotad.CodeStoreUnavailable}}, 503, codes.Unavailable, quotad.CodeStoreUnavailable, map[string]string{"retry-after": "1"}},
	} {
		r := serve(t, c.answers, Options{}).may(t, check("/v1/exports/7"))
		denied := r.GetDeniedResponse()
		if denied == nil || codes.Code(r.GetStatus().GetCode()) != c.grpc || int32(denied.GetStatus().GetCode()) != c.status {
			t.Errorf("%s: got %v", c.code, r)
			continue
		}
		h := optionValues(t, denied.GetHeaders())
		for name, want := range c.headers {
			if h[name] != want {
				t.Errorf("%s: %s is %q, want %q", c.code, name, h[name], want)
			}
		}
		if h["cache-control"] != "no-store" || h["content-type"] != "application/json" || h["content-language"] != "en" || h["vary"] != "Accept, Accept-Language" {
			t.Errorf("%s: headers %v", c.code, h)
		}
		var p quotad.Problem
		if err := json.Unmarshal([]byte(denied.GetBody()), &p); err != nil || p.Error != c.code || int32(p.Status) != c.status || strings.Contains(denied.GetBody(), "why") {
			t.Errorf("%s: %s (%v)", c.code, denied.GetBody(), err)
		}
	}
}

func TestARefusalSpeaksAsTheClientAsks(t *testing.T) {
	t.Parallel()
	s := serve(t, &answers{decision: refused()}, Options{CORSOrigins: []string{"https://app.example.com"}})
	r := s.may(t, check("/v1/x", "accept: application/problem+json", "accept-language: ar", "origin: https://app.example.com")).GetDeniedResponse()
	h := optionValues(t, r.GetHeaders())
	for name, want := range map[string]string{
		"content-type": "application/problem+json", "content-language": "ar", "vary": "Origin, Accept, Accept-Language",
		"access-control-allow-origin": "https://app.example.com",
	} {
		if h[name] != want {
			t.Errorf("%s is %q, want %q", name, h[name], want)
		}
	}
	if !strings.Contains(r.GetBody(), "حاول") || !strings.Contains(h["access-control-expose-headers"], "Retry-After") {
		t.Errorf("%v %s", h, r.GetBody())
	}
	h = optionValues(t, s.may(t, check("/v1/x", "origin: https://evil.example.com")).GetDeniedResponse().GetHeaders())
	if h["access-control-allow-origin"] != "" || h["vary"] != "Origin, Accept, Accept-Language" {
		t.Errorf("another origin: %v", h)
	}
}

func TestTheCallIsTheHeldOnes(t *testing.T) {
	t.Parallel()
	a := &answers{decision: admitted()}
	s := serve(t, a, Options{TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}})
	client, proxy := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("10.0.0.9")
	with := func(r *authv3.CheckRequest, change func(*authv3.AttributeContext)) *authv3.CheckRequest {
		change(r.Attributes)
		return r
	}
	extensions := func(pairs ...string) func(*authv3.AttributeContext) {
		return func(c *authv3.AttributeContext) {
			c.ContextExtensions = map[string]string{}
			for i := 0; i < len(pairs); i += 2 {
				c.ContextExtensions[pairs[i]] = pairs[i+1]
			}
		}
	}
	from := func(address string) func(*authv3.AttributeContext) {
		return func(c *authv3.AttributeContext) { c.Source = source(address) }
	}
	for name, c := range map[string]struct {
		request *authv3.CheckRequest
		want    quota.Call
	}{
		"as it stands":      {check("/v1/%7Ex?a=b"), quota.Call{APIKey: "qk_test", Method: "GET", Path: "/v1/%7Ex", Address: client}},
		"no path":           {check(""), quota.Call{APIKey: "qk_test", Method: "GET", Path: "/", Address: client}},
		"no key":            {check("/v1/x", "x-api-key: -"), quota.Call{Method: "GET", Path: "/v1/x", Address: client}},
		"an odd name":       {check("/v1/x", "x-api-key: -", "X-Api-KEY: qk_b"), quota.Call{APIKey: "qk_b", Method: "GET", Path: "/v1/x", Address: client}},
		"a client's claims": {check("/v1/x", "x-forwarded-for: 1.1.1.1", "x-real-ip: 1.1.1.1", "x-quotad-subject: u"), quota.Call{APIKey: "qk_test", Method: "GET", Path: "/v1/x", Address: client}},
		"behind a proxy": {
			with(check("/v1/x", "x-forwarded-for: 1.1.1.1, 198.51.100.1,10.0.0.9"), from("10.0.0.9")),
			quota.Call{APIKey: "qk_test", Method: "GET", Path: "/v1/x", Address: netip.MustParseAddr("198.51.100.1")},
		},
		"a proxy that says nothing": {with(check("/v1/x"), from("10.0.0.9")), quota.Call{APIKey: "qk_test", Method: "GET", Path: "/v1/x", Address: proxy}},
		"over a pipe":               {with(check("/v1/x"), func(c *authv3.AttributeContext) { c.Source = nil }), quota.Call{APIKey: "qk_test", Method: "GET", Path: "/v1/x"}},
		"an address within IPv6":    {with(check("/v1/x"), from("::ffff:192.0.2.1")), quota.Call{APIKey: "qk_test", Method: "GET", Path: "/v1/x", Address: client}},
		"a route's group, subject and cost": {
			with(check("/v1/x"), extensions("route_group", "exports", "subject", "u1", "cost", "7", "else", "x")),
			quota.Call{APIKey: "qk_test", RouteGroup: "exports", Subject: "u1", Cost: quotad.Units(7), Address: client},
		},
		"a subject in a header": {
			with(check("/v1/x", "x-user: u2"), extensions("subject_header", "X-User")),
			quota.Call{APIKey: "qk_test", Method: "GET", Path: "/v1/x", Subject: "u2", Address: client},
		},
		"no such header": {with(check("/v1/x"), extensions("subject_header", "x-user")), quota.Call{APIKey: "qk_test", Method: "GET", Path: "/v1/x", Address: client}},
		"raw headers": {
			with(check("/v1/x"), func(c *authv3.AttributeContext) {
				c.Request.Http.Headers = nil
				c.Request.Http.HeaderMap = &corev3.HeaderMap{Headers: []*corev3.HeaderValue{{Key: "x-api-key", RawValue: []byte("qk_\xff")}}}
			}),
			quota.Call{APIKey: "qk_\xff", Method: "GET", Path: "/v1/x", Address: client},
		},
	} {
		s.may(t, c.request)
		c.want.Door = "extauthz"
		if diff := cmp.Diff([]quota.Call{c.want}, a.asked(), cmpopts.EquateComparable(netip.Addr{})); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestWhatIsWrongWithTheHeldCallIsItsFault(t *testing.T) {
	t.Parallel()
	a := &answers{decision: admitted()}
	s := serve(t, a, Options{})
	raw := func(lines ...string) *authv3.CheckRequest {
		r := check("/v1/x", "x-api-key: -")
		r.Attributes.Request.Http.HeaderMap = &corev3.HeaderMap{}
		for _, line := range lines {
			name, value, _ := strings.Cut(line, ": ")
			m := r.Attributes.Request.Http.HeaderMap
			m.Headers = append(m.Headers, &corev3.HeaderValue{Key: name, RawValue: []byte(value)})
		}
		return r
	}
	extended := func(key, value string, headers ...string) *authv3.CheckRequest {
		r := check("/v1/x", headers...)
		r.Attributes.ContextExtensions = map[string]string{key: value}
		return r
	}
	for name, c := range map[string]struct {
		request *authv3.CheckRequest
		code    quotad.Code
	}{
		"two keys, joined":     {check("/v1/x", "x-api-key: qk_a,qk_b"), quotad.CodeAmbiguousCredentials},
		"two keys, raw":        {raw("x-api-key: qk_a", "x-api-key: qk_b"), quotad.CodeAmbiguousCredentials},
		"the same twice":       {raw("x-api-key: qk_a", "x-api-key: qk_a"), quotad.CodeAmbiguousCredentials},
		"two names":            {check("/v1/x", "X-API-Key: qk_a"), quotad.CodeAmbiguousCredentials},
		"a key as a bearer":    {check("/v1/x", "authorization: Basic x,Bearer qk_b"), quotad.CodeAmbiguousCredentials},
		"a key in the query":   {check("/v1/x?k=qk_b"), quotad.CodeAmbiguousCredentials},
		"two subjects":         {extended("subject_header", "x-user", "x-user: a", "X-User: b"), quotad.CodeInvalidRequest},
		"an exponent":          {extended("cost", "1e3"), quotad.CodeInvalidCost},
		"a negative cost":      {extended("cost", "-1"), quotad.CodeInvalidCost},
		"an empty cost":        {extended("cost", ""), quotad.CodeInvalidCost},
		"a cost with a space":  {extended("cost", " 3"), quotad.CodeInvalidCost},
		"a cost beyond number": {extended("cost", "99999999999999999999"), quotad.CodeInvalidCost},
	} {
		s.may(t, c.request)
		calls := a.asked()
		if len(calls) != 1 || quotad.ProblemOf(calls[0].Fault).Error != c.code || !calls[0].Address.IsValid() {
			t.Errorf("%s: asked %+v", name, calls)
		}
	}
}

func TestPreflightsPassAndAreNotAsked(t *testing.T) {
	t.Parallel()
	a := &answers{decision: refused()}
	s := serve(t, a, Options{})
	preflight := func(method string, headers ...string) *authv3.CheckRequest {
		r := check("/v1/x", append(headers, "x-api-key: -", "x-quotad-tenant: forged")...)
		r.Attributes.Request.Http.Method = method
		return r
	}
	const origin, wants = "origin: https://app.example.com", "access-control-request-method: POST"
	ok := s.may(t, preflight("OPTIONS", origin, wants)).GetOkResponse()
	if ok == nil || len(a.asked()) != 0 || len(ok.GetHeaders()) != 0 || !slices.Contains(ok.GetHeadersToRemove(), "x-quotad-tenant") {
		t.Errorf("a preflight: %v", ok)
	}
	for _, r := range []*authv3.CheckRequest{preflight("OPTIONS", origin), preflight("OPTIONS", wants), preflight("GET", origin, wants)} {
		if s.may(t, r).GetDeniedResponse() == nil || len(a.asked()) != 1 {
			t.Errorf("no preflight: %v", r)
		}
	}
}

func TestOnlyHTTPCanBeAuthorized(t *testing.T) {
	t.Parallel()
	a := &answers{decision: admitted()}
	s := serve(t, a, Options{})
	for _, r := range []*authv3.CheckRequest{{}, {Attributes: &authv3.AttributeContext{Source: source("192.0.2.1")}}} {
		_, err := s.authorize.Check(within(t), r)
		wantCode(t, err, codes.InvalidArgument, "attributes.request.http")
	}
	if len(a.asked()) != 0 {
		t.Error("the checker was asked")
	}
}

func TestADefectOfOursIsAnErrorOfGRPC(t *testing.T) {
	t.Parallel()
	s := serve(t, &answers{err: &quotad.Error{Code: quotad.CodeInternal, Detail: "secret detail"}}, Options{})
	_, err := s.authorize.Check(within(t), check("/v1/x"))
	wantCode(t, err, codes.Internal, "internal: ")
	if strings.Contains(err.Error(), "secret") {
		t.Error(err)
	}
}

func TestADelayIsTold(t *testing.T) {
	t.Parallel()
	d := admitted()
	d.DelayMS, d.DegradedBy = 1500, quotad.FailLocal
	s := serve(t, &answers{decision: d}, Options{})
	ok := s.may(t, check("/v1/x", "X-Quotad-Delay-Ms: 1")).GetOkResponse()
	if told := optionValues(t, ok.GetHeaders())["x-quotad-delay-ms"]; told != "1500" || slices.Contains(ok.GetHeadersToRemove(), "x-quotad-delay-ms") {
		t.Errorf("the upstream is told to wait %q, and of %q nothing", told, ok.GetHeadersToRemove())
	}
	for door, h := range map[string]map[string]string{
		"ext_authz": optionValues(t, ok.GetResponseHeadersToAdd()),
		"ratelimit": values(t, s.should(t, request(descriptor("api_key=qk_a"))).GetResponseHeadersToAdd()),
	} {
		if h["x-quotad-delay-ms"] != "1500" || h["x-quotad-degraded"] != "local" {
			t.Errorf("%s: %v", door, h)
		}
	}
}
