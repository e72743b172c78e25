package httpapi

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quotad/quotad"
)

// listening is the address of the server on a real socket.
func listening(t *testing.T, s *Server) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := s.HTTPServer()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener)
	}()
	t.Cleanup(func() {
		_ = server.Close()
		<-done
	})
	return listener.Addr().String()
}

// patience is how long a test that is not about time waits on a busy machine.
const patience = 5 * time.Minute

// dial opens a connection that does not hang for ever.
func dial(t *testing.T, address string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(patience))
	return conn
}

// answerTo reads the answer to a request of the method.
func answerTo(t *testing.T, r *bufio.Reader, method string) (status int, headers http.Header, body string) {
	t.Helper()
	resp, err := http.ReadResponse(r, &http.Request{Method: method})
	if err != nil {
		t.Fatalf("%s: %v", method, err)
	}
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(raw)
}

func TestHeaderNamesKeepTheirCaseOnTheWire(t *testing.T) {
	t.Parallel()
	conn := dial(t, listening(t, service(t, &answers{decision: refused()}, Options{})))
	fmt.Fprintf(conn, "GET /v1/ping HTTP/1.1\r\nHost: q\r\nx-api-key: qk_a\r\nConnection: close, X-API-Key\r\n\r\n")
	raw, err := io.ReadAll(conn)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"X-RateLimit-Limit: 20", "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 1796040030",
		`RateLimit: "base";r=900;t=12, "exports";r=0;t=30`, `RateLimit-Policy: "base";q=1000;w=60, "exports";q=20;w=300`,
		"Retry-After: 30", "Cache-Control: no-store", "Content-Type: application/json",
	} {
		if !strings.Contains(string(raw), "\r\n"+line+"\r\n") {
			t.Errorf("%s is missing in\n%s", line, raw)
		}
	}
}

func TestAnswersDoNotWaitForABody(t *testing.T) {
	t.Parallel()
	address := listening(t, service(t, &answers{decision: admitted()}, Options{}))
	for name, headers := range map[string]string{
		"short":               "Content-Length: 5\r\n",
		"long":                "Content-Length: 200000000\r\n",
		"chunked":             "Transfer-Encoding: chunked\r\n",
		"expecting":           "Content-Length: 200000000\r\nExpect: 100-continue\r\n",
		"expecting, chunked":  "Transfer-Encoding: chunked\r\nExpect: 100-continue\r\n",
		"expecting, short":    "Content-Length: 5\r\nExpect: 100-continue\r\n",
		"begun and abandoned": "Content-Length: 100\r\n\r\nabc", // the empty line ends the header section early
	} {
		for _, target := range []string{"POST /v1/authorize/v1/upload", "GET /v1/ping", "GET /v1/limits", "POST /v1/ping", "POST /nowhere"} {
			t.Run(name+" "+target, func(t *testing.T) {
				t.Parallel()
				conn := dial(t, address)
				fmt.Fprintf(conn, "%s HTTP/1.1\r\nHost: q\r\nX-API-Key: qk_a\r\n%s\r\n", target, headers)
				status, _, _ := answerTo(t, bufio.NewReader(conn), target[:strings.Index(target, " ")])
				want := 200
				switch target {
				case "POST /v1/ping":
					want = 405
				case "POST /nowhere":
					want = 404
				}
				if status != want {
					t.Errorf("got %d, want %d", status, want)
				}
			})
		}
	}
}

func TestRefusedChecksDoNotWaitForTheirBody(t *testing.T) {
	t.Parallel()
	address := listening(t, service(t, &answers{decision: admitted()}, Options{}))
	for headers, want := range map[string]int{
		"Content-Type: application/json\r\nContent-Length: 100000\r\n":                                     413,
		"Content-Type: text/plain\r\nContent-Length: 10\r\n":                                               415,
		"Content-Type: application/json\r\nX-API-Key: b\r\nContent-Length: 50\r\n":                         400,
		"Content-Type: application/json\r\nX-API-Key: b\r\nExpect: 100-continue\r\nContent-Length: 50\r\n": 400,
	} {
		conn := dial(t, address)
		fmt.Fprintf(conn, "POST /v1/check HTTP/1.1\r\nHost: q\r\nX-API-Key: qk_a\r\n%s\r\n", headers)
		if status, _, _ := answerTo(t, bufio.NewReader(conn), "POST"); status != want {
			t.Errorf("%q: got %d, want %d", headers, status, want)
		}
	}
}

func TestAConnectionIsKept(t *testing.T) {
	t.Parallel()
	conn := dial(t, listening(t, service(t, &answers{decision: admitted()}, Options{})))
	r := bufio.NewReader(conn)
	for _, rest := range []string{
		"POST /v1/authorize/x HTTP/1.1\r\nContent-Length: 0\r\n\r\n",
		"GET /nowhere HTTP/1.1\r\n\r\n",
		"POST /v1/check HTTP/1.1\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
		"POST /v1/check HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}",
	} {
		line, rest, _ := strings.Cut(rest, "\r\n")
		for range 3 {
			fmt.Fprintf(conn, "%s\r\nHost: q\r\nX-API-Key: a\r\n%s", line, rest)
			if status, headers, _ := answerTo(t, r, "POST"); headers.Get("Connection") != "" || status >= 500 {
				t.Fatalf("%s: got %d, %v", line, status, headers)
			}
		}
	}
}

