package httpapi

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	memory "runtime/metrics"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotad/quotad"
)

// A refusal is told before the body comes, and the upstream sees nothing of it.
func TestGatewayRefusesWithoutWaitingForTheBody(t *testing.T) {
	t.Parallel()
	g := gateTo(t, &answers{decision: refused()}, Options{}, GatewayOptions{}, seen)
	for name, headers := range map[string]string{
		"short":              "Content-Length: 5\r\n",
		"long":               "Content-Length: 200000000\r\n",
		"chunked":            "Transfer-Encoding: chunked\r\n",
		"expecting":          "Content-Length: 200000000\r\nExpect: 100-continue\r\n",
		"expecting, chunked": "Transfer-Encoding: chunked\r\nExpect: 100-continue\r\n",
		"begun":              "Content-Length: 100\r\n\r\nabc",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn := dial(t, g.address)
			fmt.Fprintf(conn, "POST /upload HTTP/1.1\r\nHost: q\r\nX-API-Key: qk_a\r\n%s\r\n", headers)
			r := bufio.NewReader(conn)
			if status, _, _ := answerTo(t, r, "POST"); status != http.StatusTooManyRequests {
				t.Errorf("got %d", status)
			}
			if _, err := r.ReadByte(); err != io.EOF { // what is left of the body is not read as the next request
				t.Errorf("the connection goes on: %v", err)
			}
		})
	}
	t.Cleanup(func() {
		if g.reached.Load() != 0 {
			t.Error("the upstream was reached")
		}
	})
}

// Who offers to wait is told to go on by the upstream's word, and refused by it.
func TestGatewayPassesExpectOn(t *testing.T) {
	t.Parallel()
	g := openGate(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/no" {
			w.WriteHeader(http.StatusExpectationFailed)
			return
		}
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s", body)
	})
	conn := dial(t, g.address)
	r := bufio.NewReader(conn)
	_, _ = io.WriteString(conn, head("POST /yes", "Content-Length: 5", "Expect: 100-continue"))
	if res, err := http.ReadResponse(r, nil); err != nil || res.StatusCode != http.StatusContinue {
		t.Fatalf("got %+v %v", res, err)
	}
	_, _ = io.WriteString(conn, "hello")
	if status, _, body := answerTo(t, r, "POST"); status != http.StatusOK || body != "hello" {
		t.Errorf("got %d %q", status, body)
	}
	if status, _, _ := g.ask("POST /no", "Content-Length: 200000000", "Expect: 100-continue"); status != http.StatusExpectationFailed {
		t.Errorf("got %d", status)
	}
}

// An upstream may answer while the body still comes, and neither waits for the other.
func TestGatewayPassesBothWaysAtOnce(t *testing.T) {
	t.Parallel()
	g := openGate(t, func(w http.ResponseWriter, r *http.Request) {
		c := http.NewResponseController(w)
		_ = c.EnableFullDuplex()
		lines := bufio.NewReader(r.Body)
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				return
			}
			_, _ = io.WriteString(w, strings.ToUpper(line))
			_ = c.Flush()
		}
	})
	conn := dial(t, g.address)
	_, _ = io.WriteString(conn, head("POST /", "Transfer-Encoding: chunked"))
	send := func(line string) { fmt.Fprintf(conn, "%x\r\n%s\r\n", len(line), line) }
	send("line 0\n")
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(res.Body)
	for i := range 10 {
		if line, err := lines.ReadString('\n'); err != nil || line != fmt.Sprintf("LINE %d\n", i) {
			t.Fatalf("line %d: %q %v", i, line, err)
		}
		send(fmt.Sprintf("line %d\n", i+1))
	}
	_, _ = io.WriteString(conn, "0\r\n\r\n")
	if rest, err := io.ReadAll(lines); err != nil || string(rest) != "LINE 10\n" {
		t.Errorf("got %q %v", rest, err)
	}
}

