package envoy

import (
	"encoding/json"
	"math"
	"net/netip"
	"strings"
	"testing"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/quota"
)

const (
	isOK   = ratelimitv3.RateLimitResponse_OK
	isOver = ratelimitv3.RateLimitResponse_OVER_LIMIT
)

func TestEntriesSayWhoseCallItIsAndWhereItGoes(t *testing.T) {
	t.Parallel()
	a := &answers{decision: admitted()}
	s := serve(t, a, Options{})
	for entries, want := range map[string]quota.Call{
		"api_key=qk_a":                                   {APIKey: "qk_a", RouteGroup: "default"},
		"api_key=qk_a|route_group=exports":               {APIKey: "qk_a", RouteGroup: "exports"},
		"route_group=exports|api_key=qk_a|generic_key=x": {APIKey: "qk_a", RouteGroup: "exports"},
		"api_key=qk_a|method=post|path=/v1/x?a=b":        {APIKey: "qk_a", Method: "POST", Path: "/v1/x"},
		"api_key=qk_a|subject=u 1|remote_address=::ffff:192.0.2.7": {
			APIKey: "qk_a", RouteGroup: "default", Subject: "u 1", Address: netip.MustParseAddr("192.0.2.7"),
		},
		"tenant=acme|route_group=exports|remote_address=2001:db8::1": {
			Tenant: "acme", Vouched: true, RouteGroup: "exports", IP: netip.MustParseAddr("2001:db8::1"),
		},
		"route_group=login|remote_address=192.0.2.7": {RouteGroup: "login", Address: netip.MustParseAddr("192.0.2.7")},
		"api_key=":                       {RouteGroup: "default"},
		"method=GET|path=/v1/x":          {Method: "GET", Path: "/v1/x"},
		"api_key=|method=GET|path=/v1/x": {Method: "GET", Path: "/v1/x"},
		"tenant=":                        {Vouched: true, RouteGroup: "default"},
	} {
		s.should(t, request(descriptor(strings.Split(entries, "|")...)), "authorization", "Bearer qa_service")
		want.Door = "ratelimit"
		if diff := cmp.Diff([]quota.Call{want}, a.asked(), cmpopts.EquateComparable(netip.Addr{})); diff != "" {
			t.Errorf("%s: %s", entries, diff)
		}
	}
}

func TestEntriesThatContradictEachOtherAreTheCallsFault(t *testing.T) {
	t.Parallel()
	a := &answers{decision: admitted()}
	s := serve(t, a, Options{})
	for entries, code := range map[string]quotad.Code{
		"api_key=qk_a|api_key=qk_b":                       quotad.CodeAmbiguousCredentials,
		"api_key=qk_a|api_key=qk_a":                       quotad.CodeAmbiguousCredentials,
		"api_key=qk_a|tenant=acme":                        quotad.CodeAmbiguousCredentials,
		"tenant=acme|tenant=umbrella":                     quotad.CodeAmbiguousCredentials,
		"api_key=qk_a, qk_b":                              quotad.CodeAmbiguousCredentials,
		"api_key=qk_a|method=GET|path=/v1/x?k=qk_b":       quotad.CodeAmbiguousCredentials,
		"api_key=qk_a|route_group=a|route_group=b":        quotad.CodeInvalidRequest,
		"api_key=qk_a|route_group=a|path=/v1/x":           quotad.CodeInvalidRequest,
		"api_key=qk_a|path=/v1/x":                         quotad.CodeInvalidRequest,
		"api_key=qk_a|method=GET":                         quotad.CodeInvalidRequest,
		"api_key=qk_a|method=GET|path=":                   quotad.CodeInvalidRequest,
		"api_key=qk_a|route_group=":                       quotad.CodeInvalidRequest,
		"api_key=qk_a|remote_address=somewhere":           quotad.CodeInvalidRequest,
		"api_key=qk_a|subject=a|subject=b":                quotad.CodeInvalidRequest,
		"api_key=qk_a|remote_address=::1|remote_address=": quotad.CodeInvalidRequest,
	} {
		s.should(t, request(descriptor(strings.Split(entries, "|")...)), "authorization", "Bearer qa_service")
		calls := a.asked()
		if len(calls) != 1 || quotad.ProblemOf(calls[0].Fault).Error != code {
			t.Errorf("%s: asked %+v", entries, calls)
		}
	}
}

