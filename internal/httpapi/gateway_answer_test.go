package httpapi

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quotad/quotad"
)

// everything is all that comes until the other end closes.
func everything(t *testing.T, conn net.Conn) string {
	t.Helper()
	raw, err := io.ReadAll(conn)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func TestGatewayAddsTheDecisionToTheAnswer(t *testing.T) {
	t.Parallel()
	d := admitted()
	d.DelayMS, d.DegradedBy = 1, quotad.FailLocal
	g := gateTo(t, &answers{decision: d}, Options{CORSOrigins: []string{"*"}}, GatewayOptions{}, func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("X-RateLimit-Limit", "theirs")
		h.Set("X-RateLimit-Used", "theirs")
		h.Set("RateLimit", "theirs")
		h.Set("RateLimit-Policy", "theirs")
		h.Set("RateLimit-Reset", "theirs")
		h.Set("Retry-After", "7")
		h.Set("Access-Control-Allow-Origin", "https://a.example.com")
		h.Set("Access-Control-Expose-Headers", "X-Mine")
		h["Set-Cookie"] = []string{"a=1", "b=2"}
		w.WriteHeader(http.StatusTooManyRequests)
		_, _ = io.WriteString(w, "the upstream's own limit")
	})
	conn := dial(t, g.address)
	_, _ = io.WriteString(conn, head("GET /", "Connection: close", "X-Request-Id: mine-1"))
	raw := everything(t, conn)
	for _, line := range []string{
		"HTTP/1.1 429 Too Many Requests", "X-RateLimit-Limit: 20", "X-RateLimit-Remaining: 19", `RateLimit: "base";r=900;t=12, "exports";r=19;t=15`,
		`RateLimit-Policy: "base";q=1000;w=60, "exports";q=20;w=300`, "Retry-After: 7", "Access-Control-Allow-Origin: https://a.example.com",
		"Access-Control-Expose-Headers: X-Mine", "Access-Control-Expose-Headers: " + exposedHeaders[0], "Set-Cookie: a=1", "Set-Cookie: b=2",
		"X-Request-Id: mine-1", "X-Quotad-Degraded: local", "Cache-Control: private",
	} {
		if strings.Count("\r\n"+raw, "\r\n"+line+"\r\n") != 1 {
			t.Errorf("%q is not there once", line)
		}
	}
	for _, text := range []string{"theirs", "X-Quotad-Delay-Ms:", "X-Quotad-Tenant", "Ratelimit"} {
		if strings.Contains(raw, text) {
			t.Errorf("%s is there", text)
		}
	}
	if !strings.HasSuffix(raw, "\r\n\r\nthe upstream's own limit") || t.Failed() {
		t.Errorf("got\n%s", raw)
	}
}

// Where no limit holds, the upstream's own headers stay.
func TestGatewayLeavesAnAnswerWithoutLimitsAlone(t *testing.T) {
	t.Parallel()
	g := gateTo(t, &answers{decision: quotad.Decision{Allowed: true, Tenant: "acme"}}, Options{}, GatewayOptions{}, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-RateLimit-Limit", "theirs")
		w.Header().Set("X-Request-Id", "theirs")
		w.WriteHeader(http.StatusCreated)
	})
	status, header, _ := g.ask("PUT /")
	if status != http.StatusCreated || header.Get("X-Ratelimit-Limit") != "theirs" || strings.Join(header["X-Request-Id"], "|") != "theirs" {
		t.Errorf("got %d %v", status, header)
	}
	g.wantCount("quotad_gateway_answers_total", `{class="2xx"}`, 1)
}

// An answer without a type, as one of somebody's upload may be, is given none: what
// looks like HTML is not made HTML on the way.
func TestGatewayGuessesNoType(t *testing.T) {
	t.Parallel()
	g := gateTo(t, &answers{decision: quotad.Decision{Allowed: true, Tenant: "acme"}}, Options{}, GatewayOptions{}, func(w http.ResponseWriter, r *http.Request) {
		w.Header()["Content-Type"] = nil
		_, _ = w.Write([]byte("<html><script>1</script>"))
	})
	if status, header, _ := g.ask("GET /"); status != http.StatusOK || header["Content-Type"] != nil {
		t.Errorf("got %d %v", status, header)
	}
}

func TestAnswersAreKeptOutOfSharedCaches(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{
		"":                                    "private",
		"public, max-age=60":                  "max-age=60, private",
		"Public,s-maxage=60,stale-if-error=5": "stale-if-error=5, private",
		"max-age=60":                          "max-age=60, private",
		"no-store":                            "no-store",
		"No-Cache, PRIVATE":                   "No-Cache, PRIVATE",
		`private="set-cookie", public, max-age=9`: `private="set-cookie", max-age=9, private`,
		",": "private",
	} {
		var lines []string
		if given != "" {
			lines = []string{given}
		}
		if diff := cmp.Diff([]string{want}, private(lines)); diff != "" {
			t.Errorf("%q: %s", given, diff)
		}
	}
}