func TestABodyThatCantBeReadIsTheClientsFault(t *testing.T) {
	t.Parallel()
	g := openGate(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })
	conn := dial(t, g.address)
	_, _ = io.WriteString(conn, head("POST /", "Transfer-Encoding: chunked")+"5\r\nhello\r\nnonsense\r\n")
	if status, _, body := answerTo(t, bufio.NewReader(conn), "POST"); status != http.StatusBadRequest || !strings.Contains(body, "invalid_request") {
		t.Errorf("got %d %s", status, body)
	}
	g.wantCount("quotad_gateway_upstream_failures_total", `{reason="broken"}`, 0)
}

// A connection whose bodies are read to their end is kept.
func TestGatewayKeepsConnections(t *testing.T) {
	t.Parallel()
	g := openGate(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_, _ = w.Write(body)
	})
	conn := dial(t, g.address)
	r := bufio.NewReader(conn)
	for i := range 20 {
		size := 1 << i
		_, _ = io.WriteString(conn, head("POST /", fmt.Sprintf("Content-Length: %d", size)))
		go func() { _, _ = io.WriteString(conn, strings.Repeat("x", size)) }()
		if status, _, body := answerTo(t, r, "POST"); status != http.StatusOK || len(body) != size {
			t.Fatalf("%d bytes: got %d, %d bytes", size, status, len(body))
		}
	}
}

// chunks is a body of that many bytes that are made as they are read.
type chunks struct{ left int64 }

func (c *chunks) Read(b []byte) (int, error) {
	if c.left == 0 {
		return 0, io.EOF
	}
	n := int(min(c.left, int64(len(b))))
	c.left -= int64(n)
	return n, nil
}

// heap is the memory that the process has from the system and uses, in bytes.
func heap() int64 {
	sample := []memory.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}, {Name: "/memory/classes/heap/free:bytes"}}
	memory.Read(sample)
	return int64(sample[0].Value.Uint64() - sample[1].Value.Uint64() - sample[2].Value.Uint64())
}

// Twenty uploads of 200 MB at once: all of each arrives, and next to nothing of it is
// kept. Not parallel: nothing else is to use memory meanwhile.
func TestGatewayUploadsCostNoMemory(t *testing.T) {
	const size, uploads = 200 << 20, 20
	g := openGate(t, func(w http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		fmt.Fprintf(w, "%d %v", n, err)
	})
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: uploads, ExpectContinueTimeout: time.Second}}
	defer client.CloseIdleConnections()
	runtime.GC()
	before, most := heap(), int64(0)
	var all sync.WaitGroup
	for i := range uploads {
		all.Go(func() {
			req, err := http.NewRequest(http.MethodPost, "http://"+g.address+"/upload", &chunks{left: size})
			if err != nil {
				t.Error(err)
				return
			}
			req.Header.Set("X-API-Key", "qk_test")
			if i%2 == 0 {
				req.ContentLength = size
			}
			if i%3 == 0 {
				req.Header.Set("Expect", "100-continue")
			}
			res, err := client.Do(req)
			if err != nil {
				t.Error(err)
				return
			}
			defer res.Body.Close()
			body, err := io.ReadAll(res.Body)
			if res.StatusCode != http.StatusOK || string(body) != fmt.Sprintf("%d <nil>", size) || err != nil {
				t.Errorf("got %d %q %v", res.StatusCode, body, err)
			}
		})
	}
	done := make(chan struct{})
	go func() { all.Wait(); close(done) }()
	for over := false; !over; {
		select {
		case <-done:
			over = true
		case <-time.After(20 * time.Millisecond):
		}
		most = max(most, heap()-before)
	}
	t.Logf("%d uploads of %d MB took %d MB of memory at most", uploads, size>>20, most>>20)
	if most > 64<<20 {
		t.Errorf("memory grew by %d MB", most>>20)
	}
	if status, _, _ := g.ask("GET /"); status != http.StatusOK {
		t.Errorf("afterwards: got %d", status)
	}
}

