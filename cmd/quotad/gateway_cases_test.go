package main

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// raw sends a request to the gateway as it stands.
func (n *testNode) raw(request string) answer {
	n.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(n.gateway, "http://"))
	if err != nil {
		n.t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience))
	go func() { _, _ = io.WriteString(conn, request) }()
	method, _, _ := strings.Cut(request, " ")
	res, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: method})
	if err != nil {
		n.t.Fatalf("%.200q: %v", request, err)
	}
	body, err := io.ReadAll(res.Body)
	if err != nil {
		n.t.Fatal(err)
	}
	return answer{status: res.StatusCode, header: res.Header, body: string(body)}
}

// left is what is left of a limit of a key in a route group.
func (n *testNode) left(key, group string) int {
	n.t.Helper()
	groups := n.metered(http.MethodGet, "/v1/limits?route_group="+group, nil, key).object(n.t)["route_groups"].([]any)
	limit := groups[0].(map[string]any)["limits"].([]any)[0].(map[string]any)
	return int(limit["remaining"].(float64))
}

// A cost is the route group's. Whatever a call says of one, it is the upstream's to read.
func TestGatewayCostsAreNotTheClients(t *testing.T) {
	each(t, func(t *testing.T, stores []string) {
		n := behind(t, stores, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, r.URL.RawQuery+r.Header.Get("X-Cost"))
		})
		_, key := n.customer("acme", 10, nil)
		costs := []string{"-1", "-0", "0", "0.5", "1e3", "NaN", "+3", "99999999999999999999", "", "5&cost=5"}
		for i, cost := range costs {
			a := n.through(http.MethodGet, "/x?cost="+cost, key, "X-Quotad-Cost", cost)
			if a.status != http.StatusOK || a.body != "cost="+cost || a.header.Get("X-RateLimit-Remaining") != fmt.Sprint(9-i) {
				t.Errorf("cost %q: got %d %q, %s left", cost, a.status, a.body, a.header.Get("X-RateLimit-Remaining"))
			}
		}
		for _, cost := range costs {
			if a := n.through(http.MethodGet, "/x?cost="+cost, key, "X-Quotad-Cost", cost); a.status != http.StatusTooManyRequests {
				t.Errorf("cost %q, with nothing left: got %d", cost, a.status)
			}
		}
	})
}

// Route groups have counters of their own, and so have keys.
func TestGatewayCountersAreApart(t *testing.T) {
	each(t, func(t *testing.T, stores []string) {
		n := behind(t, stores, func(http.ResponseWriter, *http.Request) {})
		for _, group := range []string{"a", "b"} {
			n.must(http.MethodPost, "/route-groups", map[string]any{"name": group, "match": []string{"/" + group + "/{rest...}"}})
		}
		n.tier("two", 100, map[string]any{"limits": []any{
			map[string]any{"name": "a", "route_group": "a", "rate_limit": 10, "rate_window": lasting},
			map[string]any{"name": "b", "route_group": "b", "rate_limit": 5, "rate_window": lasting},
		}})
		n.tenant("acme", "two")
		n.tenant("other", "two")
		for _, tenant := range []string{"acme", "other"} {
			_, key := n.key(tenant)
			for path, want := range map[string]string{"/a/x": "9", "/b/x": "4", "/c": "99"} {
				if a := n.through(http.MethodGet, path, key); a.status != http.StatusOK || a.header.Get("X-RateLimit-Remaining") != want {
					t.Errorf("%s of %s: %d, %s left, want %s", path, tenant, a.status, a.header.Get("X-RateLimit-Remaining"), want)
				}
			}
		}
	})
}

