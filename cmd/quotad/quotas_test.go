package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A quota by the admin API, over HTTP, on one node and over two.
func TestQuotas(t *testing.T) {
	each(t, func(t *testing.T, stores []string) {
		n := start(t, stores)
		other := n
		if len(stores) > 1 {
			other = start(t, stores)
		}
		_, key := n.customer("metered", 5, map[string]any{"quotas": []any{
			map[string]any{"name": "yearly", "quota": 3, "period": "year"},
		}})
		a := n.ping(key)
		if l, r := a.header.Get("X-RateLimit-Limit"), a.header.Get("X-RateLimit-Remaining"); a.status != http.StatusOK || l != "3" || r != "2" {
			t.Errorf("the quota has least left: %d %v", a.status, a.header)
		}
		if p := a.header["Ratelimit-Policy"]; len(p) != 1 || !strings.HasPrefix(p[0], fmt.Sprintf(`"base";q=5;w=%d, "yearly";q=3;w=`, lasting)) {
			t.Errorf("RateLimit-Policy %q", p)
		}
		other.ping(key)
		n.ping(key)
		for _, node := range []*testNode{n, other} {
			a := node.check(key, "default")
			body := a.object(t)
			retry, _ := strconv.ParseInt(a.header.Get("Retry-After"), 10, 64)
			if a.status != http.StatusTooManyRequests || body["error"] != "quota_exceeded" || retry < 1 || retry > 366*86400 ||
				fmt.Sprint(body["violated-policies"]) != "[yearly]" || a.header.Get("X-RateLimit-Limit") != "3" {
				t.Errorf("%d %s %v", a.status, a.body, a.header)
			}
			if a := node.metered(http.MethodGet, "/v1/authorize/x", nil, key); a.status != http.StatusTooManyRequests || a.object(t)["error"] != "quota_exceeded" {
				t.Errorf("by forward-auth: %d %s", a.status, a.body)
			}
		}
		n.must(http.MethodPatch, "/tiers/metered", map[string]any{"quotas": []any{map[string]any{"name": "yearly", "quota": 4, "period": "year"}}})
		soon(t, "the other node sees the raise", status(http.StatusOK, func() answer { return other.ping(key) }))
		if a := n.ping(key); a.status != http.StatusTooManyRequests || a.header.Get("X-RateLimit-Limit") != "4" {
			t.Errorf("what was used stays used: %d %v", a.status, a.header)
		}
		if a := n.metered(http.MethodGet, "/v1/limits", nil, key); !strings.Contains(a.body, `"policy":"yearly","scope":"tenant","algorithm":"calendar_quota","limit":4,"remaining":0`) {
			t.Errorf("%d %s", a.status, a.body)
		}
	})
}

func TestALeakyBucketSaysHowLongToWait(t *testing.T) {
	each(t, func(t *testing.T, stores []string) {
		n := start(t, stores)
		n.tier("queue", 1, map[string]any{"algorithm": "leaky_bucket", "rate_window": 60, "max_delay_ms": 60000})
		n.tenant("queue", "queue")
		var answers []answer
		soon(t, "three calls within half a minute", func() error {
			_, key := n.key("queue")
			began := time.Now()
			answers = []answer{n.check(key, "default"), n.check(key, "default"), n.check(key, "default")}
			if took := time.Since(began); took > 30*time.Second {
				return fmt.Errorf("they took %s", took)
			}
			return nil
		})
		if a := answers[0]; a.status != http.StatusOK || a.object(t)["delay_ms"] != 0.0 || a.header.Get("X-Quotad-Delay-Ms") != "" {
			t.Errorf("%d %s %v", a.status, a.body, a.header)
		}
		a := answers[1]
		delay, _ := a.object(t)["delay_ms"].(float64)
		if a.status != http.StatusOK || delay < 30000 || delay > 60000 || a.header.Get("X-Quotad-Delay-Ms") != fmt.Sprint(delay) {
			t.Errorf("%d %s %v", a.status, a.body, a.header)
		}
		if a := answers[2]; a.status != http.StatusTooManyRequests || a.object(t)["error"] != "rate_limit_exceeded" {
			t.Errorf("%d %s", a.status, a.body)
		}
	})
}

// A day is the tenant's own, and neither that of the machine nor that of the process.
func TestTheMachinesZoneChangesNothing(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "serve", "--listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0",
		"--database=sqlite://"+filepath.Join(t.TempDir(), "q.db"))
	cmd.Env = append(os.Environ(), asProgram+"=1", "QUOTAD_ADMIN_TOKEN="+ownerToken, "TZ=Pacific/Kiritimati", "QUOTAD_SHUTDOWN_DELAY=0s", "QUOTAD_SHUTDOWN_GRACE="+patience.String())
	out := new(buffer)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	n := &testNode{t: t, stdout: out, stderr: out}
	soon(t, "it serves", func() error {
		for line := range strings.Lines(out.String()) {
			var serving struct {
				Msg, Listen string
				Admin       string `json:"admin_listen"`
			}
			if json.Unmarshal([]byte(line), &serving) == nil && serving.Msg == "serving" {
				n.api, n.admin = "http://"+serving.Listen, "http://"+serving.Admin
				return nil
			}
		}
		return errors.New("it says: " + out.String())
	})
	n.tier("daily", 5, map[string]any{"quotas": []any{map[string]any{"name": "daily", "quota": 3, "period": "day"}}})
	midnight := func(east time.Duration) string { // the next one of clocks so far east
		return strconv.FormatInt(time.Now().Add(east).Truncate(24*time.Hour).Add(24*time.Hour-east).Unix(), 10)
	}
	for zone, east := range map[string]time.Duration{"UTC": 0, "Asia/Shanghai": 8 * time.Hour, "Etc/GMT+12": -12 * time.Hour} {
		id := strings.ToLower(strings.NewReplacer("/", ".", "+", ".").Replace(zone))
		n.must(http.MethodPost, "/tenants", map[string]any{"id": id, "name": zone, "tier": "daily", "time_zone": zone})
		_, key := n.key(id)
		before := midnight(east)
		a := n.ping(key)
		if reset := a.header.Get("X-RateLimit-Reset"); a.status != http.StatusOK || reset != before && reset != midnight(east) {
			t.Errorf("%s: %d, reset %s, want %s", zone, a.status, reset, before)
		}
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
}