// goroutines waits until there are no more than that many.
func goroutines(t *testing.T, most int) {
	t.Helper()
	now := 0
	for began := time.Now(); time.Since(began) < patience; time.Sleep(10 * time.Millisecond) {
		if now = runtime.NumGoroutine(); now <= most {
			return
		}
	}
	stacks := make([]byte, 1<<20)
	t.Errorf("%d goroutines are left, want at most %d\n%s", now, most, stacks[:runtime.Stack(stacks, true)])
}

// Two hundred clients hang up: while they upload, while the upstream takes its time,
// while an answer streams, while they wait in the queue. Not parallel: goroutines are counted.
func TestGatewayClientsThatHangUpLeaveNothing(t *testing.T) {
	const clients = 200
	for name, c := range map[string]struct {
		request string
		path    string
		delay   int64
		// seen is how many calls the upstream must have got before the clients hang up.
		seen int64
	}{
		"while they upload":                 {head("POST /upload", "Content-Length: 1000000") + "abc", "/upload", 0, clients},
		"while they upload in chunks":       {head("POST /upload", "Transfer-Encoding: chunked") + "3\r\nabc\r\n", "/upload", 0, clients},
		"while the upstream takes its time": {head("POST /slow", "Content-Length: 3") + "abc", "/slow", 0, clients},
		"while an answer streams":           {head("GET /events"), "/events", 0, clients},
		"while they are on a socket":        {head("GET /socket", "Connection: Upgrade", "Upgrade: websocket"), "/socket", 0, clients},
		"while they wait":                   {head("GET /wait"), "/wait", 3_600_000, 0},
		"while they wait with a body":       {head("POST /wait", "Content-Length: 3") + "abc", "/wait", 3_600_000, 0},
		"while they wait with half a body":  {head("POST /wait", "Content-Length: 100") + "abc", "/wait", 3_600_000, 0},
		"while they wait expecting":         {head("POST /wait", "Transfer-Encoding: chunked", "Expect: 100-continue"), "/wait", 3_600_000, 0},
	} {
		t.Run(name, func(t *testing.T) {
			d := admitted()
			d.DelayMS = c.delay
			var gone sync.WaitGroup
			gone.Add(int(c.seen))
			g := gateTo(t, &answers{decision: d}, Options{}, GatewayOptions{}, func(w http.ResponseWriter, r *http.Request) {
				defer gone.Done()
				switch r.URL.Path {
				case "/upload":
					if _, err := io.Copy(io.Discard, r.Body); err == nil {
						t.Error("half a body looked whole")
					}
				case "/events":
					w.Header().Set("Content-Type", "text/event-stream")
					_ = http.NewResponseController(w).Flush()
					<-r.Context().Done()
				case "/socket":
					websocket(w, r)
				default:
					_, _ = io.Copy(io.Discard, r.Body)
					<-r.Context().Done()
				}
			})
			before := runtime.NumGoroutine()
			conns := make([]net.Conn, clients)
			for i := range conns {
				conns[i] = dial(t, g.address)
				if _, err := io.WriteString(conns[i], c.request); err != nil {
					t.Fatal(err)
				}
			}
			if c.delay > 0 {
				g.wantCount("quotad_gateway_waiting", "", clients)
			}
			for began := time.Now(); g.reached.Load() < c.seen; time.Sleep(time.Millisecond) {
				if time.Since(began) > patience {
					t.Fatalf("the upstream got %d calls", g.reached.Load())
				}
			}
			for _, conn := range conns {
				_ = conn.Close()
			}
			gone.Wait() // each upstream is told
			goroutines(t, before+4)
			for _, reason := range failureNames { // it is not the upstream that failed
				g.wantCount("quotad_gateway_upstream_failures_total", fmt.Sprintf("{reason=%q}", reason), 0)
			}
			if c.delay > 0 {
				g.wantCount("quotad_gateway_waiting", "", 0)
				g.wantCount("quotad_gateway_waits_total", `{outcome="hung_up"}`, clients)
				g.wantPlaces(10_000)
			}
			if g.reached.Load() != c.seen {
				t.Errorf("the upstream got %d calls, want %d", g.reached.Load(), c.seen)
			}
		})
	}
}

