package main

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quotad/quotad"
)

// asked is a call as its client means it, whichever door it is asked through.
type asked struct {
	method string // "GET" where it is ""
	path   string // as on the request line, with a query if there is one
	group  string // the route group of method and path, for who asks by its name; "" where there may be none
	keys   []string
	header []string // further lines of the client, as "Name: value"
	// subject and address are what a trusted proxy, or an integrating service, knows of the client.
	subject, address string
	cost             *int // nil is the group's own
}

// door is one way to ask quotad. To hold one more door to the same decisions, add it to doors.
type door struct {
	name string
	// can reports whether the door has words for the call at all; it can't say no to please a test.
	can func(c asked) bool
	// ask puts the call and returns what came of it, as words that mean the same at every door:
	//
	//	200 <route group> <units left by the strictest limit, or - where none is told>
	//	<status> <code of the error> <the policies that refuse, with commas, or ->
	//
	// A door writes ? for what it never tells.
	ask func(t testing.TB, c asked) string
}

// openDoors starts a node whose doors are all open, and which believes who asks at them: it is the gateway's and the
// integrating service's neighbour.
func openDoors(t testing.TB, stores []string, args ...string) (*testNode, []door) {
	t.Helper()
	upstream := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Route-Group-Seen", r.Header.Get("X-Quotad-Route-Group"))
		if r.Header.Get("X-API-Key") != "" {
			t.Error("a key reached the upstream")
		}
	}
	n := behind(t, stores, upstream, append(args, "--trusted-proxies=127.0.0.1", "--grpc-listen=127.0.0.1:0")...)
	return n, doors(n)
}

// doors are all doors of a node.
func doors(n *testNode) []door {
	return []door{
		pingDoor(n), checkDoor(n), checkGroupDoor(n), checksDoor(n), authorizeDoor(n), originalDoor(n), gatewayDoor(n),
		rateLimitDoor(n), extAuthzDoor(n, false), extAuthzDoor(n, true), middlewareDoor(n),
	}
}

// pingDoor is GET /v1/ping, which is asked for nothing but its own path.
func pingDoor(n *testNode) door {
	return door{
		name: "ping",
		can: func(c asked) bool {
			return c.path == "/v1/ping" && slices.Contains([]string{"", "GET", "HEAD"}, c.method) && c.subject == "" && !preflight(c) && !forUpstream(c)
		},
		ask: func(t testing.TB, c asked) string {
			target := "/v1/ping"
			if c.cost != nil {
				target += fmt.Sprintf("?cost=%d", *c.cost)
			}
			return verdictOf(t, raw(t, n.api, method(c), target, nil, c.lines()))
		},
	}
}

// checkDoor is POST /v1/check, asked by method and path with the caller's key.
func checkDoor(n *testNode) door {
	return door{
		name: "check",
		can:  func(c asked) bool { return !preflight(c) && !forUpstream(c) && !strings.Contains(c.path, "?") },
		ask: func(t testing.TB, c asked) string {
			return verdictOf(t, raw(t, n.api, "POST", "/v1/check", c.check(), c.lines()))
		},
	}
}

// checkGroupDoor is POST /v1/check, asked by the route group's name.
func checkGroupDoor(n *testNode) door {
	return door{
		name: "check by group",
		can:  func(c asked) bool { return c.group != "" && !preflight(c) && !forUpstream(c) && method(c) != "HEAD" },
		ask: func(t testing.TB, c asked) string {
			body := c.check()
			delete(body, "method")
			delete(body, "path")
			body["route_group"] = c.group
			return verdictOf(t, raw(t, n.api, "POST", "/v1/check", body, c.lines()))
		},
	}
}

// checksDoor is POST /v1/checks, asked for one thing.
func checksDoor(n *testNode) door {
	return door{
		name: "checks",
		can:  func(c asked) bool { return !preflight(c) && !forUpstream(c) && !strings.Contains(c.path, "?") },
		ask: func(t testing.TB, c asked) string {
			a := raw(t, n.api, "POST", "/v1/checks", map[string]any{"checks": []any{c.check()}}, c.lines())
			if a.status != http.StatusOK {
				return verdictOf(t, a)
			}
			var list struct{ Results []quotad.CheckResult }
			if err := json.Unmarshal([]byte(a.body), &list); err != nil || len(list.Results) != 1 || a.header.Get("Cache-Control") != "no-store" {
				t.Fatalf("%v %s (%v)", a.header, a.body, err)
			}
			r := list.Results[0]
			if r.Decision == nil {
				return fmt.Sprintf("%d %s %s", r.Status, r.Problem.Error, cmp.Or(strings.Join(r.Problem.ViolatedPolicies, ","), "-"))
			}
			left := "-"
			if strictest, ok := r.Decision.Strictest(); ok {
				left = fmt.Sprint(strictest.Remaining)
			}
			return fmt.Sprintf("%d %s %s", r.Status, r.Decision.RouteGroup, left)
		},
	}
}

