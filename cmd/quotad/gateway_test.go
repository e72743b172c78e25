package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// behind starts a node with a gateway to an upstream that the handler is.
func behind(t testing.TB, stores []string, upstream http.HandlerFunc, args ...string) *testNode {
	t.Helper()
	server := httptest.NewServer(upstream)
	t.Cleanup(server.Close)
	return start(t, append(stores, "QUOTAD_GATEWAY_LISTEN=127.0.0.1:0", "QUOTAD_UPSTREAM="+server.URL), args...)
}

// through makes a call through the gateway.
func (n *testNode) through(method, path, key string, header ...string) answer {
	n.t.Helper()
	a, err := send(testClient, method, n.gateway+path, nil, append(header, "X-API-Key", key)...)
	if err != nil {
		n.t.Errorf("%s %s: %v", method, path, err)
	}
	return a
}

// What a decision admits reaches the upstream, with who calls and without the key; what it refuses does not.
func TestGatewayPassesOnWhatIsAdmitted(t *testing.T) {
	each(t, func(t *testing.T, stores []string) {
		var got atomic.Int64
		n := behind(t, stores, func(w http.ResponseWriter, r *http.Request) {
			got.Add(1)
			fmt.Fprintf(w, "%s %s %s|%s|%s|%s|%s", r.Method, r.RequestURI, r.Header.Get("X-Quotad-Tenant"), r.Header.Get("X-Quotad-Key-Id"),
				r.Header.Get("X-Quotad-Tier"), r.Header.Get("X-Quotad-Route-Group"), r.Header.Get("X-API-Key"))
		})
		n.must(http.MethodPost, "/route-groups", map[string]any{"name": "exports", "match": []string{"POST /v1/exports"}, "cost": 2})
		id, key := n.customer("acme", 4, nil)
		for i := range 2 {
			a := n.through(http.MethodPost, "/v1//exports?a=%zz;b", key)
			if want := "POST /v1//exports?a=%zz;b acme|" + id + "|acme|exports|"; a.status != http.StatusOK || a.body != want {
				t.Fatalf("got %d %q, want %q", a.status, a.body, want)
			}
			if left := a.header.Get("X-RateLimit-Remaining"); left != fmt.Sprint(2-2*i) {
				t.Errorf("call %d: %s left", i, left)
			}
		}
		if a := n.through(http.MethodPost, "/v1/exports", key); a.status != http.StatusTooManyRequests || a.header.Get("Retry-After") == "" {
			t.Errorf("the third: %d %v", a.status, a.header)
		}
		for path, want := range map[string]int{"/a/../v1/exports": 400, "/v1/exports%00": 400} {
			if a := n.through(http.MethodPost, path, key); a.status != want {
				t.Errorf("%s: got %d, want %d", path, a.status, want)
			}
		}
		if a := n.through(http.MethodGet, "/", "qk_no"); a.status != http.StatusUnauthorized {
			t.Errorf("a wrong key: %d", a.status)
		}
		if got.Load() != 2 {
			t.Errorf("the upstream got %d calls, want 2", got.Load())
		}
	})
}

// One key, ten units, spent in turn through four doors: ten pass.
func TestGatewayCountsWithTheOtherDoors(t *testing.T) {
	each(t, func(t *testing.T, stores []string) {
		n := behind(t, stores, func(http.ResponseWriter, *http.Request) {})
		_, key := n.customer("acme", 10, nil)
		doors := []func() answer{
			func() answer { return n.ping(key) },
			func() answer { return n.check(key, "default") },
			func() answer { return n.metered(http.MethodGet, "/v1/authorize/x", nil, key) },
			func() answer { return n.through(http.MethodGet, "/x", key) },
		}
		var passed atomic.Int64
		var all sync.WaitGroup
		for i := range 24 {
			all.Go(func() {
				if doors[i%len(doors)]().status == http.StatusOK {
					passed.Add(1)
				}
			})
		}
		all.Wait()
		if passed.Load() != 10 {
			t.Errorf("%d passed, want 10", passed.Load())
		}
	})
}

// A call that is with the upstream when the node is told to end is answered; a stream, which would never end, is ended.
func TestGatewayShutdown(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	n := behind(t, embedded(t), func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/events":
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, "data: first\n\n")
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		default:
			<-release
			_, _ = io.WriteString(w, "done")
		}
	})
	_, key := n.customer("acme", 100, nil)
	answers := make(chan answer, 1)
	go func() { answers <- n.through(http.MethodGet, "/slow", key) }()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, n.gateway+"/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-API-Key", key)
	stream, err := testClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Body.Close()
	const event = "data: first\n\n"
	first := make([]byte, len(event))
	if _, err := io.ReadFull(stream.Body, first); err != nil || string(first) != event {
		t.Fatalf("the stream began with %q, %v", first, err)
	}
	soon(t, "both are in flight", func() error {
		metrics, err := send(testClient, http.MethodGet, n.admin+"/metrics", nil)
		if err != nil || !strings.Contains(metrics.body, `quotad_http_in_flight{listener="gateway"} 2`) {
			return fmt.Errorf("%v", err)
		}
		return nil
	})
	n.cancel()
	if rest, err := io.ReadAll(stream.Body); err != nil || len(rest) > 0 {
		t.Errorf("the stream ended with %q, %v", rest, err)
	}
	close(release)
	if a := <-answers; a.status != http.StatusOK || a.body != "done" {
		t.Errorf("the call in flight: %d %q", a.status, a.body)
	}
	n.stop()
}

