package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// dial opens a connection to the node's gRPC listener.
func (n *testNode) dial() *grpc.ClientConn {
	n.t.Helper()
	conn, err := grpc.NewClient(n.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { conn.Close() })
	return conn
}

// rateLimitDoor is an Envoy whose rate limit filter asks, with descriptors of all that it knows of the call.
func rateLimitDoor(n *testNode) door {
	client := ratelimitv3.NewRateLimitServiceClient(n.dial())
	return door{
		name: "rate limit service",
		can:  func(c asked) bool { return !preflight(c) && !hasHeader(c, "Authorization") && isText(c) },
		ask: func(t testing.TB, c asked) string {
			d := descriptor("method", method(c), "path", c.path)
			if keys := valuesOf(c, "x-api-key"); len(keys) > 0 {
				add(d, "api_key", strings.Join(keys, ",")) // as Envoy joins them
			}
			if c.subject != "" {
				add(d, "subject", c.subject)
			}
			add(d, "remote_address", cmp.Or(c.address, "127.0.0.1"))
			if c.cost != nil {
				d.HitsAddend = wrapperspb.UInt64(uint64(*c.cost))
			}
			r, err := client.ShouldRateLimit(deadline(t), &ratelimitv3.RateLimitRequest{Domain: "quotad", Descriptors: []*commonv3.RateLimitDescriptor{d}})
			if err != nil {
				t.Fatalf("%s %s: %v", method(c), c.path, err)
			}
			return rateLimitVerdict(t, r)
		},
	}
}

// isText reports whether the call's keys are what a string of protobuf can hold, and Envoy lets through: it refuses
// headers above 60 KiB itself.
func isText(c asked) bool {
	keys := strings.Join(c.keys, "")
	return utf8.ValidString(keys) && len(keys) <= 60<<10
}

func deadline(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
	t.Cleanup(cancel)
	return ctx
}

// descriptor is one of the entries, which are pairs of key and value.
func descriptor(pairs ...string) *commonv3.RateLimitDescriptor {
	d := &commonv3.RateLimitDescriptor{}
	for i := 0; i < len(pairs); i += 2 {
		add(d, pairs[i], pairs[i+1])
	}
	return d
}

func add(d *commonv3.RateLimitDescriptor, key, value string) {
	d.Entries = append(d.Entries, &commonv3.RateLimitDescriptor_Entry{Key: key, Value: value})
}

// lowerCased are headers as Envoy has them.
type lowerCased map[string][]string

// valuesOf are the values of a header of the client's call.
func valuesOf(c asked, name string) []string {
	var values []string
	for _, line := range c.lines() {
		n, value, _ := strings.Cut(line, ":")
		if strings.EqualFold(n, name) {
			values = append(values, strings.TrimSpace(value))
		}
	}
	return values
}

func hasHeader(c asked, name string) bool { return len(valuesOf(c, name)) > 0 }

// rateLimitVerdict puts an answer of the rate limit service into words.
func rateLimitVerdict(t testing.TB, r *ratelimitv3.RateLimitResponse) string {
	t.Helper()
	h := lowerCased{}
	for _, header := range r.GetResponseHeadersToAdd() {
		if header.GetKey() != strings.ToLower(header.GetKey()) || h[header.GetKey()] != nil {
			t.Errorf("header %s: not in lower case, or twice", header.GetKey())
		}
		h[header.GetKey()] = []string{header.GetValue()}
	}
	if len(r.GetStatuses()) != 1 || r.GetStatuses()[0].GetCode() != r.GetOverallCode() {
		t.Errorf("statuses of one descriptor: %v", r)
	}
	status := r.GetStatuses()[0]
	if left := h["x-ratelimit-remaining"]; left != nil && left[0] != fmt.Sprint(status.GetLimitRemaining()) {
		t.Errorf("%s left, but Envoy is told of %d", left[0], status.GetLimitRemaining())
	}
	switch r.GetOverallCode() {
	case ratelimitv3.RateLimitResponse_OK:
		if len(r.GetRawBody()) > 0 || h["retry-after"] != nil {
			t.Errorf("a call that passes is refused: %v", r)
		}
		return "200 ? " + first(h, "x-ratelimit-remaining", "-")
	case ratelimitv3.RateLimitResponse_OVER_LIMIT:
		return problemVerdict(t, 0, h, string(r.GetRawBody()))
	}
	t.Errorf("code %s", r.GetOverallCode())
	return ""
}

func first(h lowerCased, name, otherwise string) string {
	if values := h[name]; len(values) > 0 {
		return values[0]
	}
	return otherwise
}

