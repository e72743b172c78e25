package main

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// BenchmarkChecks asks fifty checks a call, of one key and of fifty tenants, beside one a
// call and beside a bare echo handler that answers one with the same bytes: in turns, in
// one run, so that what else the machine does falls on all of them. Each iteration is a
// check. Processor time is that of this process: the asking, quotad, the echo handler.
func BenchmarkChecks(b *testing.B) {
	const each, tenants, connections = 50, 200, 16
	for name, stores := range map[string]func(testing.TB) []string{"redis": shared, "memory": embedded} {
		b.Run(name, func(b *testing.B) {
			n := start(b, append(stores(b), "QUOTAD_LOG_LEVEL=warn"))
			n.must(http.MethodPost, "/tiers", map[string]any{"name": "pro", "rate_limit": 1_000_000_000, "rate_window": 60})
			token := n.must(http.MethodPost, "/admin-tokens", map[string]any{"name": "api", "role": "service"})["secret"].(string)
			request := func(path, credential, body string) string {
				return "POST " + path + " HTTP/1.1\r\nHost: q\r\n" + credential + "\r\nContent-Type: application/json\r\nContent-Length: " +
					strconv.Itoa(len(body)) + "\r\n\r\n" + body
			}
			const check = `{"method":"POST","path":"/v1/exports"}`
			var one, oneKey, manyTenants []string
			for i := range tenants {
				tenant := fmt.Sprint("t", i)
				n.tenant(tenant, "pro")
				_, key := n.key(tenant)
				one = append(one, request("/v1/check", "X-API-Key: "+key, check))
				oneKey = append(oneKey, request("/v1/checks", "X-API-Key: "+key, `{"checks":[`+times(each, check)+`]}`))
				var list []string
				for k := range each {
					list = append(list, fmt.Sprintf(`{"tenant":"t%d","method":"POST","path":"/v1/exports"}`, (i+k)%tenants))
				}
				manyTenants = append(manyTenants, request("/v1/checks", "Authorization: Bearer "+token, `{"checks":[`+strings.Join(list, ",")+`]}`))
			}
			addr := strings.TrimPrefix(n.api, "http://")
			asked := []struct {
				name, addr string
				requests   []string
				each       int
				wall, cpu  time.Duration
			}{
				{name: "bare", addr: bareEcho(b, addr, one[0]), requests: one, each: 1},
				{name: "check", addr: addr, requests: one, each: 1},
				{name: "key", addr: addr, requests: oneKey, each: each},
				{name: "tenants", addr: addr, requests: manyTenants, each: each},
			}
			for i := range asked { // everybody is known before the clock starts
				askTimes(b, asked[i].addr, asked[i].requests, connections, tenants)
			}
			const rounds = 5
			calls := 0
			for range rounds {
				for i := range asked {
					a := &asked[i]
					// Fewer calls where each is fifty, but no fewer than a few of each connection.
					calls = max(b.N/rounds/a.each, 4*connections)
					wall, cpu := askTimes(b, a.addr, a.requests, connections, calls)
					a.wall, a.cpu = a.wall+wall/time.Duration(calls*a.each), a.cpu+cpu/time.Duration(calls*a.each)
				}
			}
			µs := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / rounds / 1000 }
			for _, a := range asked {
				b.ReportMetric(µs(a.wall), a.name+"-µs")
				b.ReportMetric(µs(a.cpu), a.name+"-cpu-µs")
				b.ReportMetric(µs(asked[0].wall)/µs(a.wall), "bare/"+a.name)
			}
			b.ReportMetric(0, "ns/op") // of all four together it says nothing
			n.stop()
		})
	}
}

// askTimes asks so many times over the connections, and returns how long it took and the
// processor time of this process.
func askTimes(b *testing.B, addr string, requests []string, connections, times int) (wall, cpu time.Duration) {
	b.Helper()
	conns := make([]*rawConn, connections)
	for i := range conns {
		conns[i] = dialRaw(b, addr)
		defer conns[i].Close()
	}
	var next atomic.Int64
	var wg sync.WaitGroup
	begun, used := time.Now(), processorTime()
	for _, c := range conns {
		wg.Go(func() {
			for i := next.Add(1); i <= int64(times); i = next.Add(1) {
				if response, err := c.ask(requests[i%int64(len(requests))]); err != nil || !strings.HasPrefix(response, "HTTP/1.1 200") || strings.Contains(response, `"error"`) {
					b.Error(response, err)
					return
				}
			}
		})
	}
	wg.Wait()
	return time.Since(begun), processorTime() - used
}

func processorTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
