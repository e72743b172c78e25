package main

import (
	"fmt"
	"math"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/quotad/quotad/internal/testenv"
)

// testEnvoy is a node with its gRPC listener open, and Envoy's clients of it.
type testEnvoy struct {
	*testNode
	limits    ratelimitv3.RateLimitServiceClient
	authorize authv3.AuthorizationClient
	health    healthv1.HealthClient
}

func startEnvoy(t testing.TB, stores []string, args ...string) *testEnvoy {
	t.Helper()
	n := start(t, stores, append(args, "--grpc-listen=127.0.0.1:0")...)
	conn := n.dial()
	return &testEnvoy{n, ratelimitv3.NewRateLimitServiceClient(conn), authv3.NewAuthorizationClient(conn), healthv1.NewHealthClient(conn)}
}

// should asks the rate limit service about descriptors and returns codes and units left, such as "OK: OK 9, OVER_LIMIT 0".
func (e *testEnvoy) should(hits uint32, descriptors ...*commonv3.RateLimitDescriptor) string {
	e.t.Helper()
	r, err := e.limits.ShouldRateLimit(deadline(e.t), &ratelimitv3.RateLimitRequest{Domain: "d", HitsAddend: hits, Descriptors: descriptors})
	if err != nil {
		return grpcstatus.Code(err).String()
	}
	var each []string
	for _, s := range r.GetStatuses() {
		each = append(each, fmt.Sprintf("%s %d", s.GetCode(), s.GetLimitRemaining()))
	}
	return r.GetOverallCode().String() + ": " + strings.Join(each, ", ")
}

// may asks ext_authz about a GET and returns the status.
func (e *testEnvoy) may(key, path string, extensions map[string]string) string {
	e.t.Helper()
	r, err := e.authorize.Check(deadline(e.t), checkRequest("GET", path, []string{"x-api-key: " + key}, false, extensions))
	switch {
	case err != nil:
		return grpcstatus.Code(err).String()
	case r.GetOkResponse() != nil:
		return "200"
	}
	return fmt.Sprint(int(r.GetDeniedResponse().GetStatus().GetCode()))
}

func hitting(d *commonv3.RateLimitDescriptor, hits uint64) *commonv3.RateLimitDescriptor {
	d.HitsAddend = wrapperspb.UInt64(hits)
	return d
}

// Hits as Envoy means them, and descriptors in their order.
func TestEnvoysHits(t *testing.T) {
	each(t, func(t *testing.T, stores []string) {
		e := startEnvoy(t, stores)
		_, key := e.customer("acme", 10, nil)
		d := func() *commonv3.RateLimitDescriptor { return descriptor("api_key", key) }
		for i, c := range []struct {
			hits uint32
			list []*commonv3.RateLimitDescriptor
			want string
		}{
			{0, []*commonv3.RateLimitDescriptor{d()}, "OK: OK 9"},
			{0, []*commonv3.RateLimitDescriptor{d()}, "OK: OK 8"},
			{3, []*commonv3.RateLimitDescriptor{d()}, "OK: OK 5"},
			{5, []*commonv3.RateLimitDescriptor{hitting(d(), 2)}, "OK: OK 3"},
			{math.MaxUint32, []*commonv3.RateLimitDescriptor{d()}, "OVER_LIMIT: OVER_LIMIT 3"},
			{0, []*commonv3.RateLimitDescriptor{hitting(d(), math.MaxUint64)}, "OVER_LIMIT: OVER_LIMIT 3"},
			{0, []*commonv3.RateLimitDescriptor{hitting(d(), 1<<53-1)}, "OVER_LIMIT: OVER_LIMIT 3"},
			{7, []*commonv3.RateLimitDescriptor{hitting(d(), 0)}, "OK: OK 3"},
			{0, []*commonv3.RateLimitDescriptor{descriptor("generic_key", "x")}, "OK: OK 0"},
			{0, []*commonv3.RateLimitDescriptor{descriptor("generic_key", "x"), d(), descriptor("remote_address", "::1")}, "OK: OK 0, OK 2, OK 0"},
			{0, []*commonv3.RateLimitDescriptor{hitting(d(), 3), descriptor("generic_key", "x")}, "OVER_LIMIT: OVER_LIMIT 2, OK 0"},
			{0, nil, "InvalidArgument"},
			{0, []*commonv3.RateLimitDescriptor{{}}, "InvalidArgument"},
			{2, []*commonv3.RateLimitDescriptor{d()}, "OK: OK 0"},
			{0, []*commonv3.RateLimitDescriptor{d()}, "OVER_LIMIT: OVER_LIMIT 0"},
			{0, []*commonv3.RateLimitDescriptor{hitting(d(), 0)}, "OK: OK 0"},
		} {
			if got := e.should(c.hits, c.list...); got != c.want {
				t.Errorf("request %d: %s, want %s", i+1, got, c.want)
			}
		}
		if _, err := e.limits.ShouldRateLimit(deadline(t), &ratelimitv3.RateLimitRequest{Descriptors: []*commonv3.RateLimitDescriptor{d()}}); grpcstatus.Code(err) != codes.InvalidArgument {
			t.Errorf("without a domain: %v", err)
		}
		metrics, err := send(testClient, http.MethodGet, e.admin+"/metrics", nil)
		if err != nil || !strings.Contains(metrics.body, "quotad_grpc_unknown_descriptors_total 4\n") ||
			!strings.Contains(metrics.body, `quotad_decisions_total{door="ratelimit",reason="rate_limit_exceeded",result="deny"} 2`) {
			t.Errorf("metrics: %v\n%s", err, metrics.body)
		}
	})
}

// Descriptors of one request: all are charged, or none is; a quota that they share counts the request once.
func TestEnvoysDescriptorsAreOneRequest(t *testing.T) {
	each(t, func(t *testing.T, stores []string) {
		e := startEnvoy(t, stores)
		e.must(http.MethodPost, "/route-groups", map[string]any{"name": "narrow", "match": []string{"GET /narrow"}})
		_, key := e.customer("acme", 10, map[string]any{
			"limits": []any{map[string]any{"name": "narrow", "route_group": "narrow", "scope": "key", "rate_limit": 2, "rate_window": lasting}},
			"quotas": []any{map[string]any{"name": "yearly", "route_group": "*", "scope": "tenant", "quota": 100, "period": "year"}},
		})
		wide := func() *commonv3.RateLimitDescriptor { return descriptor("api_key", key) }
		narrow := func() *commonv3.RateLimitDescriptor { return descriptor("api_key", key, "route_group", "narrow") }
		for i, want := range []string{"OK: OK 9, OK 1", "OK: OK 8, OK 0", "OVER_LIMIT: OK 8, OVER_LIMIT 0", "OVER_LIMIT: OK 8, OVER_LIMIT 0"} {
			if got := e.should(0, wide(), narrow()); got != want {
				t.Errorf("request %d: %s, want %s", i+1, got, want)
			}
		}
		// Of different costs.
		if got := e.should(0, hitting(wide(), 3), hitting(narrow(), 1)); got != "OVER_LIMIT: OK 8, OVER_LIMIT 0" {
			t.Errorf("of different costs: %s", got)
		}
		if got := e.should(0, wide(), hitting(narrow(), 0)); got != "OK: OK 7, OK 0" {
			t.Errorf("with a peek: %s", got)
		}
		// With a key that does not work.
		if got := e.should(0, wide(), descriptor("api_key", "qk_junk")); got != "OVER_LIMIT: OK 7, OVER_LIMIT 0" {
			t.Errorf("with a key that does not work: %s", got)
		}
		limits := e.metered(http.MethodGet, "/v1/limits?route_group=default", nil, key)
		if !strings.Contains(limits.body, `"policy":"yearly"`) || !strings.Contains(limits.body, `"limit":100,"remaining":97,`) {
			t.Errorf("three requests passed, and the quota stands at %s", limits.body)
		}
		// At once: never more than there is, of either.
		_, other := e.key("acme")
		var passed atomic.Int64
		var clients sync.WaitGroup
		for range 20 {
			clients.Go(func() {
				if strings.HasPrefix(e.should(0, descriptor("api_key", other), descriptor("api_key", other, "route_group", "narrow")), "OK:") {
					passed.Add(1)
				}
			})
		}
		clients.Wait()
		if got := e.should(0, hitting(descriptor("api_key", other), 0)); passed.Load() != 2 || got != "OK: OK 8" {
			t.Errorf("%d of 20 requests passed at once, then %s", passed.Load(), got)
		}
	})
}

