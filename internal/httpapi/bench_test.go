package httpapi

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/labstack/echo/v4"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/quota"
)

// fixed is a Checker that costs nothing.
type fixed struct{ decision quotad.Decision }

func (f *fixed) Check(context.Context, quota.Call) (quotad.Decision, error) {
	return f.decision, nil
}

func (f *fixed) CheckAll(_ context.Context, calls []quota.Call) ([]quota.Result, quotad.Decision, error) {
	results := make([]quota.Result, len(calls))
	for i := range results {
		results[i].Decision = f.decision
	}
	return results, quotad.Decision{}, nil
}

func (f *fixed) Limits(context.Context, quota.Call) ([]quotad.Decision, error) { return nil, nil }

// benchDoors are the handlers to compare: what quotad does beside a bare echo handler
// that sends the same body.
func benchDoors() map[string]struct {
	handler http.Handler
	request func() *http.Request
} {
	s := New(&fixed{admitted()}, Options{Registerer: prometheus.NewRegistry()})
	refuses := New(&fixed{refused()}, Options{Registerer: prometheus.NewRegistry()})
	decision := admitted()
	body := decision.AppendJSON(nil)
	bare := echo.New()
	bare.POST("/v1/check", func(c echo.Context) error { return c.Blob(http.StatusOK, "application/json", body) })
	bare.GET("/v1/authorize/*", func(c echo.Context) error { return c.NoContent(http.StatusOK) })

	asking := func() *http.Request {
		r, _ := http.NewRequest("POST", "/v1/check", strings.NewReader(`{"method":"POST","path":"/v1/exports","cost":1}`))
		r.Header["X-Api-Key"] = []string{"qk_test"}
		r.Header["Content-Type"] = []string{"application/json"}
		r.RemoteAddr = "192.0.2.1:1234"
		return r
	}
	forwarding := func() *http.Request {
		r, _ := http.NewRequest("GET", "/v1/authorize/v1/exports", nil)
		r.Header["X-Api-Key"] = []string{"qk_test"}
		r.RemoteAddr = "192.0.2.1:1234"
		return r
	}
	return map[string]struct {
		handler http.Handler
		request func() *http.Request
	}{
		"check/bare": {bare, asking}, "check/quotad": {s.Handler(), asking}, "check/refused": {refuses.Handler(), asking},
		"authorize/bare": {bare, forwarding}, "authorize/quotad": {s.Handler(), forwarding}, "authorize/refused": {refuses.Handler(), forwarding},
	}
}

// BenchmarkWire answers over a real connection on the loopback interface, as
// clients see it.
func BenchmarkWire(b *testing.B) {
	for name, door := range benchDoors() {
		b.Run(name, func(b *testing.B) {
			server := httptest.NewServer(door.handler)
			defer server.Close()
			transport := &http.Transport{MaxIdleConnsPerHost: 64}
			defer transport.CloseIdleConnections()
			base := strings.TrimPrefix(server.URL, "http://")
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					r := door.request()
					r.URL.Scheme, r.URL.Host = "http", base
					resp, err := transport.RoundTrip(r)
					if err != nil {
						b.Error(err)
						return
					}
					_, _ = io.Copy(io.Discard, resp.Body)
					_ = resp.Body.Close()
				}
			})
		})
	}
}

// BenchmarkHandler is the handler alone, without net/http around it.
func BenchmarkHandler(b *testing.B) {
	for name, door := range benchDoors() {
		b.Run(name, func(b *testing.B) {
			r := door.request()
			var body []byte
			if r.Body != nil {
				body, _ = io.ReadAll(r.Body)
			}
			w := &discard{header: http.Header{}}
			reader := bytes.NewReader(body)
			b.ReportAllocs()
			for b.Loop() {
				clear(w.header)
				reader.Reset(body)
				r.Body = io.NopCloser(reader)
				door.handler.ServeHTTP(w, r)
			}
		})
	}
}

type discard struct{ header http.Header }

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) Write(b []byte) (int, error) { return len(b), nil }
func (d *discard) WriteHeader(int)             {}

// BenchmarkListHandler is the handler of fifty checks alone; divide by fifty.
func BenchmarkListHandler(b *testing.B) {
	s := New(&fixed{admitted()}, Options{Registerer: prometheus.NewRegistry()})
	body := []byte(list(strings.Split(strings.Repeat(`{"method":"POST","path":"/v1/exports","cost":1} `, 50), " ")[:50]...))
	r, _ := http.NewRequest("POST", "/v1/checks", nil)
	r.Header["X-Api-Key"] = []string{"qk_test"}
	r.Header["Content-Type"] = []string{"application/json"}
	r.RemoteAddr = "192.0.2.1:1234"
	w := &discard{header: http.Header{}}
	reader := bytes.NewReader(body)
	b.ReportAllocs()
	for b.Loop() {
		clear(w.header)
		reader.Reset(body)
		r.Body = io.NopCloser(reader)
		s.Handler().ServeHTTP(w, r)
	}
}
