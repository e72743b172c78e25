package main

import (
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/quotad/quotad/internal/database"
	"github.com/quotad/quotad/internal/secret"
	"github.com/quotad/quotad/internal/testenv"
)

// metric returns the value of one series.
func (n *testNode) metric(series string) float64 {
	n.t.Helper()
	a, err := send(testClient, http.MethodGet, n.admin+"/metrics", nil)
	if err != nil {
		n.t.Fatal(err)
	}
	found := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(series) + ` (\S+)$`).FindStringSubmatch(a.body)
	if found == nil {
		n.t.Fatalf("there is no series %s", series)
	}
	value, err := strconv.ParseFloat(found[1], 64)
	if err != nil {
		n.t.Fatal(err)
	}
	return value
}

// Every option reaches what it is about. Those that other tests depend on (addresses, stores, tokens, the failure policy,
// shutdown) are not here.
func TestOptionsTakeEffect(t *testing.T) {
	t.Parallel()

	t.Run("ietf-headers", func(t *testing.T) {
		t.Parallel()
		for value, want := range map[string]bool{"true": true, "false": false} {
			n := start(t, embedded(t), "--ietf-headers="+value)
			_, key := n.customer("acme", 10, nil)
			header := n.ping(key).header
			for _, name := range []string{"RateLimit", "RateLimit-Policy"} {
				if got := header.Get(name) != ""; got != want {
					t.Errorf("with %s: %s is %q", value, name, header.Get(name))
				}
			}
		}
	})

	t.Run("cors-origins", func(t *testing.T) {
		t.Parallel()
		n := start(t, embedded(t), "--cors-origins=https://app.example.com")
		_, key := n.customer("acme", 10, nil)
		for origin, want := range map[string]string{"https://app.example.com": "https://app.example.com", "https://evil.example.com": ""} {
			a, err := send(testClient, http.MethodGet, n.api+"/v1/ping", nil, "X-API-Key", key, "Origin", origin)
			if got := a.header.Get("Access-Control-Allow-Origin"); err != nil || got != want {
				t.Errorf("for %s: %q, want %q (%v)", origin, got, want, err)
			}
		}
	})

	// Who may say where a call came from, on both listeners, and what counts as one caller then.
	t.Run("trusted-proxies and ipv6-prefix", func(t *testing.T) {
		t.Parallel()
		for _, c := range []struct {
			args []string
			want string
		}{
			{nil, "[200 429 429 429]"}, // all from one address, whatever the header says
			{[]string{"--trusted-proxies=127.0.0.0/8"}, "[200 429 200 200]"},
			{[]string{"--trusted-proxies=127.0.0.1", "--ipv6-prefix=48"}, "[200 429 429 200]"},
			{[]string{"--trusted-proxies=127.0.0.1", "--ipv6-prefix=128"}, "[200 200 200 200]"},
		} {
			n := start(t, embedded(t), c.args...)
			n.must(http.MethodPost, "/route-groups", map[string]any{"name": "login", "match": []string{"POST /login"}, "auth": "none",
				"limits": []any{map[string]any{"name": "attempts", "scope": "ip", "rate_limit": 1, "rate_window": lasting}}})
			var got []int
			for _, from := range []string{"2001:db8:1:2::1", "2001:db8:1:2::2", "2001:db8:1:3::1", "2001:db8:2:2::1"} {
				a, err := send(testClient, http.MethodPost, n.api+"/v1/authorize/login", nil, "X-Forwarded-For", from)
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, a.status)
			}
			if fmt.Sprint(got) != c.want {
				t.Errorf("with %v: %v, want %s", c.args, got, c.want)
			}
			if _, err := send(testClient, http.MethodGet, n.admin+"/admin/v1/tiers", nil, "X-Forwarded-For", "192.0.2.7"); err != nil {
				t.Fatal(err)
			}
			n.stop()
			if trusts := len(c.args) > 0; trusts != strings.Contains(n.stderr.String(), `"address":"192.0.2.7"`) {
				t.Errorf("with %v the admin listener logs\n%s", c.args, n.stderr)
			}
		}
	})

	t.Run("ip-limit and failed-key-limit", func(t *testing.T) {
		t.Parallel()
		for _, c := range []struct{ calls, failures, want string }{
			{"off", "", "[401 401 401 401] [200 200 200 200]"},
			{"6/86400", "", "[401 429 429 429] [200 200 429 429]"},
			{"6/86400", "3/86400", "[401 401 401 429] [200 200 429 429]"},
			{"6/86400", "off", "[401 401 401 401] [200 200 429 429]"},
			{"off", "2/86400", "[401 401 429 429] [200 200 200 200]"},
		} {
			args := []string{"--ip-limit=" + c.calls}
			if c.failures != "" {
				args = append(args, "--failed-key-limit="+c.failures)
			}
			n := start(t, embedded(t), args...)
			_, key := n.customer("acme", 100, nil)
			var bad, good []int
			for range 4 {
				bad = append(bad, n.ping("junk").status)
			}
			for range 4 {
				good = append(good, n.ping(key).status)
			}
			if got := fmt.Sprint(bad, good); got != c.want {
				t.Errorf("with %v: failed keys get %s, want %s", args, got, c.want)
			}
		}
	})

	t.Run("memory-counters", func(t *testing.T) {
		t.Parallel()
		n := start(t, embedded(t), "--memory-counters=256")
		n.tier("wide", 1000, map[string]any{"limits": []any{map[string]any{"name": "each", "scope": "subject", "rate_limit": 10, "rate_window": lasting}}})
		n.tenant("acme", "wide")
		_, key := n.key("acme")
		for i := range 600 {
			n.metered(http.MethodPost, "/v1/check", map[string]any{"route_group": "default", "subject": fmt.Sprint(i)}, key)
		}
		// They are spread by chance, so that some places are free yet.
		if got := n.metric("quotad_memory_counters"); got < 128 || got > 256 {
			t.Errorf("%v counters are kept, want at most 256 and most of them", got)
		}
		if got := n.metric("quotad_memory_counters_evicted_total"); got < 600-256 || got > 600 {
			t.Errorf("%v counters gave way, want those of 600 that are not kept", got)
		}
	})

	t.Run("cache-size, unknown-cache-size and unknown-cache-ttl", func(t *testing.T) {
		t.Parallel()
		n := start(t, embedded(t), "--cache-size=2", "--unknown-cache-size=3", "--unknown-cache-ttl=100ms")
		n.tier("ten", 10, nil)
		n.tenant("acme", "ten")
		var keys []string
		for range 5 {
			_, key := n.key("acme")
			unknown, _ := secret.Mint(secret.APIKey, time.Now())
			keys = append(keys, key, unknown.Reveal())
		}
		// That a key was made is told twice, and what is told of a key is forgotten: so more than once.
		soon(t, "what is remembered", func() error {
			for _, key := range keys {
				n.ping(key)
			}
			known, unknown := n.metric(`quotad_cache_entries{cache="keys"}`), n.metric(`quotad_cache_entries{cache="unknown_keys"}`)
			if known != 2 || unknown != 3 {
				return fmt.Errorf("%v keys and %v unknown ones, want 2 and 3", known, unknown)
			}
			return nil
		})
		// Within the time that is the default. A try in which the machine took longer shows nothing.
		soon(t, "an unknown key is asked for again", func() error {
			unknown, _ := secret.Mint(secret.APIKey, time.Now())
			began := time.Now()
			n.ping(unknown.Reveal())
			before := n.metric(`quotad_cache_requests_total{cache="keys",outcome="miss"}`)
			time.Sleep(100 * time.Millisecond)
			n.ping(unknown.Reveal())
			again := n.metric(`quotad_cache_requests_total{cache="keys",outcome="miss"}`) > before
			if took := time.Since(began); !again || took >= 2*time.Second {
				return fmt.Errorf("asked for again: %t, after %s", again, took)
			}
			return nil
		})
	})

	t.Run("cache-ttl", func(t *testing.T) {
		t.Parallel()
		n := start(t, embedded(t), "--cache-ttl=1s")
		_, key := n.customer("acme", 1000, nil)
		n.ping(key)
		// What is told of the key makes it asked for again as well, but not so often.
		soon(t, "a key that was idle is asked for again each time", func() error {
			time.Sleep(1100 * time.Millisecond)
			n.ping(key)
			misses := n.metric(`quotad_cache_requests_total{cache="keys",outcome="miss"}`)
			late := n.metric(`quotad_cache_requests_total{cache="keys",outcome="stale"}`) // on a slow machine
			if misses+late < 4 {
				return fmt.Errorf("%v misses, %v answers of before", misses, late)
			}
			return nil
		})
	})

	t.Run("store-budget", func(t *testing.T) {
		t.Parallel()
		redis := testenv.OwnRedis(t)
		n := start(t, append(embedded(t), "QUOTAD_REDIS_URL="+redis.URL(), "QUOTAD_STORE_BUDGET=1500ms"))
		_, key := n.customer("acme", 1000, nil)
		n.ping(key)
		redis.Freeze()
		began := time.Now()
		n.ping(key)
		if took := time.Since(began); took < time.Second {
			t.Errorf("a call on a frozen Redis took %s", took)
		}
		redis.Resume()
	})

	t.Run("database-direct", func(t *testing.T) {
		t.Parallel()
		url := testenv.Postgres(t)
		named := func(name string) string {
			if strings.Contains(url, "?") {
				return url + "&application_name=" + name
			}
			return url + "?application_name=" + name
		}
		n := start(t, []string{"QUOTAD_DATABASE_URL=" + named("pooled"), "QUOTAD_DATABASE_DIRECT_URL=" + named("direct")})
		n.tier("ten", 10, nil)
		db, err := database.OpenDirect(url)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		soon(t, "one connection listens, past the pooler", func() error {
			listens := query(t, db, "SELECT query FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'direct'")
			pooled := query(t, db, "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'pooled'")
			if len(listens) != 1 || len(pooled) == 0 {
				return fmt.Errorf("direct: %q, pooled: %d", listens, len(pooled))
			}
			return nil
		})
	})

	t.Run("log-level and log-format", func(t *testing.T) {
		t.Parallel()
		n := start(t, embedded(t), "--log-format=text", "--log-level=info")
		n.stop()
		if got := n.stderr.String(); !strings.Contains(got, "level=INFO msg=serving") {
			t.Errorf("the log is\n%s", got)
		}
		quiet := start(t, embedded(t), "--log-level=error")
		quiet.stop()
		if got := quiet.stderr.String(); got != "" {
			t.Errorf("the log is\n%s", got)
		}
	})
}
