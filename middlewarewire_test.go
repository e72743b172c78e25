package quotad_test

import (
	"bufio"
	"context"
	"crypto/sha1"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/testenv"
)

func TestTheResponseWriterIsHandedOnAsItIs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	key := w.key("acme")
	var outer http.ResponseWriter
	metered := w.client().Middleware(quotad.MiddlewareOptions{})(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		if rw != outer {
			t.Errorf("got a %T, want the server's own %T", rw, outer)
		}
	}))
	s := &service{t: t, url: answering(t, func(rw http.ResponseWriter, r *http.Request) {
		outer = rw
		metered.ServeHTTP(rw, r)
	})}
	if a := s.call("GET", "/", key); a.status != 200 {
		t.Errorf("got %+v", a)
	}
}

func TestEventsAreDeliveredAsTheyHappen(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	key := w.key("acme")
	next := make(chan string)
	s := serving(t, w.client(), quotad.MiddlewareOptions{}, func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Content-Type", "text/event-stream")
		stream := http.NewResponseController(rw)
		if err := stream.SetWriteDeadline(time.Now().Add(testenv.Patience)); err != nil {
			t.Errorf("set a deadline: %v", err)
		}
		for event := range next {
			fmt.Fprintf(rw, "data: %s\n\n", event)
			if err := stream.Flush(); err != nil {
				t.Errorf("flush: %v", err)
			}
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
	defer cancel()
	r, _ := http.NewRequestWithContext(ctx, "GET", s.url, nil)
	r.Header.Set("X-API-Key", string(key))
	sent := make(chan struct{})
	go func() { // the first event lets the headers go
		next <- "0"
		close(sent)
	}()
	res, err := http.DefaultClient.Do(r)
	must(t, res, err)
	defer res.Body.Close()
	<-sent
	lines := bufio.NewScanner(res.Body)
	for i := range 5 {
		if i > 0 {
			next <- fmt.Sprint(i)
		}
		if !lines.Scan() || lines.Text() != fmt.Sprintf("data: %d", i) { // before the next one happens
			t.Fatalf("event %d: got %q", i, lines.Text())
		}
		lines.Scan() // the empty line
	}
	close(next)
	if res.Header.Get("X-RateLimit-Remaining") != "9" {
		t.Errorf("got %v", res.Header)
	}
}

// A websocket is one call: its handshake passes through, and so does all that is
// said on the connection that the handler takes over.
func TestAWebsocketCountsOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	key := w.key("acme")
	s := serving(t, w.client(), quotad.MiddlewareOptions{}, func(rw http.ResponseWriter, r *http.Request) {
		conn, stream, err := http.NewResponseController(rw).Hijack()
		if err != nil {
			t.Errorf("hijack: %v", err)
			return
		}
		defer conn.Close()
		accept := sha1.Sum([]byte(r.Header.Get("Sec-WebSocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
		fmt.Fprintf(stream, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: %s\r\n\r\n",
			base64.StdEncoding.EncodeToString(accept[:]))
		_ = stream.Flush()
		_, _ = io.Copy(conn, stream) // what comes goes back
	})
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	must(t, conn, err)
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(testenv.Patience))
	fmt.Fprintf(conn, "GET /chat HTTP/1.1\r\nHost: s\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"+
		"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nX-API-Key: %s\r\n\r\n", string(key))
	answers := bufio.NewReader(conn)
	res, err := http.ReadResponse(answers, nil)
	if must(t, res, err).StatusCode != http.StatusSwitchingProtocols || res.Header.Get("Sec-WebSocket-Accept") != "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" {
		t.Fatalf("got %v", res)
	}
	for range 3 {
		frame := []byte{0x81, 0x85, 1, 2, 3, 4, 'h' ^ 1, 'e' ^ 2, 'l' ^ 3, 'l' ^ 4, 'o' ^ 1}
		_, _ = conn.Write(frame)
		got := make([]byte, len(frame))
		if _, err := io.ReadFull(answers, got); err != nil || string(got) != string(frame) {
			t.Fatalf("got %q, %v", got, err)
		}
	}
	if left := remaining(t, w.client(), key); left != 9 {
		t.Errorf("%d units are left, want 9", left)
	}
}

// An upload is not read by the middleware, neither where it is admitted nor where not.
func TestBodiesAreTheHandlers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	key := w.key("acme")
	s := serving(t, w.client(), quotad.MiddlewareOptions{}, func(rw http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		fmt.Fprint(rw, n, err)
	})
	const size = 50 << 20
	upload := func(key quotad.Credential) (status int, answer string, sent int64) {
		body := &io.LimitedReader{R: zeros{}, N: size}
		r, _ := http.NewRequest("POST", s.url, body)
		r.Header.Set("X-API-Key", string(key))
		r.Header.Set("Expect", "100-continue")
		res, err := (&http.Client{Transport: &http.Transport{ExpectContinueTimeout: testenv.Patience, DisableKeepAlives: true}}).Do(r)
		must(t, res, err)
		defer res.Body.Close()
		text, _ := io.ReadAll(res.Body)
		return res.StatusCode, string(text), size - body.N
	}
	if status, body, _ := upload(key); status != 200 || body != "52428800 <nil>" {
		t.Errorf("got %d %s", status, body)
	}
	if status, _, sent := upload("qk_unknown"); status != 401 || sent != 0 {
		t.Errorf("got %d after %d bytes", status, sent)
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }
