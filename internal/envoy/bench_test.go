package envoy

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/admintokens"
	"github.com/quotad/quotad/internal/apikeys"
	"github.com/quotad/quotad/internal/database/databasetest"
	"github.com/quotad/quotad/internal/events"
	"github.com/quotad/quotad/internal/quota"
	"github.com/quotad/quotad/internal/ratelimit"
	"github.com/quotad/quotad/internal/tiers"
)

// bare is a server that is asked the same and answers the same bytes, without a thought.
type bare struct {
	limits    *ratelimitv3.RateLimitResponse
	authorize *authv3.CheckResponse
}

func (b *bare) ShouldRateLimit(context.Context, *ratelimitv3.RateLimitRequest) (*ratelimitv3.RateLimitResponse, error) {
	return b.limits, nil
}

func (b *bare) Check(context.Context, *authv3.CheckRequest) (*authv3.CheckResponse, error) {
	return b.authorize, nil
}

// connect returns clients of a server on a real socket.
func connect(b *testing.B, server interface{ Serve(net.Listener) error }, stop func()) (ratelimitv3.RateLimitServiceClient, authv3.AuthorizationClient) {
	b.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	go func() { _ = server.Serve(listener) }()
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = conn.Close(); stop() })
	return ratelimitv3.NewRateLimitServiceClient(conn), authv3.NewAuthorizationClient(conn)
}

// customer is a Checker on real stores, and the key of a tenant that never runs out.
func customer(b *testing.B) (*quota.Checker, string) {
	b.Helper()
	db, operator := databasetest.SQLite(b), quotad.Actor{Type: "system", Name: "test"}
	log := events.NewLog(db, events.Options{})
	store, keys := tiers.NewStore(db, log, tiers.Options{}), apikeys.NewStore(db, log, apikeys.Options{})
	tier := quotad.TierSpec{Name: "pro", RateLimit: quotad.Units(1e9), RateWindow: 3600}
	tier.SetDefaults()
	tenant := quotad.TenantSpec{ID: "acme", Name: "acme", Tier: "pro"}
	tenant.SetDefaults()
	key := quotad.KeySpec{Name: "ci"}
	key.SetDefaults()
	_, err := store.CreateTier(b.Context(), operator, tier)
	if err == nil {
		_, err = store.CreateTenant(b.Context(), operator, tenant)
	}
	made, errKey := keys.Create(b.Context(), operator, "acme", key)
	if err != nil || errKey != nil {
		b.Fatal(err, errKey)
	}
	checker := quota.New(quota.Sources{Keys: keys, Tenants: store, Tiers: store, RouteGroups: store, Tokens: admintokens.NewStore(db, log, admintokens.Options{})},
		ratelimit.NewMemory(ratelimit.MemoryOptions{}), quota.Options{Registerer: prometheus.NewRegistry()})
	return checker, made.Secret
}

// spend makes calls, some at a time, and is how long they took.
func spend(b *testing.B, calls, atOnce int, call func() error) time.Duration {
	b.Helper()
	var clients sync.WaitGroup
	begun := time.Now()
	for range atOnce {
		clients.Go(func() {
			for range calls / atOnce {
				if err := call(); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	clients.Wait()
	return time.Since(begun)
}

// BenchmarkBesideBare measures both services beside a bare unary handler that returns
// the same bytes, in turns on the same machine at the same time: x-bare is how many times
// as long a call takes.
func BenchmarkBesideBare(b *testing.B) {
	checker, key := customer(b)
	s := New(checker, Options{Registerer: prometheus.NewRegistry()})
	limits, authorize := connect(b, s, s.Close)

	ask := request(descriptor("api_key="+key, "route_group=default", "remote_address=192.0.2.1"))
	held := check("/v1/exports/7?page=2", "x-api-key: "+key, ":method: GET", ":path: /v1/exports/7?page=2", ":authority: api.example.com",
		"user-agent: curl/8.9.1", "accept: */*", "x-request-id: 6b1c1f5e-6b0c-4a43-9d6a-0a3f2c1d5e77", "x-forwarded-proto: https", "x-forwarded-for: 192.0.2.1")
	var same bare
	var err error
	if same.limits, err = limits.ShouldRateLimit(b.Context(), ask); err != nil {
		b.Fatal(err)
	}
	if same.authorize, err = authorize.Check(b.Context(), held); err != nil || same.authorize.GetOkResponse() == nil {
		b.Fatal(same.authorize, err)
	}
	plain := grpc.NewServer()
	ratelimitv3.RegisterRateLimitServiceServer(plain, &same)
	authv3.RegisterAuthorizationServer(plain, &same)
	bareLimits, bareAuthorize := connect(b, plain, plain.Stop)

	for _, service := range []struct {
		name         string
		bare, quotad func() error
		answer       proto.Message
	}{
		{"ratelimit", func() error { _, err := bareLimits.ShouldRateLimit(context.Background(), ask); return err },
			func() error { _, err := limits.ShouldRateLimit(context.Background(), ask); return err }, same.limits},
		{"extauthz", func() error { _, err := bareAuthorize.Check(context.Background(), held); return err },
			func() error { _, err := authorize.Check(context.Background(), held); return err }, same.authorize},
	} {
		for atOnce, name := range map[int]string{1: "alone", 64: "64 at once"} {
			b.Run(service.name+"/"+name, func(b *testing.B) {
				const turn = 512
				var took [2]time.Duration
				for b.Loop() {
					took[0] += spend(b, turn, atOnce, service.bare)
					took[1] += spend(b, turn, atOnce, service.quotad)
				}
				calls := float64(b.N * turn)
				b.ReportMetric(float64(took[0].Nanoseconds())/calls, "bare-ns/call")
				b.ReportMetric(float64(took[1].Nanoseconds())/calls, "quotad-ns/call")
				b.ReportMetric(float64(took[1])/float64(took[0]), "x-bare")
				b.ReportMetric(float64(proto.Size(service.answer)), "bytes")
			})
		}
	}
}