// problemVerdict puts a problem into words; status is what it must say it is, 0 where nobody knows.
func problemVerdict(t testing.TB, status int, h lowerCased, body string) string {
	t.Helper()
	var problem struct {
		Error    string
		Status   int
		Retry    int      `json:"retry_after"`
		Policies []string `json:"violated-policies"`
	}
	if err := json.Unmarshal([]byte(body), &problem); err != nil || status != 0 && problem.Status != status {
		t.Errorf("%d: %s (%v)", status, body, err)
	}
	if first(h, "cache-control", "") != "no-store" || !strings.HasPrefix(first(h, "content-type", ""), "application/") {
		t.Errorf("a refusal with headers %v", h)
	}
	if want := fmt.Sprint(problem.Retry); problem.Retry > 0 && first(h, "retry-after", "") != want || problem.Retry == 0 && h["retry-after"] != nil {
		t.Errorf("retry-after is %v, want %s", h["retry-after"], want)
	}
	return fmt.Sprintf("%d %s %s", problem.Status, problem.Error, cmp.Or(strings.Join(problem.Policies, ","), "-"))
}

// extAuthzDoor is an Envoy whose ext_authz filter asks over gRPC; raw is with encode_raw_headers.
func extAuthzDoor(n *testNode, raw bool) door {
	client := authv3.NewAuthorizationClient(n.dial())
	name := "ext_authz"
	if raw {
		name += " with raw headers"
	}
	return door{
		name: name,
		can:  func(c asked) bool { return raw && len(strings.Join(c.keys, "")) <= 60<<10 || isText(c) },
		ask: func(t testing.TB, c asked) string {
			extensions := map[string]string{"virtual_host": "anything"}
			if c.subject != "" {
				extensions["subject"] = c.subject
			}
			if c.cost != nil {
				extensions["cost"] = fmt.Sprint(*c.cost)
			}
			c.subject = "" // it is no header here
			r, err := client.Check(deadline(t), checkRequest(method(c), c.path, c.lines(), raw, extensions))
			if err != nil {
				t.Fatalf("%s %s: %v", method(c), c.path, err)
			}
			return extAuthzVerdict(t, r)
		},
	}
}

// checkRequest is what Envoy sends of a call that came from 127.0.0.1.
func checkRequest(method, path string, header []string, raw bool, extensions map[string]string) *authv3.CheckRequest {
	r := &authv3.AttributeContext_HttpRequest{Method: method, Path: path, Host: "quotad.test", Scheme: "https", Protocol: "HTTP/2"}
	if raw {
		r.HeaderMap = &corev3.HeaderMap{}
	} else {
		r.Headers = map[string]string{":method": method, ":path": path}
	}
	for _, line := range header {
		name, value, _ := strings.Cut(line, ":")
		name, value = strings.ToLower(name), strings.TrimSpace(value)
		if raw {
			r.HeaderMap.Headers = append(r.HeaderMap.Headers, &corev3.HeaderValue{Key: name, RawValue: []byte(value)})
		} else if before, twice := r.Headers[name]; twice {
			r.Headers[name] = before + "," + value
		} else {
			r.Headers[name] = value
		}
	}
	return &authv3.CheckRequest{Attributes: &authv3.AttributeContext{
		Source: &authv3.AttributeContext_Peer{Address: &corev3.Address{Address: &corev3.Address_SocketAddress{
			SocketAddress: &corev3.SocketAddress{Address: "127.0.0.1", PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: 4711}},
		}}},
		Request:           &authv3.AttributeContext_Request{Http: r},
		ContextExtensions: extensions,
	}}
}

// headersOf are the headers of an answer, each of which overwrites.
func headersOf(t testing.TB, options []*corev3.HeaderValueOption) lowerCased {
	t.Helper()
	h := lowerCased{}
	for _, o := range options {
		name := o.GetHeader().GetKey()
		if name != strings.ToLower(name) || h[name] != nil {
			t.Errorf("header %s: not in lower case, or twice", name)
		}
		//lint:ignore SA1019 Envoy takes no value of the older field beside the action, so it must not be there
		if o.GetAppendAction() != corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD && name != "cache-control" && name != "vary" || o.GetAppend() != nil {
			t.Errorf("header %s does not overwrite", name)
		}
		h[name] = []string{o.GetHeader().GetValue()}
	}
	return h
}

// extAuthzVerdict puts an answer of the ext_authz service into words.
func extAuthzVerdict(t testing.TB, r *authv3.CheckResponse) string {
	t.Helper()
	if ok := r.GetOkResponse(); ok != nil {
		upstream := headersOf(t, ok.GetHeaders())
		if r.GetStatus().GetCode() != 0 || !slices.Contains(ok.GetHeadersToRemove(), "x-api-key") {
			t.Errorf("admitted with %v", r)
		}
		for name := range upstream {
			if slices.Contains(ok.GetHeadersToRemove(), name) {
				t.Errorf("%s is set and removed", name)
			}
		}
		return "200 " + first(upstream, "x-quotad-route-group", "?") + " " +
			first(headersOf(t, ok.GetResponseHeadersToAdd()), "x-ratelimit-remaining", "-")
	}
	denied := r.GetDeniedResponse()
	h, status := headersOf(t, denied.GetHeaders()), int(denied.GetStatus().GetCode())
	if r.GetStatus().GetCode() == 0 || (status == http.StatusUnauthorized) != (h["www-authenticate"] != nil) {
		t.Errorf("refused with %v", r)
	}
	return problemVerdict(t, status, h, denied.GetBody())
}
