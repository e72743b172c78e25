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
	answers := make(chan answer, 2)
	for _, path := range []string{"/slow", "/events"} {
		go func() { answers <- n.through(http.MethodGet, path, key) }()
	}
	soon(t, 5*time.Second, "both are in flight", func() error {
		metrics, err := send(testClient, http.MethodGet, n.admin+"/metrics", nil)
		if err != nil || !strings.Contains(metrics.body, `quotad_http_in_flight{listener="gateway"} 2`) {
			return fmt.Errorf("%v", err)
		}
		return nil
	})
	n.cancel()
	if a := <-answers; a.status != http.StatusOK || a.body != "data: first\n\n" {
		t.Errorf("the stream ended with %d %q", a.status, a.body)
	}
	close(release)
	if a := <-answers; a.status != http.StatusOK || a.body != "done" {
		t.Errorf("the call in flight: %d %q", a.status, a.body)
	}
	n.stop()
}