// check is the call as the body of a check.
func (c asked) check() map[string]any {
	body := map[string]any{"method": method(c), "path": c.path}
	if c.subject != "" {
		body["subject"] = c.subject
	}
	if c.cost != nil {
		body["cost"] = *c.cost
	}
	return body
}

// authorizeDoor is a gateway that puts the client's own request behind /v1/authorize.
func authorizeDoor(n *testNode) door {
	return door{
		name: "authorize",
		can:  func(c asked) bool { return c.cost == nil },
		ask: func(t testing.TB, c asked) string {
			return verdictOf(t, raw(t, n.api, method(c), "/v1/authorize"+c.path, nil, c.lines()))
		},
	}
}

// originalDoor is a gateway, such as nginx, that tells the original call in headers and knows no 429.
func originalDoor(n *testNode) door {
	return door{
		name: "authorize with headers",
		can:  func(c asked) bool { return c.cost == nil },
		ask: func(t testing.TB, c asked) string {
			lines := append(c.lines(), "X-Original-Method: "+method(c), "X-Original-URI: "+c.path)
			return verdictOf(t, raw(t, n.api, "GET", "/v1/authorize?deny_status=403", nil, lines))
		},
	}
}

// gatewayDoor is quotad's own gateway before an upstream, which says what it was told.
func gatewayDoor(n *testNode) door {
	return door{
		name: "gateway",
		can:  func(c asked) bool { return c.cost == nil },
		ask: func(t testing.TB, c asked) string {
			a := raw(t, n.gateway, method(c), c.path, nil, c.lines())
			if a.status == http.StatusOK { // the upstream's
				if a.header.Get("Cache-Control") != "private" && !preflight(c) {
					t.Errorf("shared caches may store the upstream's answer: %v", a.header)
				}
				a.header.Set("X-Quotad-Route-Group", a.header.Get("X-Route-Group-Seen"))
				a.header.Set("Cache-Control", "no-store")
			}
			return verdictOf(t, a)
		},
	}
}

// middlewareDoor is a Go service with the client's middleware before its handler. What it knows of its client it has from
// nobody's word but the test's.
func middlewareDoor(n *testNode) door {
	service := sync.OnceValue(func() string {
		client, err := quotad.NewClient(n.api, quotad.ClientOptions{Timeout: time.Minute})
		if err != nil {
			n.t.Fatal(err)
		}
		question := func(r *http.Request) (quotad.CheckRequest, error) {
			q := quotad.QuestionOf(r)
			q.Subject = r.Header.Get("X-Test-Subject")
			if address := r.Header.Get("X-Test-Address"); address != "" {
				q.ForwardedFor = netip.MustParseAddr(address)
			}
			return q, nil
		}
		handler := func(w http.ResponseWriter, r *http.Request) {
			d, _ := quotad.DecisionFrom(r.Context())
			w.Header().Set("X-Quotad-Route-Group", d.RouteGroup)
			if r.Header.Get("Access-Control-Request-Method") == "" && w.Header().Get("Cache-Control") != "private" {
				n.t.Errorf("shared caches may store the answer: %v", w.Header())
			}
			w.Header().Set("Cache-Control", "no-store")
		}
		server := httptest.NewServer(client.Middleware(quotad.MiddlewareOptions{Question: question})(http.HandlerFunc(handler)))
		n.t.Cleanup(server.Close)
		n.t.Cleanup(client.CloseIdleConnections)
		return server.URL
	})
	return door{
		name: "middleware",
		can:  func(c asked) bool { return c.cost == nil },
		ask: func(t testing.TB, c asked) string {
			lines := c.lines()
			if c.subject != "" {
				lines = append(lines, "X-Test-Subject: "+c.subject)
			}
			if c.address != "" {
				lines = append(lines, "X-Test-Address: "+c.address)
			}
			return verdictOf(t, raw(t, service(), method(c), c.path, nil, lines))
		},
	}
}