func TestHitsAreUnits(t *testing.T) {
	t.Parallel()
	a := &answers{decision: admitted()}
	s := serve(t, a, Options{})
	own := func(n uint64) *wrapperspb.UInt64Value { return wrapperspb.UInt64(n) }
	for _, c := range []struct {
		request uint32
		own     *wrapperspb.UInt64Value
		want    *int64
	}{
		{0, nil, nil},
		{1, nil, quotad.Units(1)},
		{3, nil, quotad.Units(3)},
		{math.MaxUint32, nil, quotad.Units(math.MaxUint32)},
		{5, own(2), quotad.Units(2)},
		{5, own(0), quotad.Units(0)},
		{0, own(0), quotad.Units(0)},
		{0, own(quotad.MaxUnits), quotad.Units(quotad.MaxUnits)},
		{0, own(quotad.MaxUnits + 2), quotad.Units(quotad.MaxUnits + 1)},
		{0, own(math.MaxUint64), quotad.Units(quotad.MaxUnits + 1)},
	} {
		d := descriptor("api_key=qk_a")
		d.HitsAddend = c.own
		r := request(d)
		r.HitsAddend = c.request
		s.should(t, r)
		if diff := cmp.Diff(c.want, a.asked()[0].Cost); diff != "" {
			t.Errorf("request %d, descriptor %v: %s", c.request, c.own, diff)
		}
	}
}

func TestAnAllowedCall(t *testing.T) {
	t.Parallel()
	s := serve(t, &answers{decision: admitted()}, Options{})
	r := s.should(t, request(descriptor("api_key=qk_a")))
	if r.GetOverallCode() != isOK || len(r.GetRawBody()) > 0 || len(r.GetRequestHeadersToAdd()) > 0 {
		t.Errorf("got %v", r)
	}
	if diff := cmp.Diff(map[string]string{
		"x-ratelimit-limit": "20", "x-ratelimit-remaining": "19", "x-ratelimit-reset": "1796040015",
		"ratelimit-policy": `"base";q=1000;w=60, "exports";q=20;w=300`, "ratelimit": `"base";r=900;t=12, "exports";r=19;t=15`,
	}, values(t, r.GetResponseHeadersToAdd())); diff != "" {
		t.Error(diff)
	}
	st := r.GetStatuses()[0]
	if st.GetCode() != isOK || st.GetCurrentLimit().GetName() != "exports" || st.GetCurrentLimit().GetRequestsPerUnit() != 20 ||
		st.GetLimitRemaining() != 19 || st.GetDurationUntilReset().AsDuration().Seconds() != 15 {
		t.Errorf("status %v", st)
	}
	s = serve(t, &answers{decision: admitted()}, Options{OmitIETFHeaders: true})
	h := values(t, s.should(t, request(descriptor("api_key=qk_a"))).GetResponseHeadersToAdd())
	if h["ratelimit"] != "" || h["ratelimit-policy"] != "" || h["x-ratelimit-limit"] != "20" {
		t.Errorf("headers that are switched off: %v", h)
	}
}

func TestARefusedCall(t *testing.T) {
	t.Parallel()
	s := serve(t, &answers{decision: refused()}, Options{})
	r := s.should(t, request(descriptor("api_key=qk_a")))
	if r.GetOverallCode() != isOver || r.GetStatuses()[0].GetCode() != isOver || r.GetStatuses()[0].GetLimitRemaining() != 0 ||
		r.GetStatuses()[0].GetDurationUntilReset().GetSeconds() != 30 {
		t.Errorf("got %v", r)
	}
	if diff := cmp.Diff(map[string]string{
		"x-ratelimit-limit": "20", "x-ratelimit-remaining": "0", "x-ratelimit-reset": "1796040030",
		"ratelimit-policy": `"base";q=1000;w=60, "exports";q=20;w=300`, "ratelimit": `"base";r=900;t=12, "exports";r=0;t=30`,
		"retry-after": "30", "cache-control": "no-store", "content-type": "application/json", "x-content-type-options": "nosniff",
	}, values(t, r.GetResponseHeadersToAdd())); diff != "" {
		t.Error(diff)
	}
	var p quotad.Problem
	if err := json.Unmarshal(r.GetRawBody(), &p); err != nil {
		t.Fatal(err)
	}
	if p.Error != quotad.CodeRateLimitExceeded || p.Status != 429 || p.RetryAfter != 30 || !cmp.Equal(p.ViolatedPolicies, []string{"exports"}) {
		t.Errorf("got %s", r.GetRawBody())
	}
}