// Preflights are free, and a page can read why it is refused.
func TestGatewayIsForBrowsers(t *testing.T) {
	each(t, func(t *testing.T, stores []string) {
		n := behind(t, stores, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Access-Control-Allow-Origin", r.Header.Get("Origin"))
			w.Header().Set("Cache-Control", "public, max-age=60")
		}, "--cors-origins=https://app.example.com")
		_, key := n.customer("acme", 2, nil)
		const origin = "https://app.example.com"
		for range 10 {
			a, err := send(testClient, http.MethodOptions, n.gateway+"/v1/x", nil, "Origin", origin, "Access-Control-Request-Method", "GET", "Access-Control-Request-Headers", "x-api-key")
			if err != nil || a.status != http.StatusOK {
				t.Fatalf("a preflight: %d %s %v", a.status, a.body, err)
			}
		}
		for _, want := range []int{200, 200, 429} {
			a := n.through(http.MethodGet, "/v1/x", key, "Origin", origin)
			exposed := strings.Join(a.header["Access-Control-Expose-Headers"], ",")
			if a.status != want || strings.Join(a.header["Access-Control-Allow-Origin"], "|") != origin || !strings.Contains(exposed, "Retry-After") ||
				!strings.Contains(exposed, "X-RateLimit-Remaining") || strings.Contains(a.header.Get("Cache-Control"), "public") {
				t.Errorf("want %d: got %d %v", want, a.status, a.header)
			}
			if want == 429 && a.header.Get("Cache-Control") != "no-store" {
				t.Errorf("a refusal may be stored: %v", a.header)
			}
		}
		if a := n.through(http.MethodOptions, "/v1/x", "", "Origin", origin); a.status != http.StatusUnauthorized || a.header.Get("Cache-Control") != "no-store" {
			t.Errorf("an OPTIONS that is no preflight: %d %v", a.status, a.header)
		}
	})
}

// What a client writes into headers does not choose whose call it is, nor from where.
func TestGatewayAddressesAndHopByHopTricks(t *testing.T) {
	each(t, func(t *testing.T, stores []string) {
		var tenants sync.Map
		upstream := func(w http.ResponseWriter, r *http.Request) {
			tenants.Store(r.Header.Get("X-Quotad-Tenant")+"|"+r.Header.Get("X-API-Key"), true)
		}
		n := behind(t, stores, upstream)
		n.must(http.MethodPost, "/route-groups", map[string]any{"name": "login", "match": []string{"POST /login"}, "auth": "none",
			"limits": []any{map[string]any{"name": "login", "scope": "ip", "rate_limit": 5, "rate_window": lasting}}})
		got := map[int]int{}
		for i := range 20 {
			at := fmt.Sprintf("203.0.113.%d", i)
			got[n.through(http.MethodPost, "/login", "", "X-Forwarded-For", at, "X-Real-IP", at, "True-Client-IP", at, "CF-Connecting-IP", at).status]++
		}
		if !maps.Equal(got, map[int]int{200: 5, 429: 15}) {
			t.Errorf("logins by addresses that are made up: %v", got)
		}
		if _, ok := tenants.LoadAndDelete("|"); !ok {
			t.Error("a call without a key came with a name")
		}

		_, mine := n.customer("mine", 5, nil)
		_, victim := n.customer("victim", 5, nil)
		const request = "GET /x HTTP/1.1\r\nHost: q\r\nConnection: close, X-API-Key, X-Quotad-Tenant, X-Forwarded-For\r\nX-Quotad-Tenant: victim\r\nX-Forwarded-For: 10.1.2.3\r\n"
		for range 10 {
			if a := n.raw(request + "\r\n"); a.status != http.StatusUnauthorized {
				t.Errorf("without a key: %d", a.status)
			}
		}
		got = map[int]int{}
		for range 8 {
			got[n.raw(request+"X-API-Key: "+mine+"\r\n\r\n").status]++
		}
		if !maps.Equal(got, map[int]int{200: 5, 429: 3}) {
			t.Errorf("with a key that Connection names: %v", got)
		}
		if left := n.left(victim, "default"); left != 5 {
			t.Errorf("another tenant has %d left", left)
		}
		tenants.Range(func(seen, _ any) bool {
			if seen != "mine|" {
				t.Errorf("the upstream got a call of %q", seen)
			}
			return true
		})
	})
}

// Behind a proxy that is trusted, the right-most hop that is none is the client.
func TestGatewayBehindATrustedProxy(t *testing.T) {
	t.Parallel()
	n := behind(t, embedded(t), func(http.ResponseWriter, *http.Request) {}, "--trusted-proxies=127.0.0.1,10.0.0.0/8")
	n.must(http.MethodPost, "/route-groups", map[string]any{"name": "login", "match": []string{"POST /login"}, "auth": "none",
		"limits": []any{map[string]any{"name": "login", "scope": "ip", "rate_limit": 5, "rate_window": lasting}}})
	for _, client := range []string{"198.51.100.1", "198.51.100.2"} {
		got := map[int]int{}
		for i := range 8 {
			got[n.through(http.MethodPost, "/login", "", "X-Forwarded-For", fmt.Sprintf("203.0.113.%d, %s, 10.0.0.7", i, client)).status]++
		}
		if !maps.Equal(got, map[int]int{200: 5, 429: 3}) {
			t.Errorf("%s: %v", client, got)
		}
	}
}