// Who may name tenants.
func TestEnvoyNamesATenant(t *testing.T) {
	t.Parallel()
	stores := embedded(t)
	acme := func() *commonv3.RateLimitDescriptor {
		return descriptor("tenant", "acme", "remote_address", "192.0.2.1")
	}
	t.Run("by a service token", func(t *testing.T) {
		e := startEnvoy(t, stores)
		e.customer("acme", 10, nil)
		token := e.must(http.MethodPost, "/admin-tokens", map[string]any{"name": "envoy", "role": "service"})["secret"].(string)
		if got := e.should(0, acme()); got != "PermissionDenied" {
			t.Errorf("without: %s", got)
		}
		for presented, want := range map[string]string{
			token: "", "qa_junk": "Unauthenticated", ownerToken: "Unauthenticated",
		} {
			ctx := metadata.AppendToOutgoingContext(deadline(t), "authorization", "Bearer "+presented)
			r, err := e.limits.ShouldRateLimit(ctx, &ratelimitv3.RateLimitRequest{Domain: "d", Descriptors: []*commonv3.RateLimitDescriptor{acme()}})
			if want != "" && grpcstatus.Code(err).String() != want || want == "" && r.GetStatuses()[0].GetLimitRemaining() != 9 {
				t.Errorf("with a token: %v, %v; want %q", r, err, want)
			}
		}
		if strings.Contains(e.stderr.String(), token) {
			t.Error("the token is in the log")
		}
		e.stop()
	})
	t.Run("because the network is trusted", func(t *testing.T) {
		e := startEnvoy(t, stores, "--grpc-trust=tenants")
		if got := e.should(0, acme()); got != "OK: OK 9" {
			t.Errorf("got %s", got)
		}
		if !strings.Contains(e.stderr.String(), `"msg":"whoever reaches the gRPC listener`) {
			t.Error("the operator is not warned")
		}
		if got := e.should(0, descriptor("tenant", "nobody")); got != "OVER_LIMIT: OVER_LIMIT 0" {
			t.Errorf("a tenant that there is not: %s", got)
		}
		e.stop()
	})
	t.Run("or nobody gets anything", func(t *testing.T) {
		e := startEnvoy(t, stores, "--grpc-trust=none")
		_, key := e.key("acme")
		if got := e.should(0, descriptor("api_key", key)); got != "Unauthenticated" {
			t.Errorf("the rate limit service: %s", got)
		}
		if got := e.may(key, "/", nil); got != "Unauthenticated" {
			t.Errorf("ext_authz: %s", got)
		}
		if _, err := e.health.Check(deadline(t), &healthv1.HealthCheckRequest{}); err != nil {
			t.Errorf("health: %v", err)
		}
	})
}

// Keys as nobody should send them: refused, with nothing asked of a store.
func TestEnvoyPassesOnOddKeys(t *testing.T) {
	each(t, func(t *testing.T, stores []string) {
		e := startEnvoy(t, stores)
		e.customer("acme", 10, nil)
		for name, key := range map[string]string{
			"nothing": "", "one byte": "q", "8 kB": strings.Repeat("x", 8<<10), "100 kB": strings.Repeat("x", 100<<10),
			"not ASCII": "qk_\u0080ÿ", "a tab": "qk_a\tb", "a zero": "qk_\x00",
		} {
			if got := e.may(key, "/", nil); got != "401" {
				t.Errorf("ext_authz, %s: %s", name, got)
			}
			if got := e.should(0, descriptor("api_key", key)); got != "OVER_LIMIT: OVER_LIMIT 0" {
				t.Errorf("the rate limit service, %s: %s", name, got)
			}
		}
		metrics, err := send(testClient, http.MethodGet, e.admin+"/metrics", nil)
		if err != nil || !strings.Contains(metrics.body, `quotad_cache_requests_total{cache="keys",outcome="miss"} 0`) {
			t.Errorf("a store was asked: %v", err)
		}
	})
}