// What other doors refuse, with whatever status, is over the limit: Envoy knows no
// other refusal, and lets a call pass on an error.
func TestEveryRefusalIsOverTheLimit(t *testing.T) {
	t.Parallel()
	for _, code := range []quotad.Code{
		quotad.CodeAPIKeyRequired, quotad.CodeInvalidAPIKey, quotad.CodeAmbiguousCredentials, quotad.CodeInvalidCost,
		quotad.CodeCostExceedsLimit, quotad.CodeInvalidPath, quotad.CodeInvalidRequest, quotad.CodeRouteNotAllowed,
	} {
		a := &answers{err: &quotad.Error{Code: code, Detail: "why"}, peeked: admitted()}
		r := serve(t, a, Options{}).should(t, request(descriptor("api_key=qk_a")))
		var p quotad.Problem
		if err := json.Unmarshal(r.GetRawBody(), &p); err != nil {
			t.Fatal(err)
		}
		st, h := r.GetStatuses()[0], values(t, r.GetResponseHeadersToAdd())
		if r.GetOverallCode() != isOver || st.GetCode() != isOver || p.Error != code || p.Status != code.Status() ||
			h["content-type"] != "application/json" || h["retry-after"] != "" {
			t.Errorf("%s: got %v", code, r)
		}
		// A cost that can never pass is one of a caller who is known: where he stands is told.
		known := code == quotad.CodeCostExceedsLimit || code == quotad.CodeInvalidCost
		if known != (st.GetLimitRemaining() == 19) || known != (st.GetCurrentLimit() != nil) {
			t.Errorf("%s: status %v", code, st)
		}
		if code == quotad.CodeInvalidAPIKey && strings.Contains(string(r.GetRawBody()), "why") {
			t.Errorf("it says what is wrong with the key: %s", r.GetRawBody())
		}
	}
}

func TestAFailureIsAnErrorOfGRPC(t *testing.T) {
	t.Parallel()
	for code, want := range map[quotad.Code]codes.Code{
		quotad.CodeLimiterUnavailable: codes.Unavailable, quotad.CodeStoreUnavailable: codes.Unavailable, quotad.CodeInternal: codes.Internal,
	} {
		failure := &quotad.Error{Code: code, Detail: "secret detail"}
		a := &answers{err: failure, each: []quota.Result{{Decision: admitted()}, {Err: failure}}}
		s := serve(t, a, Options{})
		for _, r := range []*ratelimitv3.RateLimitRequest{
			request(descriptor("api_key=qk_a")), request(descriptor("api_key=qk_a"), descriptor("api_key=qk_a", "route_group=x")),
		} {
			_, err := s.limits.ShouldRateLimit(within(t), r)
			wantCode(t, err, want, string(code)+": ")
			if strings.Contains(err.Error(), "secret") {
				t.Errorf("%s: %v", code, err)
			}
		}
	}
}

func TestADescriptorThatNamesNothingWeKnowIsOKAndCounted(t *testing.T) {
	t.Parallel()
	a := &answers{decision: refused()}
	s := serve(t, a, Options{})
	unknown := []*commonv3.RateLimitDescriptor{
		descriptor("generic_key=x"), descriptor("remote_address=192.0.2.1"), descriptor("subject=u", "destination_cluster=c"),
		descriptor("API_KEY=qk_a"),
	}
	r := s.should(t, request(unknown...))
	if r.GetOverallCode() != isOK || len(r.GetStatuses()) != 4 || len(r.GetResponseHeadersToAdd()) != 0 || len(a.asked()) != 0 {
		t.Errorf("got %v", r)
	}
	for i, st := range r.GetStatuses() {
		if st.GetCode() != isOK || st.GetCurrentLimit() != nil {
			t.Errorf("status %d: %v", i, st)
		}
	}
	if got := counter(t, s.metrics.unknown); got != 4 {
		t.Errorf("%v are counted", got)
	}
	r = s.should(t, request(append(unknown, descriptor("api_key=qk_a"))...))
	if r.GetOverallCode() != isOver || len(r.GetStatuses()) != 5 || r.GetStatuses()[4].GetCode() != isOver || r.GetStatuses()[3].GetCode() != isOK {
		t.Errorf("beside one that we know: %v", r)
	}
}

