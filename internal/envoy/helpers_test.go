package envoy

import (
	"context"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/quota"
)

// now is the time in these tests.
var now = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// answers is a Checker that gives what a test wants on the wire, and remembers what it
// was asked.
type answers struct {
	decision quotad.Decision
	err      error
	// each are the results of calls that come together; the decision for each by default.
	each   []quota.Result
	peeked quotad.Decision
	token  error
	before func()

	mu    sync.Mutex
	calls []quota.Call
}

func (a *answers) Check(_ context.Context, call quota.Call) (quotad.Decision, error) {
	a.note(call)
	if a.before != nil {
		a.before()
	}
	return a.decision, a.err
}

func (a *answers) CheckTogether(_ context.Context, calls []quota.Call) []quota.Result {
	for _, call := range calls {
		a.note(call)
	}
	if a.each == nil {
		return slices.Repeat([]quota.Result{{Decision: a.decision, Err: a.err}}, len(calls))
	}
	return a.each
}

func (a *answers) Peek(context.Context, quota.Call) (quotad.Decision, error) { return a.peeked, nil }

func (a *answers) CheckServiceToken(_ context.Context, token string) error {
	if token != "qa_service" {
		return quotad.ErrInvalidAPIKey
	}
	return a.token
}

func (a *answers) note(call quota.Call) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.calls = append(a.calls, call)
}

// asked are the calls that the checker got since it was last asked for them.
func (a *answers) asked() []quota.Call {
	a.mu.Lock()
	defer a.mu.Unlock()
	defer func() { a.calls = nil }()
	return a.calls
}

// serving is a server on a real socket, and Envoy's own clients of it.
type serving struct {
	*Server
	conn      *grpc.ClientConn
	limits    ratelimitv3.RateLimitServiceClient
	authorize authv3.AuthorizationClient
}

func serve(t testing.TB, checker Checker, opts Options) *serving {
	t.Helper()
	if opts.Now == nil {
		opts.Now = func() time.Time { return now }
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := New(checker, opts)
	served := make(chan error, 1)
	go func() { served <- s.Serve(listener) }()
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		s.Close()
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return &serving{Server: s, conn: conn, limits: ratelimitv3.NewRateLimitServiceClient(conn), authorize: authv3.NewAuthorizationClient(conn)}
}

// patience is how long a test that is not about time waits on a busy machine.
const patience = 5 * time.Minute

// within is a context that ends before the test does, with metadata given as pairs.
func within(t testing.TB, pairs ...string) context.Context {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
	t.Cleanup(cancel)
	return metadata.AppendToOutgoingContext(ctx, pairs...)
}

// descriptor is one of the entries, which are given as "key=value".
func descriptor(entries ...string) *commonv3.RateLimitDescriptor {
	d := &commonv3.RateLimitDescriptor{}
	for _, e := range entries {
		key, value, _ := strings.Cut(e, "=")
		d.Entries = append(d.Entries, &commonv3.RateLimitDescriptor_Entry{Key: key, Value: value})
	}
	return d
}

func request(descriptors ...*commonv3.RateLimitDescriptor) *ratelimitv3.RateLimitRequest {
	return &ratelimitv3.RateLimitRequest{Domain: "quotad", Descriptors: descriptors}
}

// should asks the rate limit service, which has to answer.
func (s *serving) should(t testing.TB, r *ratelimitv3.RateLimitRequest, pairs ...string) *ratelimitv3.RateLimitResponse {
	t.Helper()
	response, err := s.limits.ShouldRateLimit(within(t, pairs...), r)
	if err != nil {
		t.Fatal(err)
	}
	return response
}

// wantCode expects an error of gRPC with a text in it.
func wantCode(t testing.TB, err error, code codes.Code, text string) {
	t.Helper()
	if status.Code(err) != code || !strings.Contains(status.Convert(err).Message(), text) {
		t.Errorf("got %v, want %s with %q", err, code, text)
	}
}

// check is a question about a GET with a key and the headers, which are given as "name: value";
// "-" leaves one out.
func check(path string, headers ...string) *authv3.CheckRequest {
	h := map[string]string{"x-api-key": "qk_test"}
	for _, line := range headers {
		name, value, _ := strings.Cut(line, ": ")
		if h[name] = value; value == "-" {
			delete(h, name)
		}
	}
	return &authv3.CheckRequest{Attributes: &authv3.AttributeContext{
		Source:  source("192.0.2.1"),
		Request: &authv3.AttributeContext_Request{Http: &authv3.AttributeContext_HttpRequest{Method: "GET", Path: path, Headers: h}},
	}}
}

func source(address string) *authv3.AttributeContext_Peer {
	return &authv3.AttributeContext_Peer{Address: &corev3.Address{Address: &corev3.Address_SocketAddress{
		SocketAddress: &corev3.SocketAddress{Address: address, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: 4711}},
	}}}
}

// may asks the ext_authz service, which has to answer.
func (s *serving) may(t testing.TB, r *authv3.CheckRequest) *authv3.CheckResponse {
	t.Helper()
	response, err := s.authorize.Check(within(t), r)
	if err != nil {
		t.Fatal(err)
	}
	return response
}

// values are the headers as a map; a name that is there twice is an error.
func values(t testing.TB, list []*corev3.HeaderValue) map[string]string {
	t.Helper()
	h := map[string]string{}
	for _, v := range list {
		if _, twice := h[v.GetKey()]; twice {
			t.Errorf("%s is there twice", v.GetKey())
		}
		h[v.GetKey()] = v.GetValue()
	}
	return h
}

func optionValues(t testing.TB, list []*corev3.HeaderValueOption) map[string]string {
	t.Helper()
	var plain []*corev3.HeaderValue
	for _, o := range list {
		plain = append(plain, o.GetHeader())
	}
	return values(t, plain)
}

// admitted is a decision of two limits and a shadow.
func admitted() quotad.Decision {
	return quotad.Decision{
		Allowed: true, Tenant: "acme", KeyID: "k1", Tier: "pro", RouteGroup: "exports", Cost: 1,
		Limits: []quotad.LimitStatus{
			limit("base", 1000, 900, 60, 12),
			limit("exports", 20, 19, 300, 15),
			{Policy: "trial", Limit: 5, Remaining: 0, Window: 60, RetryAfter: 60, Shadow: true, ResetAt: now},
		},
	}
}

func limit(policy string, size, remaining, window, reset int64) quotad.LimitStatus {
	return quotad.LimitStatus{
		Policy: policy, Scope: quotad.ScopeKey, Algorithm: quotad.TokenBucket, Limit: size, Remaining: remaining,
		Window: window, ResetAfter: reset, Allowed: true, ResetAt: now.Add(time.Duration(reset) * time.Second),
	}
}

// refused is a decision that the limit "exports" refuses for 30 seconds.
func refused() quotad.Decision {
	d := admitted()
	d.Allowed, d.RetryAfter = false, 30
	l := &d.Limits[1]
	l.Allowed, l.Remaining, l.RetryAfter, l.ResetAfter = false, 0, 30, 30
	l.ResetAt = now.Add(30 * time.Second)
	return d
}

// counter is the value of a counter.
func counter(t testing.TB, c prometheus.Metric) float64 {
	t.Helper()
	var m dto.Metric
	if err := c.Write(&m); err != nil {
		t.Fatal(err)
	}
	return m.GetCounter().GetValue()
}
