package deploy

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

const (
	// client is the address that calls come from: not the gateways', which quotad believes.
	client          = "127.0.0.2"
	gatewaysAddress = "127.0.0.1"
	pageOrigin      = "https://app.example"
	// patience is how long tests wait for what has to come: what took longer hangs, on whatever machine.
	patience = 3 * time.Minute
)

// call is a request, sent as it is written: no client library puts its paths and headers right.
type call struct {
	method, target string
	headers        []string // lines such as "X-API-Key: k"
	body           string
	from           string // another address than client's
}

// answer is what a client got.
type answer struct {
	status int
	header http.Header
	body   string
	id     string // the call's, under which the API knows it
}

var ids atomic.Int64

// text is the request as it goes over the wire.
func (c call) text(id string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: api.example\r\nX-Call: %s\r\n", c.method, c.target, id)
	for _, line := range c.headers {
		b.WriteString(line + "\r\n")
	}
	if !strings.Contains(strings.ToLower(b.String()), "\r\nconnection:") {
		b.WriteString("Connection: close\r\n")
	}
	if c.body != "" {
		fmt.Fprintf(&b, "Content-Length: %d\r\n", len(c.body))
	}
	return b.String() + "\r\n" + c.body
}

// dial connects to a server from an address; "" is the client's.
func dial(url, from string) (net.Conn, error) {
	if from == "" {
		from = client
	}
	dialer := net.Dialer{Timeout: patience, LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	conn, err := dialer.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		return nil, err
	}
	return conn, conn.SetDeadline(time.Now().Add(patience))
}

// send makes a call and reads the whole answer.
func send(url string, c call) (answer, error) {
	id := strconv.FormatInt(ids.Add(1), 10)
	conn, err := dial(url, c.from)
	if err != nil {
		return answer{}, err
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, c.text(id)); err != nil {
		return answer{}, err
	}
	res, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: c.method})
	if err != nil {
		return answer{}, fmt.Errorf("%s %s %q: %w", c.method, c.target, c.headers, err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return answer{}, fmt.Errorf("%s %s %q: read the body: %w", c.method, c.target, c.headers, err)
	}
	return answer{status: res.StatusCode, header: res.Header, body: string(body), id: id}, nil
}

// send makes a call of the world's gateway, which has to answer.
func (w *world) send(t testing.TB, c call) answer {
	t.Helper()
	a, err := send(w.gateway.URL(), c)
	if err != nil {
		t.Fatalf("%v\n%s", err, w.gateway.Log())
	}
	return a
}

// get makes a GET call with a key.
func (w *world) get(t testing.TB, target, key string, headers ...string) answer {
	t.Helper()
	return w.send(t, call{method: "GET", target: target, headers: append([]string{"X-API-Key: " + key}, headers...)})
}

// passed is what reached the API of an answered call, which must have.
func (w *world) passed(t testing.TB, a answer) reached {
	t.Helper()
	r, ok := w.api.got(a.id)
	if !ok {
		t.Fatalf("did not reach the API: %d %s\n%s", a.status, a.body, w.gateway.Log())
	}
	return r
}

// refused checks that a call did not reach the API.
func (w *world) refused(t testing.TB, a answer) {
	t.Helper()
	if r, ok := w.api.got(a.id); ok {
		t.Errorf("reached the API: %d, %+v", a.status, r)
	}
}

// problem is the error code of a refusal.
func (a answer) problem(t testing.TB) string {
	t.Helper()
	var p struct {
		Error      string
		Message    string
		Status     int
		RetryAfter int `json:"retry_after"`
	}
	if err := json.Unmarshal([]byte(a.body), &p); err != nil || p.Status != a.status || p.Message == "" {
		t.Errorf("%d is no problem as quotad writes them (%v): %q", a.status, err, a.body)
	}
	if retry := a.header.Get("Retry-After"); p.RetryAfter > 0 && retry != strconv.Itoa(p.RetryAfter) {
		t.Errorf("Retry-After %q beside retry_after %d", retry, p.RetryAfter)
	}
	return p.Error
}