// An upstream that fails is told apart from a call that is refused, in the same shape.
func TestUpstreamFailures(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		upstream func(t *testing.T) string
		headers  []string
		want     quotad.Code
		reason   string
	}{
		"nobody listens":      {func(*testing.T) string { return "127.0.0.1:1" }, nil, quotad.CodeUpstreamUnavailable, "connect"},
		"it never answers":    {speaking("", true), nil, quotad.CodeUpstreamTimeout, "timeout"},
		"it hangs up":         {speaking("", false), nil, quotad.CodeUpstreamUnavailable, "broken"},
		"it speaks otherwise": {speaking("220 mail.example.com ESMTP\r\n", false), nil, quotad.CodeUpstreamUnavailable, "broken"},
		"its status is none":  {speaking("HTTP/1.1 042 What\r\nContent-Length: 0\r\n\r\n", false), nil, quotad.CodeUpstreamUnavailable, "broken"},
		"it switches to another protocol": {speaking("HTTP/1.1 101 Switching\r\nConnection: Upgrade\r\nUpgrade: other\r\n\r\n", true),
			[]string{"Connection: Upgrade", "Upgrade: websocket"}, quotad.CodeUpstreamUnavailable, "broken"},
		"it switches unasked": {speaking("HTTP/1.1 101 Switching\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", true), nil, quotad.CodeUpstreamUnavailable, "broken"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := &gate{t: t}
			timeout := patience
			if c.reason == "timeout" {
				timeout = 300 * time.Millisecond
			}
			g.open(&answers{decision: admitted()}, Options{}, GatewayOptions{UpstreamTimeout: timeout}, "http://"+c.upstream(t))
			status, header, body := g.ask("POST /", append(c.headers, "Content-Length: 0", "Accept-Language: ar")...)
			if status != c.want.Status() || !strings.HasPrefix(body, `{"error":"`+string(c.want)+`","message":"`) || !strings.Contains(body, "البوابة") ||
				header.Get("Content-Type") != "application/json" || header.Get("Cache-Control") != "no-store" {
				t.Errorf("got %d %v %s", status, header, body)
			}
			// The call was admitted, and counted: the client is told what is left.
			if header.Get("X-RateLimit-Remaining") != "19" {
				t.Errorf("got %v", header)
			}
			g.wantCount("quotad_gateway_upstream_failures_total", fmt.Sprintf("{reason=%q}", c.reason), 1)
		})
	}
}

// speaking is an upstream that answers each connection with a text, and then waits, or
// hangs up.
func speaking(text string, waits bool) func(t *testing.T) string {
	return func(t *testing.T) string {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = listener.Close() })
		go func() {
			for {
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				go func() {
					defer conn.Close()
					r := bufio.NewReader(conn)
					if _, err := http.ReadRequest(r); err != nil {
						return
					}
					_, _ = io.WriteString(conn, text)
					if waits {
						_, _ = io.Copy(io.Discard, r)
					}
				}()
			}
		}()
		return listener.Addr().String()
	}
}

// An answer that breaks off breaks off for the client too: it must not look whole.
func TestAnAnswerThatBreaksOff(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"with a length": "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf",
		"chunked":       "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := &gate{t: t}
			g.open(&answers{decision: admitted()}, Options{}, GatewayOptions{}, "http://"+speaking(text, false)(t))
			conn := dial(t, g.address)
			_, _ = io.WriteString(conn, head("GET /"))
			res, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err == nil { // else not even the head was sent yet
				var body []byte
				if body, err = io.ReadAll(res.Body); err == nil {
					t.Errorf("got %d %q, as if it was whole", res.StatusCode, body)
				}
			}
			g.wantCount("quotad_gateway_upstream_failures_total", `{reason="cut"}`, 1)
		})
	}
}

func TestHeadersOfAnAnswerMayNotBeEndless(t *testing.T) {
	t.Parallel()
	g := &gate{t: t}
	g.open(&answers{decision: admitted()}, Options{}, GatewayOptions{}, "http://"+speaking("HTTP/1.1 200 OK\r\nX: "+strings.Repeat("x", 2<<20)+"\r\n\r\n", false)(t))
	if status, _, body := g.ask("GET /"); status != http.StatusBadGateway {
		t.Errorf("got %d %s", status, body)
	}
}

// HEAD has the headers of GET, and no body; the upstream gets it as HEAD.
func TestGatewayHEAD(t *testing.T) {
	t.Parallel()
	a := &answers{decision: admitted()}
	g := gateTo(t, a, Options{}, GatewayOptions{}, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "12345")
		w.Header().Set("X-Method", r.Method)
	})
	status, header, body := g.ask("HEAD /v1/exports")
	if status != http.StatusOK || header.Get("X-Method") != "HEAD" || header.Get("Content-Length") != "12345" || body != "" || header.Get("X-RateLimit-Remaining") != "19" {
		t.Errorf("got %d %v %q", status, header, body)
	}
	if call := a.asked(t); call.Method != "HEAD" {
		t.Errorf("asked %+v", call)
	}
}
