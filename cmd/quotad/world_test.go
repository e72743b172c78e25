package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quotad/quotad/internal/testenv"
)

// ownerToken is the owner's in every test that does not say otherwise.
const ownerToken = "owner-token-of-the-tests"

// patience is how long a test waits for what has to come. It is no promise of quotad's: what took longer hangs, on
// whatever machine.
const patience = 3 * time.Minute

// lasting is a window in seconds of which nothing comes back while a test runs. Windows begin at multiples of their
// length since 1970: this one is some two months long, and it is now in its midst.
var lasting = func() int {
	const day = 86400
	now := int(time.Now().Unix())
	window := 60 * day
	for now%window < window/4 || now%window > window*3/4 {
		window += day
	}
	return window
}()

// noon is a time zone in which it is about noon now: no day, and so no year, ends while a test runs.
var noon = func() string {
	switch west := time.Now().UTC().Hour() - 12; {
	case west == 0:
		return "UTC"
	default:
		return fmt.Sprintf("Etc/GMT%+d", west) // as POSIX has it: + is west
	}
}()

// each runs a test on the embedded default and on Postgres and Redis. stores is the environment that names them.
func each(t *testing.T, test func(t *testing.T, stores []string)) {
	t.Parallel()
	t.Run("sqlite and memory", func(t *testing.T) { t.Parallel(); test(t, embedded(t)) })
	t.Run("postgres and redis", func(t *testing.T) { t.Parallel(); test(t, shared(t)) })
}

func embedded(t testing.TB) []string {
	return []string{"QUOTAD_DATABASE_URL=sqlite://" + filepath.Join(t.TempDir(), "data", "quotad.db")}
}

func shared(t testing.TB) []string {
	t.Helper()
	redis, prefix := testenv.Redis(t)
	return []string{"QUOTAD_DATABASE_URL=" + testenv.Postgres(t), "QUOTAD_REDIS_URL=" + redis, "QUOTAD_REDIS_PREFIX=" + prefix}
}

// node is a running quotad.
type testNode struct {
	t          testing.TB
	api, admin string // base URLs
	gateway    string // "" without one
	grpc       string // host:port; "" without one
	stdout     *buffer
	stderr     *buffer
	cancel     context.CancelFunc // SIGTERM
	hurry      func()             // the second one
	done       chan struct{}
	code       int // once done
}

// start starts a node and waits until it serves. It is ended with the test, gracefully, and has to succeed at that.
func start(t testing.TB, stores []string, args ...string) *testNode {
	t.Helper()
	n := begin(t, stores, args...)
	select {
	case <-n.done:
		t.Fatalf("quotad serve: exit code %d\n%s", n.code, n.stderr)
	case <-n.serving:
	}
	return n.testNode
}

// beginning is a node that may come to serve.
type beginning struct {
	*testNode
	serving chan struct{}
}

func begin(t testing.TB, stores []string, args ...string) beginning {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	hurry := make(chan struct{})
	n := beginning{
		testNode: &testNode{t: t, stdout: new(buffer), stderr: new(buffer), cancel: cancel, hurry: sync.OnceFunc(func() { close(hurry) }), done: make(chan struct{})},
		serving:  make(chan struct{}),
	}
	p := program{stdout: n.stdout, stderr: n.stderr, hurry: hurry, started: func(at addresses) {
		n.api, n.admin = base(at.metered), base(at.admin)
		if at.gateway != nil {
			n.gateway = base(at.gateway)
		}
		if at.grpc != nil {
			n.grpc = at.grpc.String()
		}
		close(n.serving)
	}}
	p.environ = overlay([]string{
		"QUOTAD_LISTEN=127.0.0.1:0", "QUOTAD_ADMIN_LISTEN=127.0.0.1:0", "QUOTAD_ADMIN_TOKEN=" + ownerToken,
		"QUOTAD_LOG_LEVEL=debug", "QUOTAD_SHUTDOWN_DELAY=0s", "QUOTAD_SHUTDOWN_GRACE=" + patience.String(),
		"QUOTAD_CACHE_TTL=1h", // changes are seen because they are told of, not because what is known has aged
	}, stores)
	if slices.ContainsFunc(slices.Concat(stores, args), func(said string) bool {
		return strings.HasPrefix(said, "QUOTAD_REDIS_URL=") || strings.HasPrefix(said, "--redis=")
	}) {
		p.environ = overlay([]string{"QUOTAD_STORE_BUDGET=5s"}, p.environ) // tests share a machine, and most count calls exactly
	}
	go func() {
		defer close(n.done)
		for began := time.Now(); ; {
			n.code = p.run(ctx, append([]string{"serve"}, args...))
			if !n.cameTooEarly() || time.Since(began) > patience {
				return
			}
			n.stdout.reset()
			n.stderr.reset()
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-n.done
		if t.Failed() {
			t.Logf("log of the node:\n%s", n.stderr)
		}
	})
	return n
}

// cameTooEarly reports whether a node did not come to serve because its database was too slow for it. Whoever runs one
// starts it again then.
func (n beginning) cameTooEarly() bool {
	select {
	case <-n.serving:
		return false
	default:
		return n.code == exitFailed && strings.Contains(n.stderr.String(), "context deadline exceeded")
	}
}

