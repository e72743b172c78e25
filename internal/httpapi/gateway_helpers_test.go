package httpapi

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/quotad/quotad"
)

// always is the route group of every call that is not decided.
type always string

func (g always) RouteGroup(_ context.Context, _, path string) (string, error) {
	if strings.Contains(path, "..") {
		return "", quotad.NewError(quotad.CodeInvalidPath, "")
	}
	return string(g), nil
}

// gate is a gateway on a real socket, before a real upstream.
type gate struct {
	*Gateway
	t       *testing.T
	address string
	// reached is how many calls the upstream got.
	reached  atomic.Int64
	registry *prometheus.Registry
}

// gateTo opens a gateway that asks a, before the upstream.
func gateTo(t *testing.T, a Checker, opts Options, o GatewayOptions, upstream http.HandlerFunc) *gate {
	t.Helper()
	g := &gate{t: t}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.reached.Add(1)
		upstream(w, r)
	}))
	t.Cleanup(server.Close)
	g.open(a, opts, o, server.URL)
	return g
}

func (g *gate) open(a Checker, opts Options, o GatewayOptions, upstream string) {
	g.t.Helper()
	upstreams, err := ParseUpstreams(upstream)
	if err != nil {
		g.t.Fatal(err)
	}
	g.registry = prometheus.NewRegistry()
	o.Registerer = g.registry
	g.Gateway = NewGateway(New(a, opts), always("exports"), upstreams, o)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		g.t.Fatal(err)
	}
	server := g.HTTPServer()
	var done sync.WaitGroup
	done.Go(func() { _ = server.Serve(listener) })
	g.t.Cleanup(func() {
		_ = server.Close()
		done.Wait()
		g.Close()
	})
	g.address = listener.Addr().String()
}

// openGate is a gateway that admits every call.
func openGate(t *testing.T, upstream http.HandlerFunc) *gate {
	t.Helper()
	return gateTo(t, &answers{decision: admitted()}, Options{}, GatewayOptions{}, upstream)
}

// ask sends text as it is, with a Host and a key, and reads the answer.
func (g *gate) ask(line string, headers ...string) (status int, header http.Header, body string) {
	g.t.Helper()
	conn := dial(g.t, g.address)
	defer conn.Close()
	method, _, _ := strings.Cut(line, " ")
	_, err := io.WriteString(conn, head(line, headers...))
	if err != nil {
		g.t.Fatal(err)
	}
	return answerTo(g.t, bufio.NewReader(conn), method)
}

// head is the head of a request with a key.
func head(line string, headers ...string) string {
	return line + " HTTP/1.1\r\nHost: api.example.com\r\nX-API-Key: qk_test\r\n" + strings.Join(append(headers, "", ""), "\r\n")
}

// wantCount waits until the gateway's metric with these labels has the value.
func (g *gate) wantCount(name, labels string, want float64) {
	g.t.Helper()
	series, got := name+labels, ""
	for began := time.Now(); time.Since(began) < patience; time.Sleep(5 * time.Millisecond) {
		if got = g.scrape(series); got == fmt.Sprintf("%s %v", series, want) {
			return
		}
	}
	g.t.Errorf("got %q, want %v", got, want)
}

// scrape is the line of a series.
func (g *gate) scrape(series string) string {
	families, err := g.registry.Gather()
	if err != nil {
		g.t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			name := f.GetName()
			if len(labels) > 0 {
				name += "{" + strings.Join(labels, ",") + "}"
			}
			if name == series {
				return fmt.Sprintf("%s %v", name, m.GetCounter().GetValue()+m.GetGauge().GetValue())
			}
		}
	}
	return "no " + series
}
