package main

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// BenchmarkGateway passes calls on through a whole node, beside a bare ReverseProxy to the same upstream that keeps
// as many connections and buffers. They take turns in short rounds, so that what else the machine does slows both alike. All of
// it, the upstream and the asking too, shares the processors of one machine.
func BenchmarkGateway(b *testing.B) {
	const connections, keys, round = 64, 1000, 2000
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
			n := start(b, append(stores(b), "QUOTAD_LOG_LEVEL=warn", "QUOTAD_GATEWAY_LISTEN=127.0.0.1:0", "QUOTAD_UPSTREAM="+upstream.URL))
			n.must(http.MethodPost, "/tiers", map[string]any{"name": "pro", "rate_limit": 1_000_000_000, "rate_window": 60})
			n.must(http.MethodPost, "/tenants", map[string]any{"id": "acme", "name": "Acme", "tier": "pro"})
			requests := make([]string, keys)
			for i := range requests {
				secret := n.must(http.MethodPost, "/tenants/acme/keys", map[string]any{"name": "k"})["secret"].(string)
				requests[i] = "GET /v1/exports/7?a=b HTTP/1.1\r\nHost: q\r\nAccept: */*\r\nUser-Agent: bench\r\nX-API-Key: " + secret + "\r\n\r\n"
			}
			ways := []*lane{
				newLane(b, strings.TrimPrefix(bare.URL, "http://"), connections, requests),
				newLane(b, strings.TrimPrefix(n.gateway, "http://"), connections, requests),
			}
			b.ResetTimer()
			for left := b.N; left > 0 && !b.Failed(); left -= round {
				for _, w := range ways {
					w.ask(b, min(round, left))
				}
			}
			b.StopTimer()
			if b.Failed() {
				return
			}
			for i, name := range []string{"bare", "gateway"} {
				w := ways[i]
				slices.Sort(w.times)
				b.ReportMetric(float64(len(w.times))/w.took.Seconds(), name+"-answers/s")
				b.ReportMetric(float64(w.times[len(w.times)/2].Microseconds()), name+"-p50-µs")
			}
			b.ReportMetric(ways[0].took.Seconds()/ways[1].took.Seconds(), "of-bare")
			b.ReportMetric(0, "ns/op") // of both together: it says nothing
			n.stop()
		})
	}
}

// lane is one of several ways to the same upstream.
type lane struct {
	conns    []*rawConn
	requests []string
	times    []time.Duration
	took     time.Duration
}

func newLane(b *testing.B, addr string, connections int, requests []string) *lane {
	w := &lane{requests: requests, conns: make([]*rawConn, connections)}
	first := dialRaw(b, addr)
	defer first.Close()
	for _, r := range requests { // every key is known before the clock starts
		if response, err := first.ask(r); err != nil || !strings.HasPrefix(response, "HTTP/1.1 200") {
			b.Fatal(response, err)
		}
	}
	for i := range w.conns {
		w.conns[i] = dialRaw(b, addr)
		b.Cleanup(func() { w.conns[i].Close() })
		if _, err := w.conns[i].ask(requests[i%len(requests)]); err != nil { // a server waits 5 s for a first request
			b.Fatal(err)
		}
	}
	return w
}

// ask asks so many requests over all connections at once.
func (w *lane) ask(b *testing.B, count int) {
	var left atomic.Int64
	left.Store(int64(count))
	times := make([][]time.Duration, len(w.conns))
	begun := time.Now()
	var all sync.WaitGroup
	for i, c := range w.conns {
		all.Go(func() {
			for left.Add(-1) >= 0 {
				asked := time.Now()
				if response, err := c.ask(w.requests[rand.IntN(len(w.requests))]); err != nil || !strings.HasPrefix(response, "HTTP/1.1 200") {
					b.Error(fmt.Sprint(response, err))
					return
				}
				times[i] = append(times[i], time.Since(asked))
			}
		})
	}
	all.Wait()
	w.took += time.Since(begun)
	w.times = append(w.times, slices.Concat(times...)...)
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
