package httpapi

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/textproto"
	"strings"
	"testing"
	"time"
)

// Each event is with the client before the next one is made.
func TestEventsAreFlushedAtOnce(t *testing.T) {
	t.Parallel()
	for _, media := range []string{"text/event-stream", "text/event-stream; charset=utf-8", "application/x-ndjson"} {
		t.Run(media, func(t *testing.T) {
			t.Parallel()
			next := make(chan struct{})
			a := &answers{decision: admitted()}
			g := gateTo(t, a, Options{}, GatewayOptions{}, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", media)
				_ = http.NewResponseController(w).Flush()
				for i := 0; ; i++ {
					select {
					case <-next:
						fmt.Fprintf(w, "data: %d\n", i)
						_ = http.NewResponseController(w).Flush()
					case <-r.Context().Done():
						return
					}
				}
			})
			conn := dial(t, g.address)
			_, _ = io.WriteString(conn, head("GET /events"))
			res, err := http.ReadResponse(bufio.NewReader(conn), nil) // the head comes before any event
			if err != nil {
				t.Fatal(err)
			}
			events := bufio.NewReader(res.Body)
			for i := range 20 {
				next <- struct{}{}
				if line, err := events.ReadString('\n'); err != nil || line != fmt.Sprintf("data: %d\n", i) {
					t.Fatalf("event %d: %q %v", i, line, err)
				}
			}
			a.asked(t)
		})
	}
}

// websocket is an upstream that echoes lines once the connection is switched.
func websocket(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Upgrade") != "websocket" || r.Header.Get("Connection") != "Upgrade" {
		http.Error(w, "no upgrade", http.StatusBadRequest)
		return
	}
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: yes\r\n\r\n")
	for {
		line, err := rw.ReadString('\n')
		if err != nil {
			return
		}
		_, _ = io.WriteString(conn, line)
	}
}

// upgrade switches a connection to the gateway over.
func (g *gate) upgrade() (*bufio.Reader, io.ReadWriteCloser) {
	g.t.Helper()
	conn := dial(g.t, g.address)
	_, _ = io.WriteString(conn, head("GET /socket", "Connection: keep-alive, Upgrade", "Upgrade: websocket"))
	r := bufio.NewReader(conn)
	res, err := http.ReadResponse(r, nil)
	if err != nil {
		g.t.Fatal(err)
	}
	if res.StatusCode != http.StatusSwitchingProtocols || res.Header.Get("Upgrade") != "websocket" || res.Header.Get("Sec-WebSocket-Accept") != "yes" ||
		strings.Join(res.Header["Connection"], "|") != "Upgrade" || res.Header.Get("X-RateLimit-Remaining") != "19" {
		g.t.Fatalf("got %d %v", res.StatusCode, res.Header)
	}
	return r, conn
}

func TestWebsocketsPassAndCountOnce(t *testing.T) {
	t.Parallel()
	a := &answers{decision: admitted()}
	g := gateTo(t, a, Options{}, GatewayOptions{}, websocket)
	r, conn := g.upgrade()
	for i := range 10 {
		fmt.Fprintf(conn, "message %d\n", i)
		if line, err := r.ReadString('\n'); err != nil || line != fmt.Sprintf("message %d\n", i) {
			t.Fatalf("message %d: %q %v", i, line, err)
		}
	}
	a.asked(t)
	g.wantCount("quotad_gateway_answers_total", `{class="1xx"}`, 1)
	refusing := gateTo(t, &answers{decision: refused()}, Options{}, GatewayOptions{}, websocket)
	if status, _, _ := refusing.ask("GET /socket", "Connection: Upgrade", "Upgrade: websocket"); status != http.StatusTooManyRequests || refusing.reached.Load() != 0 {
		t.Errorf("a refused upgrade: got %d", status)
	}
}

