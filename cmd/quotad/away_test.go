package main

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quotad/quotad/internal/testenv"
)

// While the database is away known keys go on, unknown ones are told to come back and not that they are invalid, and the
// admin API says what is wrong. When it is back all is as before, without a restart.
func TestDatabaseAway(t *testing.T) {
	t.Parallel()
	database := testenv.OwnPostgres(t)
	redis, prefix := testenv.Redis(t)
	stores := []string{"QUOTAD_DATABASE_URL=" + database.URL(), "QUOTAD_REDIS_URL=" + redis, "QUOTAD_REDIS_PREFIX=" + prefix}
	maker := start(t, stores) // whose notices are over when the other node begins to remember
	maker.tier("ten", 10, nil)
	maker.tenant("acme", "ten")
	_, warm := maker.key("acme")
	otherID, other := maker.key("acme")
	_, cold := maker.key("acme")
	maker.stop()
	n := start(t, append(stores, "QUOTAD_CACHE_TTL=1s"))
	_ = n.ping(other)
	if a := n.ping(warm); a.status != http.StatusOK {
		t.Fatalf("before: %d %s", a.status, a.body)
	}

	database.Stop()
	time.Sleep(1100 * time.Millisecond) // what was remembered is now past its time to live
	for i := range 9 {
		if a := n.ping(warm); a.status != http.StatusOK || a.header.Get("X-RateLimit-Remaining") != fmt.Sprint(8-i) {
			t.Errorf("a known key: %d, remaining %s, want 200 and %d", a.status, a.header.Get("X-RateLimit-Remaining"), 8-i)
		}
	}
	if a := n.ping(warm); a.status != http.StatusTooManyRequests {
		t.Errorf("a known key above its limit: %d %s", a.status, a.body)
	}
	if a := n.once(http.MethodGet, "/v1/ping", nil, cold); a.status != http.StatusServiceUnavailable || a.header.Get("Retry-After") == "" || a.object(t)["error"] != "store_unavailable" {
		t.Errorf("a key that is not known: %d, Retry-After %q, %s", a.status, a.header.Get("Retry-After"), a.body)
	}
	if a := n.operate(http.MethodGet, "/tiers", nil); a.status != http.StatusServiceUnavailable || a.header.Get("Retry-After") == "" {
		t.Errorf("the admin API: %d, Retry-After %q, %s", a.status, a.header.Get("Retry-After"), a.body)
	}
	soon(t, "readiness notes it", func() error {
		a, err := send(testClient, http.MethodGet, n.api+"/readyz", nil)
		if err != nil || a.status != http.StatusOK || !strings.Contains(a.body, "the database is unreachable") || !strings.Contains(a.body, "notices of changes do not arrive") {
			return fmt.Errorf("%d %s %v", a.status, a.body, err)
		}
		return nil
	})
	if a, err := send(testClient, http.MethodGet, n.api+"/healthz", nil); err != nil || a.status != http.StatusOK {
		t.Errorf("liveness: %d %v", a.status, err)
	}

	database.Start()
	soon(t, "the cold key works", status(http.StatusOK, func() answer { return n.ping(cold) }))
	soon(t, "readiness is without a note", func() error {
		if a, err := send(testClient, http.MethodGet, n.api+"/readyz", nil); err != nil || a.body != `{"status":"ready"}`+"\n" {
			return fmt.Errorf("%s %v", a.body, err)
		}
		return nil
	})
	n.must(http.MethodDelete, "/keys/"+otherID, nil)
	if a := n.ping(other); a.status != http.StatusUnauthorized {
		t.Errorf("a key revoked after the recovery: %d", a.status)
	}
}

// A database that is away for longer than anything is remembered leaves nothing to serve.
func TestDatabaseAwayForTooLong(t *testing.T) {
	t.Parallel()
	database := testenv.OwnPostgres(t)
	n := start(t, []string{"QUOTAD_DATABASE_URL=" + database.URL(), "QUOTAD_CACHE_TTL=1s", "QUOTAD_CACHE_STALE=1s"})
	_, key := n.customer("acme", 1000, nil)
	if a := n.ping(key); a.status != http.StatusOK {
		t.Fatalf("before: %d %s", a.status, a.body)
	}
	database.Freeze()
	soon(t, "the node is not ready", func() error {
		a, err := send(testClient, http.MethodGet, n.api+"/readyz", nil)
		if err != nil || a.status != http.StatusServiceUnavailable || !strings.Contains(a.body, "unreachable for more than 2s") {
			return fmt.Errorf("%d %s %v", a.status, a.body, err)
		}
		return nil
	})
	if a := n.once(http.MethodGet, "/v1/ping", nil, key); a.status != http.StatusServiceUnavailable {
		t.Errorf("a key past all that is remembered: %d %s", a.status, a.body)
	}
	database.Resume()
	soon(t, "it is ready again", status(http.StatusOK, func() answer {
		a, _ := send(testClient, http.MethodGet, n.api+"/readyz", nil)
		return a
	}))
}