// overlay is an environment with the variables of another over its own.
func overlay(environ, over []string) []string {
	named := map[string]string{}
	for _, v := range slices.Concat(environ, over) {
		name, _, _ := strings.Cut(v, "=")
		named[name] = v
	}
	return slices.Sorted(maps.Values(named))
}

// stop ends the node as SIGTERM does.
func (n *testNode) stop() {
	n.t.Helper()
	n.cancel()
	<-n.done
	if n.code != exitDone {
		n.t.Errorf("the node ended with exit code %d:\n%s", n.code, n.stderr)
	}
}

// answer is what came back.
type answer struct {
	status int
	header http.Header
	body   string
}

// object is the body as JSON.
func (a answer) object(t testing.TB) map[string]any {
	t.Helper()
	var o map[string]any
	if err := json.Unmarshal([]byte(a.body), &o); err != nil {
		t.Fatalf("not a JSON object: %d %s", a.status, a.body)
	}
	return o
}

var testClient = &http.Client{Timeout: patience, Transport: &http.Transport{MaxIdleConnsPerHost: 64}}

// send makes one request; header pairs follow the body, which may be nil.
func send(client *http.Client, method, url string, body any, header ...string) (answer, error) {
	var sent io.Reader
	if body != nil {
		raw, err := json.Marshal(body)
		if err != nil {
			return answer{}, err
		}
		sent = bytes.NewReader(raw)
	}
	req, err := http.NewRequest(method, url, sent)
	if err != nil {
		return answer{}, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := client.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	return answer{status: res.StatusCode, header: res.Header, body: string(raw)}, err
}

// ping makes a metered call with a key.
func (n *testNode) ping(key string) answer { return n.metered(http.MethodGet, "/v1/ping", nil, key) }

// check asks whether a call to a route group may be made.
func (n *testNode) check(key, group string) answer {
	return n.metered(http.MethodPost, "/v1/check", map[string]any{"route_group": group}, key)
}

// metered makes a call again where the database was too slow to say whose the key is: it was not counted.
func (n *testNode) metered(method, path string, body any, key string) answer {
	n.t.Helper()
	for began := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		a := n.once(method, path, body, key)
		if !a.tooEarly() || time.Since(began) > patience {
			return a
		}
	}
}

// once is metered where the database is away.
func (n *testNode) once(method, path string, body any, key string) answer {
	n.t.Helper()
	a, err := send(testClient, method, n.api+path, body, "X-API-Key", key)
	if err != nil {
		n.t.Errorf("%s %s: %v", method, path, err)
	}
	return a
}

// tooEarly reports whether the database did not answer in time.
func (a answer) tooEarly() bool {
	return a.status == http.StatusServiceUnavailable && strings.Contains(a.body, `"store_unavailable"`)
}

// operate asks the admin API as the owner.
func (n *testNode) operate(method, path string, body any) answer {
	n.t.Helper()
	a, err := send(testClient, method, n.admin+"/admin/v1"+path, body, "Authorization", "Bearer "+ownerToken)
	if err != nil {
		n.t.Errorf("%s %s: %v", method, path, err)
	}
	return a
}

// must asks the admin API for what has to succeed, and again where the database was too slow.
func (n *testNode) must(method, path string, body any) map[string]any {
	n.t.Helper()
	a := n.operate(method, path, body)
	for began := time.Now(); a.tooEarly() && time.Since(began) < patience; a = n.operate(method, path, body) {
		time.Sleep(100 * time.Millisecond)
	}
	if a.status >= 300 {
		n.t.Fatalf("%s %s: %d %s", method, path, a.status, a.body)
	}
	if a.body == "" {
		return nil
	}
	return a.object(n.t)
}

// tier makes a tier of rate_limit units per lasting window; more are other fields.
func (n *testNode) tier(name string, units int, more map[string]any) {
	n.t.Helper()
	tier := map[string]any{"name": name, "rate_limit": units, "rate_window": lasting}
	maps.Copy(tier, more)
	n.must(http.MethodPost, "/tiers", tier)
}

func (n *testNode) tenant(id, tier string) {
	n.t.Helper()
	n.must(http.MethodPost, "/tenants", map[string]any{"id": id, "name": "Tenant " + id, "tier": tier, "time_zone": noon})
}

// key makes a key of a tenant.
func (n *testNode) key(tenant string) (id, secret string) {
	n.t.Helper()
	key := n.must(http.MethodPost, "/tenants/"+tenant+"/keys", map[string]any{"name": "test"})
	return key["id"].(string), key["secret"].(string)
}

// customer makes a tier, a tenant of it and a key, and returns the key's id and secret.
func (n *testNode) customer(name string, units int, more map[string]any) (id, secret string) {
	n.t.Helper()
	n.tier(name, units, more)
	n.tenant(name, name)
	return n.key(name)
}

// soon waits until check returns nil, and fails with what it last returned when the patience is over.
func soon(t *testing.T, what string, check func() error) {
	t.Helper()
	began := time.Now()
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Since(began) > patience {
			t.Fatalf("%s: not within %s: %v", what, patience, err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// status is a check for soon: an answer of that status.
func status(want int, ask func() answer) func() error {
	return func() error {
		if a := ask(); a.status != want {
			return fmt.Errorf("%d %s", a.status, a.body)
		}
		return nil
	}
}

// buffer may be written and read at once.
type buffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) reset() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.b.Reset()
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