// In an upgraded connection that speaks HTTP, calls would reach the upstream that nobody judged, as whoever they say.
func TestNoUpgradeLeadsToCallsThatNobodyJudges(t *testing.T) {
	t.Parallel()
	g := openGate(t, seen)
	for _, protocol := range []string{"h2c", "H2C", "websocket, h2c", "h2c,websocket", "HTTP/2.0", "h2", "TLS/1.0, HTTP/1.1"} {
		status, _, body := g.ask("GET /", "Connection: Upgrade, HTTP2-Settings", "Upgrade: "+protocol, "HTTP2-Settings: AAMAAABk")
		if status != http.StatusOK || !strings.Contains(body, "X-Quotad-Tenant: acme") {
			t.Errorf("%s: got %d %s", protocol, status, body)
		}
		for _, name := range []string{"Upgrade", "Connection", "Http2-Settings"} {
			if strings.Contains(body, name) {
				t.Errorf("%s: the upstream got %s:\n%s", protocol, name, body)
			}
		}
	}
	switching := openGate(t, func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n")
	})
	if status, _, body := switching.ask("GET /", "Connection: Upgrade", "Upgrade: h2c"); status != http.StatusBadGateway {
		t.Errorf("an upstream that switches all the same: got %d %s", status, body)
	}
}

// While a node drains, its listener asks clients to close their connections; an upgrade is none to close.
func TestUpgradesWhileANodeDrains(t *testing.T) {
	t.Parallel()
	g := openGate(t, websocket)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "close")
		g.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	g.address = strings.TrimPrefix(server.URL, "http://")
	r, conn := g.upgrade()
	fmt.Fprintln(conn, "hello")
	if line, err := r.ReadString('\n'); line != "hello\n" {
		t.Error(line, err)
	}
	_ = conn.Close()
}

// Streams have no end of their own; told to end, they all do, and what is no stream goes on.
func TestStreamsCanBeEnded(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	g := openGate(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/socket":
			websocket(w, r)
		case "/events":
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, "data: first\n\n")
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		default:
			_, _ = io.WriteString(w, "first, ")
			_ = http.NewResponseController(w).Flush()
			<-release
			_, _ = io.WriteString(w, "last")
		}
	})
	socket, conn := g.upgrade()
	fmt.Fprintln(conn, "hello")
	if line, err := socket.ReadString('\n'); line != "hello\n" {
		t.Fatal(line, err)
	}
	body := func(path string) *bufio.Reader {
		conn := dial(t, g.address)
		_, _ = io.WriteString(conn, head("GET "+path))
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		return bufio.NewReader(res.Body)
	}
	events, download := body("/events"), body("/download")
	if line, err := events.ReadString('\n'); line != "data: first\n" {
		t.Fatal(line, err)
	}
	if word, err := download.ReadString(' '); word != "first, " {
		t.Fatal(word, err)
	}
	g.EndStreams()
	if rest, err := io.ReadAll(events); err != nil || string(rest) != "\n" {
		t.Errorf("the events ended with %q %v", rest, err)
	}
	if rest, _ := io.ReadAll(socket); string(rest) != "" {
		t.Errorf("the socket ended with %q", rest)
	}
	if rest, err := io.ReadAll(body("/events")); err != nil || len(rest) > len("data: first\n\n") {
		t.Errorf("events that began after it: %q %v", rest, err)
	}
	close(release)
	if rest, err := io.ReadAll(download); err != nil || string(rest) != "last" {
		t.Errorf("the download ended with %q %v", rest, err)
	}
	for began := time.Now(); g.streamsOpen() > 0; time.Sleep(time.Millisecond) {
		if time.Since(began) > patience {
			t.Fatal("streams are kept after their end")
		}
	}
}

func (g *gate) streamsOpen() int {
	g.streams.mu.Lock()
	defer g.streams.mu.Unlock()
	return len(g.streams.open)
}

