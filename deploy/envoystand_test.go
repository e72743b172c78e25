package deploy

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// envoyStand does with a call what the file tells Envoy to do, as far as quotad is concerned: there is no Envoy where the
// tests run. It knows what these files use, and fails the test on anything else.
type envoyStand struct {
	t     testing.TB
	parts envoyParts
	http  string
	grpc  *grpc.ClientConn
}

var grpcListen = regexp.MustCompile(`"grpc_listen":"([^"]+)"`)

func standFor(t testing.TB, n *node, file string, edits ...string) *envoyStand {
	t.Helper()
	at := grpcListen.FindStringSubmatch(n.Log())
	if at == nil {
		t.Fatalf("quotad does not say where it listens for Envoy:\n%s", n.Log())
	}
	conn, err := grpc.NewClient(at[1], grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &envoyStand{t: t, parts: partsOf(t, readEnvoy(t, file, edits...)), http: n.URL(), grpc: conn}
}

// lowerCased are headers as Envoy has them.
type lowerCased map[string][]string

// passage is what became of a call: what its client reads, and what the API got, nil where it got nothing.
type passage struct {
	status int
	client lowerCased // with the API's own
	body   string
	api    lowerCased
}

// call is a call of a client at 192.0.2.1, with headers as "name: value".
func (e *envoyStand) call(method, path string, header ...string) passage {
	e.t.Helper()
	h := lowerCased{}
	for _, line := range header {
		name, value, _ := strings.Cut(line, ": ")
		name = strings.ToLower(name)
		if h[name] = append(h[name], value); len(h[name]) > 1 {
			h[name] = []string{strings.Join(h[name], ",")} // as Envoy tells them
		}
	}
	if e.parts.protocol.GetHeadersWithUnderscoresAction() == corev3.HttpProtocolOptions_DROP_HEADER {
		maps.DeleteFunc(h, func(name string, _ []string) bool { return strings.Contains(name, "_") })
	}
	h["x-forwarded-for"] = append(h["x-forwarded-for"], "192.0.2.1")
	for _, m := range e.parts.mutation.GetMutations().GetRequestMutations() {
		delete(h, m.GetRemove())
	}
	route := e.route(method, h)
	p := passage{client: lowerCased{}}
	switch {
	case e.parts.limit != nil:
		e.limit(&p, method, path, h, route)
	case e.parts.authorize.GetHttpService() != nil:
		e.askHTTP(&p, method, path, h)
	default:
		e.askGRPC(&p, method, path, h)
	}
	if p.status != http.StatusOK {
		return p
	}
	for _, name := range e.parts.host.GetRequestHeadersToRemove() {
		delete(h, name)
	}
	p.api = h
	own := lowerCased{"x-ratelimit-limit": {"the API's"}, "ratelimit": {"the API's"}, "content-type": {"text/html"}}
	for _, name := range e.parts.host.GetResponseHeadersToRemove() {
		delete(own, name)
	}
	for name, values := range own {
		p.client[name] = append(values, p.client[name]...)
	}
	return p
}

func (e *envoyStand) route(method string, h lowerCased) *routev3.RouteAction {
	for _, r := range e.parts.host.GetRoutes() {
		matches := true
		for _, m := range r.GetMatch().GetHeaders() {
			value, present := method, true
			if m.GetName() != ":method" {
				_, present = h[m.GetName()]
				value = strings.Join(h[m.GetName()], ",")
			}
			matches = matches && present == (m.GetPresentMatch() || m.GetStringMatch() != nil) &&
				(m.GetStringMatch() == nil || matcher(e.t, m.GetStringMatch(), value))
		}
		if matches {
			return r.GetRoute()
		}
	}
	e.t.Fatal("no route matches")
	return nil
}

// limit is the rate limit filter.
func (e *envoyStand) limit(p *passage, method, path string, h lowerCased, route *routev3.RouteAction) {
	p.status = http.StatusOK
	ask := &rlsv3.RateLimitRequest{Domain: e.parts.limit.GetDomain()}
	for _, limit := range route.GetRateLimits() {
		if d := e.descriptor(limit, method, path, h); d != nil {
			ask.Descriptors = append(ask.Descriptors, d)
		}
	}
	if len(ask.GetDescriptors()) == 0 {
		return // Envoy does not ask
	}
	ctx, cancel := context.WithTimeout(e.t.Context(), patience)
	defer cancel()
	r, err := rlsv3.NewRateLimitServiceClient(e.grpc).ShouldRateLimit(ctx, ask)
	if err != nil {
		if e.parts.limit.GetFailureModeDeny() {
			p.status = int(e.parts.limit.GetStatusOnError().GetCode())
		}
		return
	}
	for _, v := range r.GetResponseHeadersToAdd() {
		p.client[v.GetKey()] = append(p.client[v.GetKey()], v.GetValue())
	}
	if r.GetOverallCode() == rlsv3.RateLimitResponse_OVER_LIMIT {
		p.status, p.body = http.StatusTooManyRequests, string(r.GetRawBody())
	}
}

func (e *envoyStand) descriptor(limit *routev3.RateLimit, method, path string, h lowerCased) *commonv3.RateLimitDescriptor {
	d := &commonv3.RateLimitDescriptor{}
	for _, action := range limit.GetActions() {
		key, value, present := "remote_address", "192.0.2.1", true
		switch a := action.GetActionSpecifier().(type) {
		case *routev3.RateLimit_Action_RemoteAddress_:
		case *routev3.RateLimit_Action_RequestHeaders_:
			key = a.RequestHeaders.GetDescriptorKey()
			switch a.RequestHeaders.GetHeaderName() {
			case ":method":
				value = method
			case ":path":
				value = path
			default:
				_, present = h[a.RequestHeaders.GetHeaderName()]
				value = strings.Join(h[a.RequestHeaders.GetHeaderName()], ",")
			}
			if !present && !a.RequestHeaders.GetSkipIfAbsent() {
				return nil
			}
		default:
			e.t.Fatalf("the stand does not know the action %v", action)
		}
		if present {
			d.Entries = append(d.Entries, &commonv3.RateLimitDescriptor_Entry{Key: key, Value: value})
		}
	}
	return d
}

// failed is what the ext_authz filter does where nobody answered.
func (e *envoyStand) failed(p *passage) {
	p.status = int(e.parts.authorize.GetStatusOnError().GetCode())
	if e.parts.authorize.GetFailureModeAllow() {
		p.status = http.StatusOK
	}
}

// askGRPC is the ext_authz filter over gRPC.
func (e *envoyStand) askGRPC(p *passage, method, path string, h lowerCased) {
	plain := map[string]string{":method": method, ":path": path}
	for name, values := range h {
		plain[name] = strings.Join(values, ",")
	}
	ctx, cancel := context.WithTimeout(e.t.Context(), patience)
	defer cancel()
	r, err := authv3.NewAuthorizationClient(e.grpc).Check(ctx, &authv3.CheckRequest{Attributes: &authv3.AttributeContext{
		Source:  &authv3.AttributeContext_Peer{Address: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{Address: "192.0.2.1"}}}},
		Request: &authv3.AttributeContext_Request{Http: &authv3.AttributeContext_HttpRequest{Method: method, Path: path, Headers: plain}},
	}})
	if err != nil {
		e.failed(p)
		return
	}
	if denied := r.GetDeniedResponse(); denied != nil {
		p.status, p.body = int(denied.GetStatus().GetCode()), denied.GetBody()
		for _, o := range denied.GetHeaders() {
			p.client[o.GetHeader().GetKey()] = []string{o.GetHeader().GetValue()}
		}
		return
	}
	p.status = http.StatusOK
	for _, o := range r.GetOkResponse().GetHeaders() {
		h[o.GetHeader().GetKey()] = []string{o.GetHeader().GetValue()}
	}
	for _, name := range r.GetOkResponse().GetHeadersToRemove() {
		delete(h, name)
	}
	for _, o := range r.GetOkResponse().GetResponseHeadersToAdd() {
		p.client[o.GetHeader().GetKey()] = []string{o.GetHeader().GetValue()}
	}
}

