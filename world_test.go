package quotad_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/admintokens"
	"github.com/quotad/quotad/internal/apikeys"
	"github.com/quotad/quotad/internal/database/databasetest"
	"github.com/quotad/quotad/internal/events"
	"github.com/quotad/quotad/internal/httpapi"
	"github.com/quotad/quotad/internal/quota"
	"github.com/quotad/quotad/internal/ratelimit"
	"github.com/quotad/quotad/internal/testenv"
	"github.com/quotad/quotad/internal/tiers"
)

var operator = quotad.Actor{Type: "system", Name: "test"}

// world is a quotad on a socket, with the stores that operators write through.
type world struct {
	t      testing.TB
	clock  *testenv.Clock
	tiers  *tiers.Store
	keys   *apikeys.Store
	tokens *admintokens.Store
	url    string
	asked  atomic.Int64 // requests that reached quotad
}

// newWorld returns a quotad that counts in memory, by the test's clock, with a tier
// "pro" of 10 in a fixed window of 60 s, a tenant "acme" on it, and a group "exports".
func newWorld(t testing.TB) *world {
	t.Helper()
	clock := testenv.NewClock()
	return worldOn(t, clock, ratelimit.NewMemory(ratelimit.MemoryOptions{Now: clock.Now}))
}

// redisWorld is the same over a real Redis, by whose clock it counts.
func redisWorld(t testing.TB) *world {
	t.Helper()
	url, prefix := testenv.Redis(t)
	client, err := ratelimit.Connect(url, ratelimit.ConnectOptions{Timeout: testenv.Patience})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	failover := ratelimit.NewFailover(ratelimit.NewRedis(client, ratelimit.RedisOptions{Prefix: prefix, Timeout: testenv.Patience}),
		ratelimit.NewMemory(ratelimit.MemoryOptions{}), ratelimit.FailoverOptions{Budget: testenv.Patience})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = failover.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	clock := testenv.NewClock()
	clock.Set(time.Now())
	return worldOn(t, clock, failover)
}

func worldOn(t testing.TB, clock *testenv.Clock, limiter quota.Limiter) *world {
	t.Helper()
	db := databasetest.SQLite(t)
	log := events.NewLog(db, events.Options{Now: clock.Now})
	w := &world{
		t: t, clock: clock,
		tiers:  tiers.NewStore(db, log, tiers.Options{Now: clock.Now}),
		keys:   apikeys.NewStore(db, log, apikeys.Options{Now: clock.Now}),
		tokens: admintokens.NewStore(db, log, admintokens.Options{Now: clock.Now}),
	}
	checker := quota.New(quota.Sources{Keys: w.keys, Tenants: w.tiers, Tiers: w.tiers, RouteGroups: w.tiers, Tokens: w.tokens},
		limiter, quota.Options{Now: clock.Now, LoadBudget: testenv.Patience})
	t.Cleanup(log.Subscribe(func(n events.Notice) { checker.Invalidate(n.Resource, n.ID) }, checker.Resync))
	handler := httpapi.New(checker, httpapi.Options{
		Now: clock.Now, TrustedProxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
	}).Handler()
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.asked.Add(1)
		handler.ServeHTTP(rw, r)
	}))
	t.Cleanup(server.Close)
	w.url = server.URL

	w.tier(quotad.TierSpec{Name: "pro", RateLimit: quotad.Units(10)})
	w.tenant(quotad.TenantSpec{ID: "acme", Tier: "pro"})
	w.group(quotad.RouteGroupSpec{Name: "exports", Match: []string{"POST /v1/exports", "GET /v1/exports/{id...}"}})
	return w
}

