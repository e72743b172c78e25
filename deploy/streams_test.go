package deploy

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
)

// streams: what is long or goes both ways passes through, and counts once.
func streams(t *testing.T, g gateway, w *world, between *relay) {
	w.quotad.tier("streamer", 100, "")
	key := w.quotad.key("streamer", "")
	socket(t, w, key)
	events(t, w, key)
	if left := w.quotad.left(key); left != 98 {
		t.Errorf("a websocket and an event stream leave %d of 100: each must count once", left)
	}
	tunnel(t, w, w.quotad.key("streamer", ""))
	upload(t, w, key, between)
	if left := w.quotad.left(key); left != 97 {
		t.Errorf("an upload more leaves %d of 100", left)
	}
	w.quotad.tier("silenced", 1, "")
	silenced := w.quotad.key("silenced", "")
	w.get(t, "/v1/things", silenced)
	a := w.send(t, call{method: "GET", target: "/v1/socket", headers: append([]string{"X-API-Key: " + silenced}, handshake...)})
	exhausted.check(t, g, a)
	w.refused(t, a)
}

var handshake = []string{"Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="}

// open sends a call whose answer goes on, and returns what is to be read and written.
func (w *world) open(t *testing.T, c call) (*http.Response, *bufio.Reader, net.Conn, string) {
	t.Helper()
	conn, err := dial(w.gateway.URL(), c.from)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	id := strconv.FormatInt(ids.Add(1), 10)
	if _, err := io.WriteString(conn, c.text(id)); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(conn)
	res, err := http.ReadResponse(r, &http.Request{Method: c.method})
	if err != nil {
		t.Fatalf("%s: %v\n%s", c.target, err, w.gateway.Log())
	}
	return res, r, conn, id
}

func socket(t *testing.T, w *world, key string) {
	res, r, conn, id := w.open(t, call{method: "GET", target: "/v1/socket", headers: append([]string{"X-API-Key: " + key}, handshake...)})
	if res.StatusCode != http.StatusSwitchingProtocols || res.Header.Get("Sec-WebSocket-Accept") != "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" {
		t.Fatalf("the handshake came back as %s %v", res.Status, res.Header)
	}
	for _, line := range []string{"one", "two"} {
		fmt.Fprintln(conn, line)
		if got, err := r.ReadString('\n'); err != nil || got != "echo "+line+"\n" {
			t.Fatalf("through the socket came %q, %v", got, err)
		}
	}
	if got, _ := w.api.got(id); got.header.Get("X-Quotad-Tenant") != "streamer" || len(got.header.Values("X-API-Key")) > 0 {
		t.Errorf("the API got %q", got.header)
	}
}

// tunnel: a client can't have the API speak HTTP with it past the gateway, where nobody asks quotad.
func tunnel(t *testing.T, w *world, key string) {
	for _, protocol := range []string{"h2c", "H2C", "websocket, h2c", "h2c, websocket", "h2c\r\nUpgrade: websocket", "websocket\r\nUpgrade: h2c"} {
		a := w.get(t, "/v1/things", key, "Connection: Upgrade, HTTP2-Settings", "Upgrade: "+protocol, "HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA")
		if got, ok := w.api.got(a.id); ok && strings.Contains(strings.ToLower(strings.Join(got.header.Values("Upgrade"), ",")), "h2c") {
			t.Errorf("Upgrade: %s: the API got %q", protocol, got.header)
		}
	}
}

// events come one at a time: the second is only sent once the first has been read.
func events(t *testing.T, w *world, key string) {
	res, _, conn, _ := w.open(t, call{method: "GET", target: "/v1/events", headers: []string{"X-API-Key: " + key, "Accept: text/event-stream"}})
	defer conn.Close() // closing the body would wait for its end
	body := bufio.NewReader(res.Body)
	for n := range 3 {
		if got, err := body.ReadString('\n'); err != nil || got != fmt.Sprintf("data: %d\n", n) {
			t.Fatalf("event %d came as %q, %v", n, got, err)
		}
		if _, err := body.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		w.api.more <- struct{}{}
	}
}

// upload: the API gets all of it, quotad nothing.
func upload(t *testing.T, w *world, key string, between *relay) {
	const size = 16 << 20
	before := between.sent.Load()
	a := w.send(t, call{method: "POST", target: "/v1/things", headers: []string{"X-API-Key: " + key}, body: strings.Repeat("x", size)})
	if got := w.passed(t, a); got.body != size {
		t.Errorf("the API got %d of %d bytes: %d %s", got.body, size, a.status, a.body)
	}
	if sent := between.sent.Load() - before; sent == 0 || sent > 16<<10 {
		t.Errorf("quotad was sent %d bytes", sent)
	}
}