func TestUploadsToForwardAuthCostNoMemory(t *testing.T) {
	address := listening(t, service(t, &answers{decision: admitted()}, Options{}))
	chunk := []byte("10000\r\n" + strings.Repeat("x", 0x10000) + "\r\n")
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			conn, err := net.Dial("tcp", address)
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			_ = conn.SetDeadline(time.Now().Add(patience))
			fmt.Fprintf(conn, "POST /v1/authorize/up HTTP/1.1\r\nHost: q\r\nX-API-Key: a\r\nTransfer-Encoding: chunked\r\n\r\n")
			go func() { // as much as the server takes, of 200 MB
				for range 200 << 20 / 0x10000 {
					if _, err := conn.Write(chunk); err != nil {
						return
					}
				}
			}()
			resp, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: "POST"})
			if err != nil || resp.StatusCode != 200 {
				t.Errorf("got %v, %v", resp, err)
			}
		})
	}
	wg.Wait()
	runtime.ReadMemStats(&after)
	if grown := int64(after.TotalAlloc - before.TotalAlloc); grown > 64<<20 {
		t.Errorf("20 uploads took %d MB", grown>>20)
	}
	fresh := dial(t, address)
	fmt.Fprintf(fresh, "GET /v1/ping HTTP/1.1\r\nHost: q\r\nX-API-Key: a\r\n\r\n")
	if status, _, _ := answerTo(t, bufio.NewReader(fresh), "GET"); status != 200 {
		t.Errorf("afterwards: got %d", status)
	}
}

func TestHEADIsGETWithoutTheBody(t *testing.T) {
	t.Parallel()
	for _, a := range []*answers{{decision: admitted()}, {decision: refused()}, {err: quotad.ErrInvalidAPIKey}} {
		address := listening(t, service(t, a, Options{}))
		for _, target := range []string{"/v1/ping", "/v1/limits", "/v1/authorize", "/v1/authorize?deny_status=403", "/healthz", "/readyz", "/nowhere"} {
			conn := dial(t, address)
			r := bufio.NewReader(conn)
			send := func(method string) (int, http.Header, string) {
				fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: q\r\nX-API-Key: a\r\nX-Request-Id: same\r\n\r\n", method, target)
				return answerTo(t, r, method)
			}
			status, headers, body := send("HEAD")
			if body != "" {
				t.Errorf("HEAD %s has a body", target)
			}
			wantStatus, wantHeaders, _ := send("GET")
			if status != wantStatus {
				t.Errorf("HEAD %s: got %d, GET %d", target, status, wantStatus)
			}
			for name := range wantHeaders {
				if name != "Date" && strings.Join(headers[name], "|") != strings.Join(wantHeaders[name], "|") {
					t.Errorf("HEAD %s: %s is %q, of GET %q", target, name, headers[name], wantHeaders[name])
				}
			}
		}
	}
	a := &answers{decision: admitted()}
	do(service(t, a, Options{}), request("HEAD", "/v1/ping", "", withKey))
	if call := a.asked(t); call.Method != "HEAD" {
		t.Errorf("asked %+v", call)
	}
}

func TestOddKeysOnTheWire(t *testing.T) {
	t.Parallel()
	a := &answers{err: quotad.ErrInvalidAPIKey}
	address := listening(t, service(t, a, Options{}))
	for name, c := range map[string]struct {
		value string
		want  []int
	}{
		"empty":     {"", []int{401}},
		"one byte":  {"k", []int{401}},
		"8 kB":      {strings.Repeat("k", 8<<10), []int{401}},
		"1 MB":      {strings.Repeat("k", 1<<20), []int{431}},
		"high":      {"qk_\x80\xff\xfe", []int{400, 401}},
		"tab":       {"qk_a\tb", []int{400, 401}},
		"space":     {"qk_a b", []int{400, 401}},
		"NUL":       {"qk_a\x00b", []int{400}},
		"line feed": {"qk_a\n b", []int{400, 401}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, target := range []string{"/v1/ping", "/v1/authorize"} {
				conn := dial(t, address)
				go fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: q\r\nX-API-Key: %s\r\n\r\n", target, c.value)
				status, _, _ := answerTo(t, bufio.NewReader(conn), "GET")
				for _, want := range c.want {
					if status == want {
						return
					}
				}
				t.Errorf("%s: got %d, want one of %v", target, status, c.want)
			}
		})
	}
}

func TestAClientThatStopsSendingDoesNotHoldAConnection(t *testing.T) {
	t.Parallel()
	server := service(t, &answers{}, Options{}).HTTPServer()
	if server.ReadHeaderTimeout <= 0 || server.ReadTimeout <= 0 || server.WriteTimeout <= 0 || server.IdleTimeout < 75*time.Second ||
		server.MaxHeaderBytes <= 0 {
		t.Errorf("a bound is missing: %+v", server)
	}
}

func TestAnEndlessPathIsRefusedBeforeItIsRead(t *testing.T) {
	t.Parallel()
	conn := dial(t, listening(t, service(t, &answers{decision: admitted()}, Options{})))
	go fmt.Fprintf(conn, "GET /v1/authorize/%s HTTP/1.1\r\nHost: q\r\n\r\n", strings.Repeat("a", 1<<20))
	if status, _, _ := answerTo(t, bufio.NewReader(conn), "GET"); status != 431 {
		t.Errorf("got %d", status)
	}
}
