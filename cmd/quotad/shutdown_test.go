package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/quotad/quotad/internal/database"
	"github.com/quotad/quotad/internal/ratelimit"
	"github.com/quotad/quotad/internal/testenv"
)

// A node that is told to end while calls come in: who watches its readiness never meets a broken connection, and every
// call that was answered with 200 is counted, once.
func TestShutdownUnderLoad(t *testing.T) {
	t.Parallel()
	stores := shared(t)
	endUnderLoad(t, 3, func(args ...string) *testNode { return start(t, stores, args...) }, func(to *testNode, key string, i int) (answer, error) {
		if i%2 == 0 {
			return send(testClient, http.MethodPost, to.api+"/v1/check", map[string]any{"route_group": "default"}, "X-API-Key", key)
		}
		return send(testClient, http.MethodGet, to.api+"/v1/ping", nil, "X-API-Key", key)
	}, nil)
}

// endUnderLoad has one node of two end while eight clients ask it, as often as rounds says, and sees that no call fails and
// that as many are charged as are answered with 200, and as reached counts where there is an upstream.
//
// A node ends when its delay is over, whoever still sends calls to it. Where this machine is too slow to send them
// elsewhere by then, the round shows nothing, and there is another one with a longer delay.
func endUnderLoad(t *testing.T, rounds int, begin func(args ...string) *testNode, ask func(to *testNode, key string, i int) (answer, error), reached func() int64) {
	t.Helper()
	staying := begin()
	staying.tier("wide", 1_000_000_000, map[string]any{"algorithm": "fixed_window"})
	staying.tenant("acme", "wide")
	for delay := 500 * time.Millisecond; rounds > 0; {
		_, key := staying.key("acme")
		r := underLoad{staying: staying, leaving: begin("--shutdown-delay=" + delay.String())}
		r.inService.Store(true)
		_, _ = r.staying.left(key, "default"), r.leaving.left(key, "default") // both know the key
		before := int64(0)
		if reached != nil {
			before = reached()
		}
		inTime := r.end(t, delay, func(to *testNode, i int) (answer, error) { return ask(to, key, i) })
		if !inTime {
			if delay *= 2; delay > patience {
				t.Fatalf("no client is quick enough: %v", r.faults)
			}
			continue
		}
		rounds--
		for _, fault := range r.faults {
			t.Error(fault)
		}
		admitted := r.admitted.Load()
		if charged := 1_000_000_000 - int64(staying.left(key, "default")); charged != admitted {
			t.Errorf("%d calls got 200, %d were charged", admitted, charged)
		}
		if reached != nil && reached()-before != admitted {
			t.Errorf("%d calls got 200, %d reached the upstream", admitted, reached()-before)
		}
	}
}

// underLoad is one node of two that ends while clients ask it.
type underLoad struct {
	staying, leaving *testNode
	inService        atomic.Bool  // the leaving one
	calls            sync.RWMutex // held for reading by each call
	admitted         atomic.Int64
	mu               sync.Mutex
	faults           []error
}

// end ends the node, and reports whether no call was on its way there when its delay was over.
func (r *underLoad) end(t *testing.T, delay time.Duration, ask func(to *testNode, i int) (answer, error)) (inTime bool) {
	t.Helper()
	var left time.Time
	stop := make(chan struct{})
	var clients sync.WaitGroup
	clients.Go(func() { // a balancer
		for r.inService.Load() {
			if a, err := send(testClient, http.MethodGet, r.leaving.api+"/readyz", nil); err != nil || a.status != http.StatusOK {
				r.inService.Store(false)
			}
			time.Sleep(20 * time.Millisecond)
		}
		r.calls.Lock()
		defer r.calls.Unlock()
		left = time.Now()
	})
	for range 8 {
		clients.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				if fault := r.call(i, ask); fault != nil {
					r.mu.Lock()
					defer r.mu.Unlock()
					r.faults = append(r.faults, fault)
					return
				}
			}
		})
	}
	soon(t, "calls are under way", func() error {
		r.mu.Lock()
		defer r.mu.Unlock()
		if n := r.admitted.Load(); n < 80 && len(r.faults) == 0 {
			return fmt.Errorf("%d calls", n)
		}
		return nil
	})
	told := time.Now()
	r.leaving.stop()
	close(stop)
	clients.Wait()
	return left.Before(told.Add(delay))
}

func (r *underLoad) call(i int, ask func(to *testNode, i int) (answer, error)) error {
	r.calls.RLock()
	defer r.calls.RUnlock()
	to := r.staying
	if r.inService.Load() {
		to = r.leaving
	}
	a, err := ask(to, i)
	if err != nil {
		return err
	}
	if a.status != http.StatusOK {
		return fmt.Errorf("%d %s", a.status, a.body)
	}
	r.admitted.Add(1)
	return nil
}

// The last use of a key that was in memory only is in the database afterwards.
func TestShutdownWritesLastUses(t *testing.T) {
	each(t, func(t *testing.T, stores []string) {
		first := start(t, stores)
		first.tier("ten", 10, nil)
		first.tenant("acme", "ten")
		var id string
		soon(t, "a use is in memory only", func() error {
			var key string
			id, key = first.key("acme")
			first.ping(key)
			if used := first.must(http.MethodGet, "/keys/"+id, nil)["last_used_at"]; used != nil {
				return fmt.Errorf("it is written already: %v", used)
			}
			return nil
		})
		first.stop()
		if used := start(t, stores).must(http.MethodGet, "/keys/"+id, nil)["last_used_at"]; used == nil {
			t.Error("the last use was not written")
		}
	})
}