func must[V any](t testing.TB, v V, err error) V {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func (w *world) tier(spec quotad.TierSpec) {
	w.t.Helper()
	if spec.RateWindow == 0 {
		spec.RateWindow = 60
	}
	if spec.Algorithm == "" {
		spec.Algorithm = quotad.FixedWindow
	}
	spec.SetDefaults()
	created, err := w.tiers.CreateTier(w.t.Context(), operator, spec)
	must(w.t, created, err)
}

func (w *world) editTier(name string, edit func(*quotad.TierSpec)) {
	w.t.Helper()
	edited, err := w.tiers.UpdateTier(w.t.Context(), operator, name, nil, func(s *quotad.TierSpec) error { edit(s); return nil })
	must(w.t, edited, err)
}

func (w *world) tenant(spec quotad.TenantSpec) {
	w.t.Helper()
	spec.Name = spec.ID
	spec.SetDefaults()
	created, err := w.tiers.CreateTenant(w.t.Context(), operator, spec)
	must(w.t, created, err)
}

func (w *world) group(spec quotad.RouteGroupSpec) {
	w.t.Helper()
	spec.SetDefaults()
	created, err := w.tiers.CreateRouteGroup(w.t.Context(), operator, spec)
	must(w.t, created, err)
}

// key is the secret of a new key of the tenant.
func (w *world) key(tenant string, change ...func(*quotad.KeySpec)) quotad.Credential {
	w.t.Helper()
	spec := quotad.KeySpec{Name: "ci"}
	for _, f := range change {
		f(&spec)
	}
	spec.SetDefaults()
	key, err := w.keys.Create(w.t.Context(), operator, tenant, spec)
	return quotad.Credential(must(w.t, key, err).Secret)
}

// token is a new service token.
func (w *world) token() quotad.Credential {
	w.t.Helper()
	token, err := w.tokens.Create(w.t.Context(), operator, quotad.AdminTokenSpec{Name: "api", Role: quotad.RoleService})
	return quotad.Credential(must(w.t, token, err).Secret)
}

// client is a client of the world.
func (w *world) client(change ...func(*quotad.ClientOptions)) *quotad.Client {
	w.t.Helper()
	return newClient(w.t, w.url, change...)
}

func newClient(t testing.TB, url string, change ...func(*quotad.ClientOptions)) *quotad.Client {
	t.Helper()
	o := quotad.ClientOptions{Timeout: time.Minute} // the most
	for _, f := range change {
		f(&o)
	}
	c, err := quotad.NewClient(url, o)
	must(t, c, err)
	t.Cleanup(c.CloseIdleConnections)
	return c
}

// metered is a client of the world whose refusals age by its clock.
func (w *world) metered(change ...func(*quotad.ClientOptions)) *quotad.Client {
	w.t.Helper()
	return w.client(append(change, func(o *quotad.ClientOptions) { o.Now = w.clock.Now })...)
}

func byToken(token quotad.Credential) func(*quotad.ClientOptions) {
	return func(o *quotad.ClientOptions) { o.ServiceToken = token }
}

func open(o *quotad.ClientOptions) { o.OnFailure = quotad.FailOpen }

func within(d time.Duration) func(*quotad.ClientOptions) {
	return func(o *quotad.ClientOptions) { o.Timeout = d }
}

// allow and deny are questions that must be decided so.
func allow(t testing.TB, c *quotad.Client, q quotad.CheckRequest) quotad.Decision {
	t.Helper()
	d, err := c.Check(t.Context(), q)
	if err != nil || !d.Allowed {
		t.Fatalf("%+v: got %+v, %v; want it allowed", q, d, err)
	}
	return d
}

func deny(t testing.TB, c *quotad.Client, q quotad.CheckRequest) quotad.Decision {
	t.Helper()
	d, err := c.Check(t.Context(), q)
	if err != nil || d.Allowed {
		t.Fatalf("%+v: got %+v, %v; want it refused", q, d, err)
	}
	return d
}

// exports is a question about the group "exports".
func exports(key quotad.Credential) quotad.CheckRequest {
	return quotad.CheckRequest{APIKey: key, RouteGroup: "exports"}
}

func costing(q quotad.CheckRequest, units int64) quotad.CheckRequest {
	q.Cost = &units
	return q
}

// frozen is the address of a listener that accepts and never answers. It counts
// what it accepted.
func frozen(t testing.TB) (url string, accepted *atomic.Int64) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, listener, err)
	accepted = new(atomic.Int64)
	var held sync.WaitGroup
	held.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			accepted.Add(1)
			held.Go(func() {
				_, _ = io.Copy(io.Discard, conn)
				_ = conn.Close()
			})
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		held.Wait()
	})
	return "http://" + listener.Addr().String(), accepted
}

// answering is the address of a server that answers everything with the handler.
func answering(t testing.TB, handler http.HandlerFunc) string {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return server.URL
}

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

// counting dials, and counts how often.
func counting(n *atomic.Int64) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		n.Add(1)
		return new(net.Dialer).DialContext(ctx, network, address)
	}
}

// remaining is what a key has left in the group "default".
func remaining(t testing.TB, c *quotad.Client, key quotad.Credential) int64 {
	t.Helper()
	left, err := c.Limits(t.Context(), quotad.LimitsRequest{APIKey: key, RouteGroup: quotad.DefaultGroup})
	return must(t, left, err).RouteGroups[0].Limits[0].Remaining
}