// An upstream that hangs up in the middle of an upload fails the call, and quotad goes on.
func TestUpstreamsThatHangUpLeaveNothing(t *testing.T) {
	g := &gate{t: t}
	g.open(&answers{decision: admitted()}, Options{}, GatewayOptions{}, "http://"+speaking("", false)(t))
	before := runtime.NumGoroutine()
	for range 50 {
		status, _, body := g.ask("POST /", "Content-Length: 3", "", "abc")
		if status != http.StatusBadGateway || !strings.Contains(body, string(quotad.CodeUpstreamUnavailable)) {
			t.Fatalf("got %d %s", status, body)
		}
	}
	goroutines(t, before+4)
}

// The first part of a body is read ahead while its call waits; it is passed on whole all the same.
func TestReadAhead(t *testing.T) {
	t.Parallel()
	for _, size := range []int{1, 100, maxAhead - 1, maxAhead, maxAhead + 1, 100_000} {
		for _, announced := range []bool{true, false} {
			pieces, in := io.Pipe()
			r := &http.Request{Body: pieces, ContentLength: -1}
			if announced {
				r.ContentLength = int64(size)
			}
			u := newUpload(r, &pacedWriter{stall: time.Minute})
			u.readAhead(r.ContentLength)
			go func() {
				for i := range size {
					_, _ = in.Write([]byte{byte(i)})
				}
				_ = in.CloseWithError(io.EOF)
			}()
			got, err := io.ReadAll(u)
			if err != nil || len(got) != size {
				t.Fatalf("%d bytes: got %d, %v", size, len(got), err)
			}
			for i := range got {
				if got[i] != byte(i) {
					t.Fatalf("%d bytes: byte %d is %d", size, i, got[i])
				}
			}
			if u.fault() != nil || !u.ended.Load() {
				t.Errorf("%d bytes: %v", size, u.fault())
			}
			u.abandon()
			if _, err := u.Read(make([]byte, 1)); !errors.Is(err, errUploadClosed) {
				t.Errorf("read after its end: %v", err)
			}
		}
	}
}

// bytewise is a body whose reads are told one by one.
type bytewise struct{ asked, given chan struct{} }

func (b bytewise) Read(p []byte) (int, error) {
	b.asked <- struct{}{}
	<-b.given
	p[0] = 'a'
	return 1, nil
}

// Who reads ahead when the call ends reads no further, and does not give the client more
// time for a body that nobody wants.
func TestReadingAheadEndsWithTheCall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		body := bytewise{asked: make(chan struct{}, 100), given: make(chan struct{})}
		var last time.Time
		u := &upload{body: body, stall: time.Minute, deadline: func(until time.Time) error { last = until; return nil }}
		u.readAhead(100)
		<-body.asked
		u.abandon()
		close(body.given)
		synctest.Wait()
		if len(body.asked) > 0 {
			t.Error("it is read on")
		}
		if until := time.Until(last); until != linger {
			t.Errorf("the client has %v", until)
		}
	})
}

// The end of a call and the deadline of a read that begins just then are never the
// other way round.
func TestAReadThatBeginsAsTheCallEndsLeavesItsDeadline(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var last time.Time
	begun, ended := make(chan struct{}), make(chan struct{})
	u := &upload{body: strings.NewReader("a"), stall: time.Hour}
	u.deadline = func(until time.Time) error {
		if time.Until(until) > time.Minute { // the read's
			close(begun)
			select {
			case <-ended: // as it must not be: the call has ended meanwhile
			case <-time.After(50 * time.Millisecond):
			}
		}
		mu.Lock()
		defer mu.Unlock()
		last = until
		return nil
	}
	var reading sync.WaitGroup
	reading.Go(func() { _, _ = u.Read(make([]byte, 1)) })
	<-begun
	u.abandon()
	close(ended)
	reading.Wait()
	if time.Until(last) > linger {
		t.Error("the client has as long as if the call went on")
	}
}