func method(c asked) string {
	if c.method == "" {
		return http.MethodGet
	}
	return c.method
}

// forUpstream reports whether the call carries an Authorization that is not quotad's, which the doors that stand before
// an upstream leave alone.
func forUpstream(c asked) bool {
	return slices.ContainsFunc(c.header, func(line string) bool {
		return strings.HasPrefix(line, "Authorization:") && !strings.Contains(line, " qk_") && !strings.Contains(line, " qa_")
	})
}

// preflight reports whether the call is a browser's question and not a call.
func preflight(c asked) bool {
	return slices.ContainsFunc(c.header, func(line string) bool { return strings.HasPrefix(line, "Access-Control-Request-Method:") })
}

// lines are the header lines with which a trusted neighbour passes the call on.
func (c asked) lines() []string {
	lines := slices.Clone(c.header)
	for _, key := range c.keys {
		lines = append(lines, "X-API-Key: "+key)
	}
	if c.address != "" {
		lines = append(lines, "X-Forwarded-For: 192.0.2.66, "+c.address) // the first is what the client claims
	}
	if c.subject != "" {
		lines = append(lines, "X-Quotad-Subject: "+c.subject)
	}
	return lines
}

// raw sends a request exactly as it is written; a body is JSON.
func raw(t testing.TB, base, method, target string, body any, lines []string) answer {
	t.Helper()
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: quotad.test\r\nConnection: close\r\n", method, target)
	for _, line := range lines {
		b.WriteString(line + "\r\n")
	}
	text := []byte(nil)
	if body != nil {
		text, _ = json.Marshal(body)
		fmt.Fprintf(&b, "Content-Type: application/json\r\nContent-Length: %d\r\n", len(text))
	}
	b.WriteString("\r\n")
	b.Write(text)
	conn, err := net.Dial("tcp", strings.TrimPrefix(base, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience))
	if _, err := conn.Write(b.Bytes()); err != nil {
		t.Fatal(err)
	}
	res, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: method})
	if err != nil {
		t.Fatalf("%s %s: %v", method, target, err)
	}
	defer res.Body.Close()
	read, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, target, err)
	}
	return answer{status: res.StatusCode, header: res.Header, body: string(read)}
}

// verdictOf puts an answer over HTTP into words, and holds it to what all such answers have in common.
func verdictOf(t testing.TB, a answer) string {
	t.Helper()
	status := a.status
	if meant := a.header.Get("X-Quotad-Status"); meant != "" {
		if status != 403 && status != 401 {
			t.Errorf("%d stands for %s", status, meant)
		}
		fmt.Sscan(meant, &status)
	}
	if a.header.Get("Cache-Control") != "no-store" {
		t.Errorf("%d may be stored: %v", a.status, a.header)
	}
	if status == http.StatusOK {
		return fmt.Sprintf("200 %s %s", cmp.Or(a.header.Get("X-Quotad-Route-Group"), member(a, "route_group"), "?"), cmp.Or(a.header.Get("X-RateLimit-Remaining"), "-"))
	}
	if status == http.StatusUnauthorized && a.header.Get("WWW-Authenticate") == "" {
		t.Errorf("401 without WWW-Authenticate")
	}
	if waits := a.header.Get("Retry-After"); waits == "0" || waits == "" && a.header.Get("X-RateLimit-Limit") != "0" && status == http.StatusTooManyRequests {
		t.Errorf("429 with Retry-After %q", waits)
	}
	if a.body == "" { // of HEAD
		return fmt.Sprintf("%d ? ?", status)
	}
	var problem struct {
		Error    string
		Status   int
		Policies []string `json:"violated-policies"`
	}
	if err := json.Unmarshal([]byte(a.body), &problem); err != nil || problem.Status != status {
		t.Errorf("%d: %s (%v)", status, a.body, err)
	}
	return fmt.Sprintf("%d %s %s", status, problem.Error, cmp.Or(strings.Join(problem.Policies, ","), "-"))
}

// member is a string of a JSON object, "" if there is none.
func member(a answer, name string) string {
	var o map[string]any
	_ = json.Unmarshal([]byte(a.body), &o)
	text, _ := o[name].(string)
	return text
}

// agrees reports whether a door's words are those expected, but for what it never tells.
func agrees(got, want string) bool {
	g, w := strings.Fields(got), strings.Fields(want)
	return slices.EqualFunc(g, w, func(g, w string) bool { return g == w || g == "?" || w == "?" })
}