// Once readiness fails, calls are still answered, and each answer sends the client elsewhere for its next one.
func TestDraining(t *testing.T) {
	t.Parallel()
	n := start(t, embedded(t), "--shutdown-delay=5m")
	_, key := n.customer("acme", 10, nil)
	conn, err := net.Dial("tcp", strings.TrimPrefix(n.api, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	n.cancel()
	for _, url := range []string{n.api, n.admin} {
		soon(t, "readiness fails", func() error {
			a, err := send(testClient, http.MethodGet, url+"/readyz", nil)
			if err != nil || a.status != http.StatusServiceUnavailable || !strings.Contains(a.body, "shutting down") {
				return fmt.Errorf("%d %s %v", a.status, a.body, err)
			}
			return nil
		})
	}
	if _, err := fmt.Fprintf(conn, "GET /v1/ping HTTP/1.1\r\nHost: x\r\nX-API-Key: %s\r\n\r\n", key); err != nil {
		t.Fatal(err)
	}
	raw, err := io.ReadAll(conn) // until the server closes
	if err != nil || !strings.HasPrefix(string(raw), "HTTP/1.1 200 ") || !strings.Contains(string(raw), "\r\nConnection: close\r\n") {
		t.Errorf("a call while the node drains: %q %v", raw, err)
	}
	n.hurry()
}

// hang begins a check and never ends its body.
func hang(t *testing.T, n *testNode) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(n.api, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if _, err := io.WriteString(conn, "POST /v1/check HTTP/1.1\r\nHost: x\r\nX-API-Key: qk_0\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"); err != nil {
		t.Fatal(err)
	}
	soon(t, "the call is in flight", func() error {
		metrics, err := send(testClient, http.MethodGet, n.admin+"/metrics", nil)
		if err != nil || !strings.Contains(metrics.body, `quotad_http_in_flight{listener="metered"} 1`) {
			return fmt.Errorf("%v", err)
		}
		return nil
	})
	return conn
}

func TestShutdownCutShort(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		args  []string
		hurry bool
	}{
		"by a second signal":       {[]string{"--shutdown-delay=1m", "--shutdown-grace=1m"}, true},
		"by the end of the grace":  {[]string{"--shutdown-grace=1s"}, false},
		"by a signal in the grace": {[]string{"--shutdown-grace=1m"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := start(t, embedded(t), c.args...)
			hang(t, n) // for no longer than 15 s: then the server has enough of it
			n.cancel()
			if c.hurry {
				time.Sleep(100 * time.Millisecond)
				n.hurry()
			}
			<-n.done
			if n.code != exitFailed || !strings.Contains(n.stderr.String(), `"msg":"shutdown was cut short","calls":1,`) ||
				!strings.Contains(n.stderr.String(), "the shutdown was cut short: 1 calls were cut off") {
				t.Errorf("exit code %d\n%s", n.code, n.stderr)
			}
		})
	}
}

// A call in flight is answered before the node ends.
func TestShutdownWaitsForCalls(t *testing.T) {
	t.Parallel()
	n := start(t, embedded(t))
	conn := hang(t, n)
	n.cancel()
	soon(t, "readiness fails or nobody listens", func() error {
		if a, err := send(testClient, http.MethodGet, n.api+"/readyz", nil); err == nil && a.status == http.StatusOK {
			return errors.New("it says: " + a.body)
		}
		return nil
	})
	if _, err := io.WriteString(conn, fmt.Sprintf("%-99s", `"route_group":"default"}`)); err != nil {
		t.Fatal(err)
	}
	raw, err := io.ReadAll(conn)
	if err != nil || !strings.HasPrefix(string(raw), "HTTP/1.1 401 ") {
		t.Errorf("the call in flight: %q %v", raw, err)
	}
	n.stop()
}

// A listener that is lost ends the node, which says so.
func TestAPartFails(t *testing.T) {
	t.Parallel()
	config, err := loadServe(t, []string{"--listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0"}, embedded(t), "")
	if err != nil {
		t.Fatal(err)
	}
	n, err := open(t.Context(), config, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := n.metered.Listener.Close(); err != nil {
		t.Fatal(err)
	}
	if err := n.run(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "use of closed network connection") {
		t.Errorf("the node ended with %v", err)
	}
}

// Not parallel: nothing else runs meanwhile whose goroutines could be taken for the node's.
func TestNothingIsLeftRunning(t *testing.T) {
	redis, url := testenv.OwnRedis(t), testenv.Postgres(t)
	for name, stores := range map[string][]string{
		"sqlite and memory":  embedded(t),
		"postgres and redis": {"QUOTAD_DATABASE_URL=" + url, "QUOTAD_REDIS_URL=" + redis.URL()},
	} {
		t.Run(name, func(t *testing.T) {
			testClient.CloseIdleConnections()
			before := goleak.IgnoreCurrent()
			n := start(t, stores)
			_, key := n.customer("acme", 10, nil)
			for range 20 {
				n.ping(key)
			}
			n.stop()
			testClient.CloseIdleConnections()
			soon(t, "nothing runs", func() error { return goleak.Find(before) })
		})
	}
	db, err := database.OpenDirect(url)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	soon(t, "Postgres has no connection left", func() error {
		return oneRow(query(t, db, "SELECT application_name, query FROM pg_stat_activity WHERE datname = current_database()"))
	})
	client, err := ratelimit.Connect(redis.URL(), ratelimit.ConnectOptions{PoolSize: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	soon(t, "Redis has no connection left", func() error {
		return oneRow(strings.Split(strings.TrimSpace(client.ClientList(t.Context()).Val()), "\n"))
	})
}

// oneRow is nil for the one connection that asks.
func oneRow(rows []string) error {
	if len(rows) != 1 {
		return fmt.Errorf("%d connections: %s", len(rows), strings.Join(rows, "; "))
	}
	return nil
}