// A cost in context_extensions as an operator might get it wrong: 400, and nothing is counted.
func TestEnvoyNamesOddCosts(t *testing.T) {
	each(t, func(t *testing.T, stores []string) {
		e := startEnvoy(t, stores)
		_, key := e.customer("acme", 10, nil)
		for _, cost := range []string{"-1", "-0", "0.5", "1e3", "NaN", " 3", "+3", "99999999999999999999", "", "1,2", "11", "٣"} {
			if got := e.may(key, "/", map[string]string{"cost": cost}); got != "400" {
				t.Errorf("%q: %s", cost, got)
			}
		}
		for _, c := range [][2]string{{"10", "200"}, {"0", "200"}, {"1", "429"}} {
			if got := e.may(key, "/", map[string]string{"cost": c[0]}); got != c[1] {
				t.Errorf("%q: %s, want %s", c[0], got, c[1])
			}
		}
	})
}

// Each policy answers as it says while Redis is away; what no policy answers is an error of gRPC, on which Envoy's own
// failure mode decides, and 503 at ext_authz.
func TestEnvoyWhileRedisIsAway(t *testing.T) {
	t.Parallel()
	for _, fault := range []string{"stopped", "frozen"} {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			redis := testenv.OwnRedis(t)
			e := startEnvoy(t, []string{"QUOTAD_DATABASE_URL=" + testenv.Postgres(t), "QUOTAD_REDIS_URL=" + redis.URL()})
			keys := map[string]string{}
			for _, policy := range []string{"open", "closed", "local"} {
				_, keys[policy] = e.customer(policy, 3, map[string]any{"on_store_failure": policy})
				if got := e.should(0, descriptor("api_key", keys[policy])); got != "OK: OK 2" {
					t.Fatalf("%s, before: %s", policy, got)
				}
			}
			away, back := redis.Stop, redis.Start
			if fault == "frozen" {
				away, back = redis.Freeze, redis.Resume
			}
			away()
			var policies sync.WaitGroup // at once: they wait for the budget together
			for policy, want := range map[string]string{
				"open":   "[OK: OK 3 200 OK: OK 3 200 OK: OK 3 200]",
				"closed": "[Unavailable 503 Unavailable 503 Unavailable 503]",
				"local":  "[OK: OK 2 200 OK: OK 0 429 OVER_LIMIT: OVER_LIMIT 0 429]",
			} {
				policies.Go(func() {
					var got []string
					for range 3 {
						got = append(got, e.should(0, descriptor("api_key", keys[policy])), e.may(keys[policy], "/", nil))
					}
					if fmt.Sprint(got) != want {
						t.Errorf("%s: %v, want %s", policy, got, want)
					}
				})
			}
			policies.Wait()
			if got := e.should(0, descriptor("api_key", keys["closed"]), descriptor("api_key", keys["local"])); got != "Unavailable" {
				t.Errorf("two descriptors: %s", got)
			}
			back()
			soon(t, "the counters of before go on", func() error {
				// What a frozen Redis was sent it may charge when it goes on.
				got := e.should(0, hitting(descriptor("api_key", keys["closed"]), 0))
				if got != "OK: OK 2" && (fault == "stopped" || !strings.HasPrefix(got, "OK: OK ")) {
					return fmt.Errorf("%s", got)
				}
				return nil
			})
		})
	}
}

