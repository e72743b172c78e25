package deploy

import (
	"bufio"
	"crypto/sha1"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// api is what a gateway protects. It writes down every call that reaches it under the call's X-Call header.
type api struct {
	*httptest.Server
	mu    sync.Mutex
	calls map[string]reached
	// more lets the handler of events write the next one.
	more chan struct{}
}

// reached is a call as the API got it.
type reached struct {
	method, target string
	header         http.Header
	body           int64
}

func startAPI(t testing.TB) *api {
	a := &api{calls: map[string]reached{}, more: make(chan struct{})}
	a.Server = httptest.NewServer(http.HandlerFunc(a.serve))
	t.Cleanup(a.Server.Close)
	return a
}

func (a *api) serve(w http.ResponseWriter, r *http.Request) {
	body, _ := io.Copy(io.Discard, r.Body)
	a.mu.Lock()
	a.calls[r.Header.Get("X-Call")] = reached{r.Method, r.RequestURI, r.Header.Clone(), body}
	a.mu.Unlock()
	// What the API says of limits of its own must not be taken for quotad's.
	w.Header().Set("X-RateLimit-Limit", "777")
	switch r.URL.Path {
	case "/v1/socket":
		a.socket(w, r)
	case "/v1/events":
		a.events(w, r)
	case "/v1/teapot":
		w.Header().Set("Retry-After", "9")
		w.WriteHeader(http.StatusForbidden) // the API's own refusal
		fmt.Fprint(w, "teapot")
	default:
		fmt.Fprint(w, "hello")
	}
}

// socket speaks as a websocket does until the handshake is over, and then echoes lines.
func (a *api) socket(w http.ResponseWriter, r *http.Request) {
	if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		http.Error(w, "not an upgrade", http.StatusBadRequest)
		return
	}
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer conn.Close()
	fmt.Fprintf(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: %s\r\n\r\n",
		acceptOf(r.Header.Get("Sec-WebSocket-Key")))
	rw.Flush()
	for lines := bufio.NewScanner(rw); lines.Scan(); rw.Flush() {
		fmt.Fprintf(rw, "echo %s\n", lines.Text())
	}
}

// acceptOf is the answer to a Sec-WebSocket-Key (RFC 6455, section 4.2.2).
func acceptOf(key string) string {
	sum := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	return base64.StdEncoding.EncodeToString(sum[:])
}

// events writes an event at once, and another one each time that the test says so.
func (a *api) events(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	for n := 0; ; n++ {
		fmt.Fprintf(w, "data: %d\n\n", n)
		if err := http.NewResponseController(w).Flush(); err != nil {
			return
		}
		select {
		case <-a.more:
		case <-r.Context().Done():
			return
		}
	}
}

// got is what reached the API of a call.
func (a *api) got(call string) (reached, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	r, ok := a.calls[call]
	return r, ok
}