// No other spelling of a path escapes its route group.
func TestGatewaySpellingsOfAPath(t *testing.T) {
	each(t, func(t *testing.T, stores []string) {
		var reached atomic.Int64
		n := behind(t, stores, func(w http.ResponseWriter, r *http.Request) { reached.Add(1) })
		n.must(http.MethodPost, "/route-groups", map[string]any{"name": "export", "match": []string{"/v1/reports/export"},
			"limits": []any{map[string]any{"name": "export", "scope": "key", "rate_limit": 2, "rate_window": lasting}}})
		_, key := n.customer("acme", 1000, nil)
		ask := func(target string) answer {
			return n.raw("GET " + target + " HTTP/1.1\r\nHost: q\r\nX-API-Key: " + key + "\r\n\r\n")
		}
		for range 2 {
			if a := ask("/v1/reports/export"); a.status != http.StatusOK {
				t.Fatalf("got %d %s", a.status, a.body)
			}
		}
		before := n.left(key, "default")
		for _, target := range []string{
			"//v1/reports//export", "//host/v1/reports/export", "/v1/./reports/export", "/v1/x/../reports/export", "/v1/reports/export/", "/V1/Reports/Export",
			"/v1/reports%2Fexport", "/v1/reports/export%00", "/v1/reports/%65xport", "/v1/reports/export;x=1", "/v1/reports/export?x", "/v1\\reports\\export",
			"http://elsewhere/v1/reports/export", "/v1/reports/export%2F", "/v1/%2e%2e/v1/reports/export", "/v1/reports/export#x", "/v1/reports/expor%74%3Bx",
		} {
			if a := ask(target); a.status != http.StatusTooManyRequests && a.status != http.StatusBadRequest && a.status != http.StatusNotFound {
				t.Errorf("%s: got %d", target, a.status)
			}
		}
		if after := n.left(key, "default"); after != before || reached.Load() != 2 {
			t.Errorf("another group was charged (%d, then %d), or the upstream reached (%d times)", before, after, reached.Load())
		}
	})
}

// More than one credential is refused, and counted to nobody.
func TestGatewayTakesOneCredential(t *testing.T) {
	each(t, func(t *testing.T, stores []string) {
		var reached atomic.Int64
		n := behind(t, stores, func(http.ResponseWriter, *http.Request) { reached.Add(1) })
		_, a := n.customer("a", 10, nil)
		_, b := n.customer("b", 10, nil)
		guesses := strings.Repeat("X-API-Key: qk_guess\r\n", 100)
		for name, headers := range map[string]string{
			"valid and invalid":     "X-API-Key: " + a + "\r\nX-API-Key: qk_no\r\n",
			"two valid ones":        "X-API-Key: " + a + "\r\nx-api-key: " + b + "\r\n",
			"the same twice":        "X-API-Key: " + a + "\r\nX-API-KEY: " + a + "\r\n",
			"a hundred guesses":     guesses,
			"a list":                "X-API-Key: " + a + ", " + b + "\r\n",
			"one in Authorization":  "X-API-Key: " + a + "\r\nAuthorization: Bearer " + b + "\r\n",
			"none but in the query": "",
			"an empty one beside":   "X-API-Key: \r\nX-API-Key: " + a + "\r\n",
		} {
			target := "/x"
			if headers == "" {
				target = "/x?api_key=" + a
			}
			if got := n.raw("GET " + target + " HTTP/1.1\r\nHost: q\r\n" + headers + "\r\n"); got.status != http.StatusBadRequest && got.status != http.StatusUnauthorized {
				t.Errorf("%s: got %d %s", name, got.status, got.body)
			}
		}
		if got := n.raw("GET /x?key=" + b + " HTTP/1.1\r\nHost: q\r\nX-API-Key: " + a + "\r\n\r\n"); got.status != http.StatusBadRequest {
			t.Errorf("one in the query: got %d", got.status)
		}
		if n.left(a, "default") != 10 || n.left(b, "default") != 10 || reached.Load() != 0 {
			t.Errorf("%d and %d are left, the upstream was reached %d times", n.left(a, "default"), n.left(b, "default"), reached.Load())
		}
		if got := n.raw("GET /x HTTP/1.1\r\nHost: q\r\nx-aPI-kEY: " + a + "\r\n\r\n"); got.status != http.StatusOK {
			t.Errorf("one, in odd letters: got %d", got.status)
		}
	})
}

// Odd keys are refused without harm.
func TestGatewayOddKeys(t *testing.T) {
	t.Parallel()
	var reached atomic.Int64
	n := behind(t, embedded(t), func(http.ResponseWriter, *http.Request) { reached.Add(1) })
	n.customer("acme", 10, nil)
	for name, key := range map[string]string{
		"empty": "", "one byte": "k", "8 kB": strings.Repeat("k", 8<<10), "1 MB": strings.Repeat("k", 1<<20), "high bytes": "qk_\x80\xff", "a tab": "qk_a\tb", "NUL": "qk_a\x00b",
	} {
		switch a := n.raw("GET /x HTTP/1.1\r\nHost: q\r\nX-API-Key: " + key + "\r\n\r\n"); a.status {
		case http.StatusBadRequest, http.StatusUnauthorized, http.StatusRequestHeaderFieldsTooLarge:
		default:
			t.Errorf("%s: got %d %s", name, a.status, a.body)
		}
	}
	if reached.Load() != 0 {
		t.Error("the upstream was reached")
	}
}

// A leaky bucket lets calls wait rather than refusing them, as long as they may.
func TestGatewayShapesCalls(t *testing.T) {
	each(t, func(t *testing.T, stores []string) {
		n := behind(t, stores, func(http.ResponseWriter, *http.Request) {})
		_, key := n.customer("queue", 10, map[string]any{"algorithm": "leaky_bucket", "rate_window": 1, "burst": 1, "max_delay_ms": 300})
		got, began := make(chan int, 8), time.Now()
		for range 8 {
			go func() { got <- n.through(http.MethodGet, "/x", key).status }()
		}
		count := map[int]int{}
		for range 8 {
			count[<-got]++
		}
		// One at once, three after 100, 200 and 300 ms; those that would wait longer are refused, unless time went by meanwhile.
		if took := time.Since(began); count[200] < 4 || count[200]+count[429] != 8 || took < time.Duration(count[200]-1)*100*time.Millisecond {
			t.Errorf("got %v in %s", count, took)
		}
	})
}

// An address that is limited is limited here too, before anybody is looked up and whatever it sends; preflights are free.
func TestGatewayLimitsAddresses(t *testing.T) {
	t.Parallel()
	var reached atomic.Int64
	n := behind(t, embedded(t), func(http.ResponseWriter, *http.Request) { reached.Add(1) }, "--ip-limit=6/86400", "--failed-key-limit=3/86400", "--trusted-proxies=127.0.0.1")
	_, key := n.customer("acme", 100, nil)
	ask := func(from, key string) answer { return n.through(http.MethodGet, "/x", key, "X-Forwarded-For", from) }
	var got []int
	for range 4 {
		got = append(got, ask("198.51.100.1", "qk_guess").status)
	}
	got = append(got, ask("198.51.100.1", key).status, ask("198.51.100.1", key).status, ask("198.51.100.1", key).status)
	if fmt.Sprint(got) != "[401 401 401 429 200 200 429]" {
		t.Errorf("guesses, and then a key that works: %v", got)
	}
	got = nil
	for range 4 {
		got = append(got, n.raw("GET /x HTTP/1.1\r\nHost: q\r\nX-Forwarded-For: 198.51.100.2\r\nX-API-Key: "+key+"\r\nX-API-Key: qk_guess\r\n\r\n").status)
	}
	if fmt.Sprint(got) != "[400 400 400 429]" {
		t.Errorf("guesses that ride along: %v", got)
	}
	before := reached.Load()
	for range 10 {
		if a := n.through(http.MethodOptions, "/x", "", "X-Forwarded-For", "198.51.100.1", "Origin", "https://a.example.com", "Access-Control-Request-Method", "GET"); a.status != http.StatusOK {
			t.Errorf("a preflight: %d", a.status)
		}
	}
	if before != 2 || reached.Load() != 12 {
		t.Errorf("the upstream got %d calls, then %d", before, reached.Load())
	}
}