// askHTTP is the ext_authz filter over HTTP.
func (e *envoyStand) askHTTP(p *passage, method, path string, h lowerCased) {
	service := e.parts.authorize.GetHttpService()
	req, err := http.NewRequestWithContext(e.t.Context(), method, e.http+service.GetPathPrefix()+path, nil)
	if err != nil {
		e.t.Fatal(err)
	}
	for name, values := range h {
		if name == "authorization" || listed(e.t, e.parts.authorize.GetAllowedHeaders(), name) {
			req.Header[http.CanonicalHeaderKey(name)] = values
		}
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		e.failed(p)
		return
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode >= 500 {
		e.failed(p)
		return
	}
	answer := service.GetAuthorizationResponse()
	toClient := answer.GetAllowedClientHeadersOnSuccess()
	if p.status = res.StatusCode; p.status != http.StatusOK {
		p.body, toClient = string(body), answer.GetAllowedClientHeaders()
	}
	for name, values := range res.Header {
		name = strings.ToLower(name)
		if listed(e.t, toClient, name) {
			p.client[name] = values
		}
		if p.status == http.StatusOK && listed(e.t, answer.GetAllowedUpstreamHeaders(), name) {
			h[name] = values
		}
	}
}

func listed(t testing.TB, patterns *matcherv3.ListStringMatcher, name string) bool {
	for _, m := range patterns.GetPatterns() {
		if matcher(t, m, name) {
			return true
		}
	}
	return false
}

func matcher(t testing.TB, m *matcherv3.StringMatcher, text string) bool {
	switch p := m.GetMatchPattern().(type) {
	case *matcherv3.StringMatcher_Exact:
		return text == p.Exact
	case *matcherv3.StringMatcher_Prefix:
		return strings.HasPrefix(text, p.Prefix)
	default:
		t.Fatalf("the stand does not know the pattern %v", m)
		return false
	}
}

// words say what became of a call, such as "200 9 acme" with the units left and the tenant that the API was told, or "429
// rate_limit_exceeded 30".
func (p passage) words() string {
	if p.status == http.StatusOK {
		return fmt.Sprintf("200 %s %s", strings.Join(p.client["x-ratelimit-remaining"], ","), strings.Join(p.api["x-quotad-tenant"], ","))
	}
	_, code, _ := strings.Cut(p.body, `"error":"`)
	code, _, _ = strings.Cut(code, `"`)
	return fmt.Sprintf("%d %s", p.status, code)
}