// A key that is not known while the database is away is nobody's yet: an error and 503, never a refusal of the key.
func TestEnvoyWhileTheDatabaseIsAway(t *testing.T) {
	t.Parallel()
	database := testenv.OwnPostgres(t)
	stores := []string{"QUOTAD_DATABASE_URL=" + database.URL()}
	maker := start(t, stores) // whose notices are over when the other node begins to remember
	_, warm := maker.customer("acme", 10, nil)
	_, cold := maker.key("acme")
	maker.stop()
	e := startEnvoy(t, stores)
	if got := e.should(0, descriptor("api_key", warm)); got != "OK: OK 9" {
		t.Fatalf("before: %s", got)
	}
	database.Stop()
	if got := e.should(0, descriptor("api_key", warm)); got != "OK: OK 8" {
		t.Errorf("a known key: %s", got)
	}
	if got := e.should(0, descriptor("api_key", cold)); got != "Unavailable" {
		t.Errorf("an unknown key at the rate limit service: %s", got)
	}
	if got := e.may(cold, "/", nil); got != "503" {
		t.Errorf("an unknown key at ext_authz: %s", got)
	}
}

// A node that is told to end while Envoy asks: every answer that arrived is counted, once, and nothing else is.
func TestShutdownWhileEnvoyAsks(t *testing.T) {
	t.Parallel()
	stores := shared(t)
	staying := start(t, stores)
	_, key := staying.customer("acme", 1_000_000_000, map[string]any{"algorithm": "fixed_window"})
	var admitted atomic.Int64
	for round := range 3 {
		const delay = 200 * time.Millisecond // in which no call may fail
		leaving := startEnvoy(t, stores, "--shutdown-delay="+delay.String())
		_ = leaving.left(key, "default") // it knows the key
		watch, err := leaving.health.Watch(deadline(t), &healthv1.HealthCheckRequest{})
		if err != nil {
			t.Fatal(err)
		}
		var clients sync.WaitGroup
		clients.Go(func() { // Envoy's own health check
			last := healthv1.HealthCheckResponse_UNKNOWN
			for {
				r, err := watch.Recv()
				if err != nil {
					break
				}
				last = r.GetStatus()
			}
			if last != healthv1.HealthCheckResponse_NOT_SERVING {
				t.Errorf("round %d: the last that is told of its health is %s", round, last)
			}
		})
		var ending atomic.Pointer[time.Time]
		before := admitted.Load()
		for i := range 8 {
			clients.Go(func() {
				for {
					got := "200"
					if i%2 == 0 {
						got = leaving.should(0, descriptor("api_key", key))
					} else {
						got = leaving.may(key, "/", nil)
					}
					switch {
					case got == "200" || strings.HasPrefix(got, "OK:"):
						admitted.Add(1)
					case got == "Unavailable" && ending.Load() != nil && time.Since(*ending.Load()) >= delay:
						return
					default:
						t.Errorf("round %d: %s", round, got)
						return
					}
				}
			})
		}
		soon(t, "calls are under way", func() error {
			if n := admitted.Load() - before; n < 80 && !t.Failed() {
				return fmt.Errorf("%d calls", n)
			}
			return nil
		})
		now := time.Now()
		ending.Store(&now)
		leaving.stop()
		clients.Wait()
	}
	limits := staying.metered(http.MethodGet, "/v1/limits", nil, key)
	if want := fmt.Sprintf(`"remaining":%d,`, 1_000_000_000-admitted.Load()); !strings.Contains(limits.body, want) {
		t.Errorf("%d calls were admitted, but %s (want %s)", admitted.Load(), limits.body, want)
	}
}

// A listener that is taken, or that another has, is refused by its name.
func TestGRPCListenIsRefused(t *testing.T) {
	t.Parallel()
	n := startEnvoy(t, embedded(t))
	taken := begin(t, embedded(t), "--grpc-listen="+n.grpc)
	<-taken.done
	if taken.code != exitFailed || !strings.Contains(taken.stderr.String(), "--grpc-listen or QUOTAD_GRPC_LISTEN") {
		t.Errorf("exit code %d\n%s", taken.code, taken.stderr)
	}
	for _, args := range [][]string{{"--grpc-listen=127.0.0.1:1", "--listen=127.0.0.1:1"}, {"--grpc-trust=all"}, {"--grpc-listen=nowhere"}} {
		refused := begin(t, embedded(t), args...)
		<-refused.done
		if refused.code != exitUsage || !strings.Contains(refused.stderr.String(), "grpc-") {
			t.Errorf("%v: exit code %d\n%s", args, refused.code, refused.stderr)
		}
	}
}