// Early hints and trailers pass, in both directions; a client's trailer says no more than its headers may.
func TestHintsAndTrailersPass(t *testing.T) {
	t.Parallel()
	g := openGate(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Link", "</style.css>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Del("Link")
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Trailer", "X-Sum")
		fmt.Fprintf(w, "%s %v", body, r.Trailer)
		_ = http.NewResponseController(w).Flush()
		w.Header().Set("X-Sum", "42")
		w.Header().Set(http.TrailerPrefix+"X-Late", "43")
	})
	conn := dial(t, g.address)
	_, _ = io.WriteString(conn, head("POST /", "Transfer-Encoding: chunked", "Trailer: X-Check, X-Quotad-Tenant, X-Forwarded-For")+
		"5\r\nhello\r\n0\r\nX-Check: ok\r\nX-Quotad-Tenant: victim\r\nX-Forwarded-For: 192.0.2.1\r\nX_Api_Key: victim\r\n\r\n")
	r := bufio.NewReader(conn)
	hints, err := http.ReadResponse(r, nil)
	if err != nil || hints.StatusCode != http.StatusEarlyHints || hints.Header.Get("Link") == "" {
		t.Fatalf("got %+v %v", hints, err)
	}
	res, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(res.Body)
	if err != nil || string(body) != "hello map[X-Check:[ok]]" || res.Header.Get("Link") != "" || res.Header.Get("X-RateLimit-Remaining") != "19" {
		t.Errorf("got %q %v %v", body, res.Header, err)
	}
	if sum, late := res.Trailer.Get("X-Sum"), res.Trailer.Get("X-Late"); sum != "42" || late != "43" {
		t.Errorf("the trailer is %v", res.Trailer)
	}
}

// A client that pauses between events, or takes none for a while, is not cut off; one
// that takes nothing at all any more is.
func TestStallsAreBounded(t *testing.T) {
	t.Parallel()
	g := openGate(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		flush := http.NewResponseController(w).Flush
		if r.URL.Path == "/endless" {
			block := make([]byte, 1<<16)
			for {
				if _, err := w.Write(block); err != nil {
					return
				}
			}
		}
		_, _ = io.WriteString(w, "0")
		_ = flush()
		time.Sleep(3 * time.Second)
		_, _ = io.WriteString(w, "1")
	})
	g.stall = 2 * time.Second // shorter than the pause, and yet enough on a busy machine
	if status, _, body := g.ask("GET /paused"); status != http.StatusOK || body != "01" {
		t.Errorf("a stream that pauses: %d %q", status, body)
	}
	conn := dial(t, g.address)
	_, _ = io.WriteString(conn, head("GET /endless"))
	g.wantCount("quotad_gateway_answers_total", `{class="2xx"}`, 2)
	for began := time.Now(); g.streamsOpen() > 0; time.Sleep(5 * time.Millisecond) {
		if time.Since(began) > patience {
			t.Fatal("a client that takes nothing is served for ever")
		}
	}
	// The same for one that sends nothing more of the body it announced.
	conn = dial(t, g.address)
	_, _ = io.WriteString(conn, head("POST /slow", "Content-Length: 100")+"half")
	r := bufio.NewReader(conn)
	if status, _, body := answerTo(t, r, "POST"); status != http.StatusBadRequest || !strings.Contains(body, "in time") {
		t.Errorf("an upload that stalls: %d %s", status, body)
	}
	if _, err := r.ReadByte(); err != io.EOF {
		t.Errorf("an upload that stalls keeps its connection: %v", err)
	}
}

// A handler behind a real server has the writer's controls.
func TestPacedWriterKeepsTheControls(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		paced := &pacedWriter{ResponseWriter: w, stall: time.Minute}
		c := http.NewResponseController(paced)
		if err := c.Flush(); err != nil {
			t.Error(err)
		}
		if err := c.SetReadDeadline(time.Time{}); err != nil {
			t.Error(err)
		}
		conn, _, err := c.Hijack()
		if err != nil || !paced.hijacked {
			t.Error(err, paced.hijacked)
			return
		}
		_ = conn.Close()
	}))
	defer server.Close()
	conn := dial(t, strings.TrimPrefix(server.URL, "http://"))
	_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	_, _ = textproto.NewReader(bufio.NewReader(conn)).ReadLine()
	_, _ = io.Copy(io.Discard, conn)
}