func TestSeveralDescriptorsKeepTheirOrderAndTheStrictestSpeaks(t *testing.T) {
	t.Parallel()
	later := refused()
	later.RetryAfter, later.Limits[1].RetryAfter, later.Limits[1].Policy = 90, 90, "later"
	never := refused()
	never.RetryAfter, never.Limits[1].RetryAfter, never.Limits[1].Policy = 0, 0, "never"
	little := admitted()
	little.Limits[0].Remaining, little.Limits[0].Policy = 3, "little"
	unlimited := quotad.Decision{Allowed: true}
	junk := &quotad.Error{Code: quotad.CodeInvalidAPIKey}
	for name, c := range map[string]struct {
		results []quota.Result
		codes   string // o(k) or x
		speaks  string // policy or error
		retry   string
	}{
		"all pass":            {[]quota.Result{{Decision: admitted()}, {Decision: little}, {Decision: unlimited}}, "ooo", "3", ""},
		"unlimited":           {[]quota.Result{{Decision: unlimited}, {Decision: unlimited}}, "oo", "", ""},
		"one is refused":      {[]quota.Result{{Decision: little}, {Decision: refused()}}, "ox", "exports", "30"},
		"the longest wait":    {[]quota.Result{{Decision: refused()}, {Decision: later}, {Decision: refused()}}, "xxx", "later", "90"},
		"never":               {[]quota.Result{{Decision: later}, {Decision: never}, {Decision: later}}, "xxx", "never", ""},
		"an error goes first": {[]quota.Result{{Decision: later}, {Err: junk}}, "xx", "invalid_api_key", ""},
	} {
		a := &answers{each: c.results}
		list := make([]*commonv3.RateLimitDescriptor, len(c.results))
		for i := range list {
			list[i] = descriptor("api_key=qk_a")
		}
		r := serve(t, a, Options{}).should(t, request(list...))
		got, overall := "", isOK
		for _, st := range r.GetStatuses() {
			if st.GetCode() == isOver {
				got, overall = got+"x", isOver
			} else {
				got += "o"
			}
		}
		h := values(t, r.GetResponseHeadersToAdd())
		if got != c.codes || r.GetOverallCode() != overall || h["retry-after"] != c.retry || !strings.Contains(string(r.GetRawBody())+h["x-ratelimit-remaining"], c.speaks) {
			t.Errorf("%s: %s with %v and %s", name, got, h, r.GetRawBody())
		}
		if len(a.asked()) != len(list) {
			t.Errorf("%s: not all were asked together", name)
		}
	}
}

func TestWhatOnlyAWrongConfigurationSendsIsAnError(t *testing.T) {
	t.Parallel()
	a := &answers{decision: admitted()}
	s := serve(t, a, Options{})
	good := descriptor("api_key=qk_a")
	override, refund := descriptor("api_key=qk_a"), descriptor("api_key=qk_a")
	override.Limit = &commonv3.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 5, Unit: typev3.RateLimitUnit_HOUR}
	refund.IsNegativeHits = true
	many := make([]*commonv3.RateLimitDescriptor, maxDescriptors+1)
	for i := range many {
		many[i] = good
	}
	for name, c := range map[string]struct {
		request *ratelimitv3.RateLimitRequest
		says    string
	}{
		"nothing":            {&ratelimitv3.RateLimitRequest{}, "domain"},
		"no domain":          {&ratelimitv3.RateLimitRequest{Descriptors: many[:1]}, "domain"},
		"no descriptors":     {request(), "descriptors"},
		"too many":           {request(many...), "at most 64"},
		"no entries":         {request(good, descriptor()), "descriptors[1].entries"},
		"an entry's key":     {request(descriptor("api_key=qk_a", "=x")), "key"},
		"an override":        {request(good, override), "descriptors[1].limit"},
		"a refund":           {request(refund), "is_negative_hits"},
		"a nil descriptor":   {request(nil), "descriptors[0].entries"},
		"a refund of nobody": {request(&commonv3.RateLimitDescriptor{IsNegativeHits: true}), "entries"},
	} {
		_, err := s.limits.ShouldRateLimit(within(t), c.request)
		if len(a.asked()) != 0 {
			t.Errorf("%s: the checker was asked", name)
		}
		wantCode(t, err, codes.InvalidArgument, c.says)
	}
	s.should(t, request(many[:maxDescriptors][:1]...))
}