// A Redis that is away when the node starts is noted before a call meets it.
func TestRedisAwayFromTheStart(t *testing.T) {
	t.Parallel()
	redis := testenv.OwnRedis(t)
	redis.Stop()
	n := start(t, append(embedded(t), "QUOTAD_REDIS_URL="+redis.URL()))
	soon(t, "readiness notes it", func() error {
		a, err := send(testClient, http.MethodGet, n.api+"/readyz", nil)
		if err != nil || a.status != http.StatusOK || !strings.Contains(a.body, "failure policies answer") {
			return fmt.Errorf("%d %s %v", a.status, a.body, err)
		}
		return nil
	})
}

// Each policy answers as it says while Redis is away, whether it refuses connections or hangs; then the counters of
// before go on.
func TestRedisAway(t *testing.T) {
	t.Parallel()
	for _, fault := range []string{"stopped", "frozen"} {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			redis := testenv.OwnRedis(t)
			n := start(t, []string{"QUOTAD_DATABASE_URL=" + testenv.Postgres(t), "QUOTAD_REDIS_URL=" + redis.URL()}, "--on-store-failure=closed")
			keys := map[string]string{}
			for _, policy := range []string{"open", "closed", "local"} {
				_, keys[policy] = n.customer(policy, 3, map[string]any{"on_store_failure": policy})
			}
			_, keys["default"] = n.customer("default", 3, nil)
			for policy, key := range keys {
				if a := n.ping(key); a.status != http.StatusOK || a.header.Get("X-Quotad-Degraded") != "" {
					t.Fatalf("%s, before: %d %s", policy, a.status, a.body)
				}
			}
			away, back := redis.Stop, redis.Start
			if fault == "frozen" {
				away, back = redis.Freeze, redis.Resume
			}
			away()
			var policies sync.WaitGroup // at once: they wait for the budget together
			for policy, want := range map[string]string{
				"open":    "[200 open 200 open 200 open 200 open 200 open]",
				"closed":  "[503  503  503  503  503 ]",
				"local":   "[200 local 200 local 200 local 429 local 429 local]",
				"default": "[503  503  503  503  503 ]",
			} {
				policies.Go(func() {
					var got []any
					for range 5 {
						a := n.ping(keys[policy])
						got = append(got, a.status, a.header.Get("X-Quotad-Degraded"))
						if (a.status != http.StatusOK) != (a.header.Get("Retry-After") != "") {
							t.Errorf("%s: %d with Retry-After %q", policy, a.status, a.header.Get("Retry-After"))
						}
					}
					if fmt.Sprint(got) != want {
						t.Errorf("%s: %v, want %s", policy, got, want)
					}
				})
			}
			policies.Wait()
			if a, err := send(testClient, http.MethodGet, n.api+"/readyz", nil); err != nil || a.status != http.StatusOK || !strings.Contains(a.body, "failure policies answer") {
				t.Errorf("readiness: %d %s %v", a.status, a.body, err)
			}
			metrics, err := send(testClient, http.MethodGet, n.admin+"/metrics", nil)
			if err != nil || !strings.Contains(metrics.body, "\nquotad_breaker_open 1\n") || !strings.Contains(metrics.body, `quotad_degraded_answers_total{policy="local"} 5`) {
				t.Errorf("metrics do not show it: %v", err)
			}

			back()
			soon(t, "the counters of before go on", func() error {
				// What a frozen Redis was sent it may charge when it goes on.
				a := n.metered(http.MethodPost, "/v1/check", map[string]any{"route_group": "default", "cost": 0}, keys["default"])
				left := a.header.Get("X-RateLimit-Remaining")
				if a.status != http.StatusOK || a.header.Get("X-Quotad-Degraded") != "" || left != "2" && (fault == "stopped" || left == "3") {
					return fmt.Errorf("%d %s %v", a.status, a.body, a.header)
				}
				return nil
			})
			for range 3 {
				_ = n.ping(keys["default"])
			}
			if a := n.ping(keys["default"]); a.status != http.StatusTooManyRequests || a.header.Get("X-Quotad-Degraded") != "" {
				t.Errorf("after the recovery: %d, degraded %q", a.status, a.header.Get("X-Quotad-Degraded"))
			}
		})
	}
}
