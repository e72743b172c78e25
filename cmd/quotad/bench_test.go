package main

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/labstack/echo/v4"
)

// BenchmarkEndToEnd asks a whole node, on Postgres and Redis and on the embedded default, over 64 connections, beside a bare
// echo handler that answers with the same bytes. All of it, and the asking, shares the processors of one machine.
func BenchmarkEndToEnd(b *testing.B) {
	const connections, keys = 64, 1000
	for name, stores := range map[string]func(testing.TB) []string{"redis": shared, "memory": embedded} {
		n := start(b, append(stores(b), "QUOTAD_LOG_LEVEL=warn"))
		n.must(http.MethodPost, "/tiers", map[string]any{"name": "pro", "rate_limit": 1_000_000_000, "rate_window": 60})
		n.must(http.MethodPost, "/tenants", map[string]any{"id": "acme", "name": "Acme", "tier": "pro"})
		secrets := make([]string, keys)
		for i := range secrets {
			secrets[i] = n.must(http.MethodPost, "/tenants/acme/keys", map[string]any{"name": "k"})["secret"].(string)
		}
		body := `{"method":"POST","path":"/v1/exports"}`
		check := func(secret string) string {
			return "POST /v1/check HTTP/1.1\r\nHost: q\r\nX-API-Key: " + secret + "\r\nContent-Type: application/json\r\nContent-Length: " +
				strconv.Itoa(len(body)) + "\r\n\r\n" + body
		}
		authorize := func(secret string) string {
			return "GET /v1/authorize/v1/exports HTTP/1.1\r\nHost: q\r\nX-API-Key: " + secret + "\r\n\r\n"
		}
		for door, request := range map[string]func(string) string{"check": check, "authorize": authorize} {
			requests := make([]string, keys)
			for i, s := range secrets {
				requests[i] = request(s)
			}
			addr := strings.TrimPrefix(n.api, "http://")
			bare := bareEcho(b, addr, requests[0])
			b.Run(name+"/"+door+"/bare-echo", func(b *testing.B) { askMany(b, bare, requests, connections) })
			b.Run(name+"/"+door+"/quotad", func(b *testing.B) { askMany(b, addr, requests, connections) })
		}
		n.stop()
	}
}

// bareEcho serves, on an address of its own, what quotad answered to a request.
func bareEcho(b *testing.B, addr, request string) string {
	b.Helper()
	c := dialRaw(b, addr)
	defer c.Close()
	response, err := c.ask(request)
	if err != nil {
		b.Fatal(err)
	}
	head, body, _ := strings.Cut(response, "\r\n\r\n")
	header := http.Header{}
	for _, line := range strings.Split(head, "\r\n")[1:] {
		name, value, _ := strings.Cut(line, ": ")
		if name != "Content-Length" && name != "Date" {
			header[name] = append(header[name], value)
		}
	}
	e := echo.New()
	raw := []byte(body)
	e.Any("/*", func(c echo.Context) error {
		for name, values := range header {
			c.Response().Header()[name] = values
		}
		c.Response().WriteHeader(http.StatusOK)
		_, err := c.Response().Write(raw)
		return err
	})
	server := httptest.NewServer(e)
	b.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

// rawConn speaks just enough HTTP/1.1 to cost little beside what is measured.
type rawConn struct {
	net.Conn
	r *bufio.Reader
}

func dialRaw(b *testing.B, addr string) *rawConn {
	b.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		b.Fatal(err)
	}
	return &rawConn{c, bufio.NewReader(c)}
}

func (c *rawConn) ask(request string) (string, error) {
	if _, err := c.Write([]byte(request)); err != nil {
		return "", err
	}
	var response strings.Builder
	length := 0
	for {
		line, err := c.r.ReadString('\n')
		if err != nil {
			return "", err
		}
		response.WriteString(line)
		if line == "\r\n" {
			break
		}
		if v, ok := strings.CutPrefix(line, "Content-Length: "); ok {
			length, _ = strconv.Atoi(strings.TrimSpace(v))
		}
	}
	body := make([]byte, length)
	for read := 0; read < length; {
		n, err := c.r.Read(body[read:])
		if err != nil {
			return "", err
		}
		read += n
	}
	response.Write(body)
	return response.String(), nil
}

// askMany asks b.N requests over so many connections at once.
func askMany(b *testing.B, addr string, requests []string, connections int) {
	first := dialRaw(b, addr)
	for _, r := range requests { // every key is known before the clock starts
		if response, err := first.ask(r); err != nil || !strings.HasPrefix(response, "HTTP/1.1 200") {
			b.Fatal(response, err)
		}
	}
	first.Close()
	conns := make([]*rawConn, connections)
	for i := range conns {
		conns[i] = dialRaw(b, addr)
		defer conns[i].Close()
	}
	var left atomic.Int64
	left.Store(int64(b.N))
	times := make([][]time.Duration, connections)
	b.ResetTimer()
	var wg sync.WaitGroup
	for i, c := range conns {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(i), 1))
			for left.Add(-1) >= 0 {
				begun := time.Now()
				if response, err := c.ask(requests[r.IntN(len(requests))]); err != nil || !strings.HasPrefix(response, "HTTP/1.1 200") {
					b.Error(fmt.Sprint(response, err))
					return
				}
				times[i] = append(times[i], time.Since(begun))
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	all := slices.Concat(times...)
	if slices.Sort(all); b.Failed() {
		return
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "answers/s")
	b.ReportMetric(float64(all[len(all)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(all[len(all)*99/100].Microseconds()), "p99-µs")
}
