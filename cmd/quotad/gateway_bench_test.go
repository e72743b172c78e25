package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
)

// BenchmarkGateway passes calls on through a whole node, beside a bare ReverseProxy to the same upstream that keeps
// as many connections and buffers. All of it, the upstream and the asking too, shares the processors of one machine.
func BenchmarkGateway(b *testing.B) {
	const connections, keys = 64, 1000
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"id":"exp_1","status":"done"}`)
	}))
	b.Cleanup(upstream.Close)
	to, err := url.Parse(upstream.URL)
	if err != nil {
		b.Fatal(err)
	}
	bare := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(to); r.Out.Host = r.In.Host; r.SetXForwarded() },
		Transport: &http.Transport{MaxIdleConnsPerHost: 512, DisableCompression: true}, BufferPool: &copyBuffers{},
	})
	b.Cleanup(bare.Close)
	for name, stores := range map[string]func(testing.TB) []string{"redis": shared, "memory": embedded} {
		b.Run(name, func(b *testing.B) {
			stores := stores(b)
			n := start(b, append(stores, "QUOTAD_LOG_LEVEL=warn", "QUOTAD_GATEWAY_LISTEN=127.0.0.1:0", "QUOTAD_UPSTREAM="+upstream.URL))
			n.must(http.MethodPost, "/tiers", map[string]any{"name": "pro", "rate_limit": 1_000_000_000, "rate_window": 60})
			n.must(http.MethodPost, "/tenants", map[string]any{"id": "acme", "name": "Acme", "tier": "pro"})
			requests := make([]string, keys)
			for i := range requests {
				secret := n.must(http.MethodPost, "/tenants/acme/keys", map[string]any{"name": "k"})["secret"].(string)
				requests[i] = "GET /v1/exports/7?a=b HTTP/1.1\r\nHost: q\r\nAccept: */*\r\nUser-Agent: bench\r\nX-API-Key: " + secret + "\r\n\r\n"
			}
			takeTurns(b, redisTime(b, stores),
				newRival(b, "bare", strings.TrimPrefix(bare.URL, "http://"), connections, requests),
				newRival(b, "gateway", strings.TrimPrefix(n.gateway, "http://"), connections, requests))
			n.stop()
		})
	}
}

// copyBuffers are buffers to copy answers through.
type copyBuffers struct{ pool sync.Pool }

func (c *copyBuffers) Get() []byte {
	if b, ok := c.pool.Get().(*[32 << 10]byte); ok {
		return b[:]
	}
	return make([]byte, 32<<10)
}

func (c *copyBuffers) Put(b []byte) { c.pool.Put((*[32 << 10]byte)(b)) }