// A node that is told to end while calls go through its gateway: whoever watches its readiness never meets a broken
// connection, and each 200 was charged once, and reached the upstream once.
func TestGatewayShutdownUnderLoad(t *testing.T) {
	t.Parallel()
	var reached atomic.Int64
	upstream := func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		time.Sleep(time.Duration(reached.Add(1)%20) * time.Millisecond)
		_, _ = w.Write(body)
	}
	stores := shared(t)
	endUnderLoad(t, 2, func(args ...string) *testNode { return behind(t, stores, upstream, args...) }, func(to *testNode, key string, i int) (answer, error) {
		if i%2 == 0 {
			return send(testClient, http.MethodPost, to.gateway+"/x", strings.Repeat("x", i%5000), "X-API-Key", key)
		}
		return send(testClient, http.MethodGet, to.gateway+"/x", nil, "X-API-Key", key)
	}, reached.Load)
}

// Calls that are in flight when the grace is over are cut off, and the node says so.
func TestGatewayShutdownCutShort(t *testing.T) {
	t.Parallel()
	n := behind(t, embedded(t), func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, "--shutdown-grace=1s")
	_, key := n.customer("acme", 10, nil)
	failed := make(chan error, 1)
	go func() {
		_, err := send(testClient, http.MethodGet, n.gateway+"/never", nil, "X-API-Key", key)
		failed <- err
	}()
	soon(t, "the call is in flight", func() error {
		metrics, err := send(testClient, http.MethodGet, n.admin+"/metrics", nil)
		if err != nil || !strings.Contains(metrics.body, `quotad_http_in_flight{listener="gateway"} 1`) {
			return fmt.Errorf("%v", err)
		}
		return nil
	})
	n.cancel()
	<-n.done
	if err := <-failed; err == nil || n.code != exitFailed || !strings.Contains(n.stderr.String(), `"msg":"shutdown was cut short","calls":1,`) {
		t.Errorf("exit code %d, the call ended with %v\n%s", n.code, err, n.stderr)
	}
}

// A gateway needs an upstream, and a listener of its own.
func TestGatewayOptions(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"--gateway-listen=:1":                                       "--gateway-listen: needs upstream",
		"--upstream=http://a":                                       "--upstream: has no meaning without gateway-listen",
		"--upstream=http://a/path --gateway-listen=:1":              "--upstream: must be http://host:port",
		"--upstream=http://u:secret@a --gateway-listen=:1":          "its value is not shown",
		"--upstream=http://a --gateway-listen=:1 --listen=:1":       "--gateway-listen: must not be where",
		"--upstream=http://a --gateway-listen=:1 --admin-listen=:1": "--gateway-listen: must not be where",
	} {
		if _, err := loadServe(t, strings.Fields(args), nil, ""); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: got %v", args, err)
		}
	}
	config, err := loadServe(t, nil, []string{"QUOTAD_GATEWAY_LISTEN=:0", "QUOTAD_UPSTREAM=exports=http://a:1,https://b"}, "gateway-waiting: 5\nupstream-timeout: 3s\n")
	if err != nil || config.Upstream != "exports=http://a:1,https://b" || config.GatewayWaiting != 5 || config.UpstreamTimeout != 3*time.Second {
		t.Errorf("got %+v, %v", config, err)
	}
}

// What stands behind the name of a route group gets the calls of that group, preflights too.
func TestGatewayUpstreamsByRouteGroup(t *testing.T) {
	t.Parallel()
	named := func(name string) *httptest.Server {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, name) }))
		t.Cleanup(server.Close)
		return server
	}
	exports, rest := named("exports"), named("rest")
	n := start(t, append(embedded(t), "QUOTAD_GATEWAY_LISTEN=127.0.0.1:0", "QUOTAD_UPSTREAM=exports="+exports.URL+","+rest.URL))
	n.must(http.MethodPost, "/route-groups", map[string]any{"name": "exports", "match": []string{"POST /v1/exports"}})
	_, key := n.customer("acme", 10, nil)
	for call, want := range map[string]string{"POST /V1//exports": "exports", "GET /v1/exports": "rest", "POST /v1/else": "rest"} {
		method, path, _ := strings.Cut(call, " ")
		if a := n.through(method, path, key); a.body != want {
			t.Errorf("%s went to %s, want %s", call, a.body, want)
		}
	}
	if a := n.through(http.MethodOptions, "/v1/exports", "", "Origin", "https://a.example.com", "Access-Control-Request-Method", "POST"); a.body != "exports" {
		t.Errorf("a preflight went to %s", a.body)
	}
	exports.Close()
	if a := n.through(http.MethodPost, "/v1/exports", key); a.status != http.StatusBadGateway || a.object(t)["error"] != "upstream_unavailable" || a.header.Get("X-RateLimit-Remaining") == "" {
		t.Errorf("with that upstream away: %d %v %s", a.status, a.header, a.body)
	}
}
