package main

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/labstack/echo/v4"
)

// BenchmarkEndToEnd asks a whole node, on Postgres and Redis and on the embedded default, over 64 connections, beside a bare
// echo handler that answers with the same bytes. All of it, and the asking, shares the processors of one machine.
func BenchmarkEndToEnd(b *testing.B) {
	const connections, keys = 64, 1000
	for name, stores := range map[string]func(testing.TB) []string{"redis": shared, "memory": embedded} {
		b.Run(name, func(b *testing.B) {
			stores := stores(b)
			n := start(b, append(stores, "QUOTAD_LOG_LEVEL=warn"))
			n.must(http.MethodPost, "/tiers", map[string]any{"name": "pro", "rate_limit": 1_000_000_000, "rate_window": 60})
			n.must(http.MethodPost, "/tenants", map[string]any{"id": "acme", "name": "Acme", "tier": "pro"})
			body := `{"method":"POST","path":"/v1/exports"}`
			var check, authorize []string
			for range keys {
				_, secret := n.key("acme")
				check = append(check, "POST /v1/check HTTP/1.1\r\nHost: q\r\nX-API-Key: "+secret+
					"\r\nContent-Type: application/json\r\nContent-Length: "+strconv.Itoa(len(body))+"\r\n\r\n"+body)
				authorize = append(authorize, "GET /v1/authorize/v1/exports HTTP/1.1\r\nHost: q\r\nX-API-Key: "+secret+"\r\n\r\n")
			}
			addr := strings.TrimPrefix(n.api, "http://")
			for door, requests := range map[string][]string{"check": check, "authorize": authorize} {
				b.Run(door, func(b *testing.B) {
					takeTurns(b, redisTime(b, stores),
						newRival(b, "bare", bareEcho(b, addr, requests[0]), connections, requests),
						newRival(b, "quotad", addr, connections, requests))
				})
			}
			n.stop()
		})
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
