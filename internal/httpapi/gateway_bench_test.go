package httpapi

import (
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// canned is an upstream that costs nothing.
type canned struct{}

func (canned) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{
		StatusCode: http.StatusOK, ContentLength: 2, Body: io.NopCloser(strings.NewReader("{}")),
		Header: http.Header{"Content-Type": {"application/json"}, "Content-Length": {"2"}, "Date": {"Mon, 30 Nov 2026 12:00:00 GMT"}},
	}, nil
}

// BenchmarkGatewayHandler is what the gateway itself adds to a bare ReverseProxy:
// neither connections, nor a decision.
func BenchmarkGatewayHandler(b *testing.B) {
	upstreams, err := ParseUpstreams("http://127.0.0.1:1")
	if err != nil {
		b.Fatal(err)
	}
	g := NewGateway(New(&fixed{admitted()}, Options{Registerer: prometheus.NewRegistry()}), always(""), upstreams, GatewayOptions{})
	fresh := g.passages.New
	g.passages.New = func() any {
		p := fresh().(*passage)
		p.proxy.Transport = canned{}
		return p
	}
	to, _ := url.Parse("http://127.0.0.1:1")
	for name, handler := range map[string]http.Handler{
		"bare": &httputil.ReverseProxy{
			Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(to); r.Out.Host = r.In.Host; r.SetXForwarded() },
			Transport: canned{}, BufferPool: &buffers{},
		},
		"gateway": g,
	} {
		b.Run(name, func(b *testing.B) {
			r, _ := http.NewRequest("GET", "/v1/exports/7?a=b", nil)
			r.RequestURI, r.RemoteAddr = "/v1/exports/7?a=b", "192.0.2.1:1234"
			r.Header = http.Header{"X-Api-Key": {"qk_test"}, "User-Agent": {"bench"}, "Accept": {"*/*"}}
			w := &discard{header: http.Header{}}
			b.ReportAllocs()
			for b.Loop() {
				clear(w.header)
				handler.ServeHTTP(w, r)
			}
		})
	}
}
