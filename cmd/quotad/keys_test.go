package main

import (
	"encoding/json"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/quotad/quotad"
)

func TestKeysCommands(t *testing.T) {
	each(t, func(t *testing.T, stores []string) {
		n := start(t, stores)
		n.tier("ten", 10, nil)
		n.tenant("acme", "ten")
		n.must(http.MethodPost, "/route-groups", map[string]any{"name": "exports"})
		environ := []string{"QUOTAD_ADMIN_URL=" + n.admin, "QUOTAD_ADMIN_TOKEN=" + ownerToken}
		run := func(args ...string) outcome {
			t.Helper()
			got := runProgram(t, environ, append([]string{"keys"}, args...)...)
			if got.code != exitDone || got.stderr != "" {
				t.Fatalf("keys %v: exit code %d\n%s%s", args, got.code, got.stdout, got.stderr)
			}
			return got
		}

		// For a person.
		created := run("create", "acme", "--name", "ci")
		secret := regexp.MustCompile(`secret +(qk_\w+)`).FindStringSubmatch(created.stdout)[1]
		id := regexp.MustCompile(`id +(\w+)`).FindStringSubmatch(created.stdout)[1]
		if a := n.ping(secret); a.status != http.StatusOK {
			t.Errorf("the printed secret: %d", a.status)
		}
		listed := run("list", "acme").stdout
		if !strings.Contains(listed, id) || !strings.Contains(listed, "ci") || strings.Contains(listed, secret) {
			t.Errorf("list: %s", listed)
		}
		rotated := run("rotate", id, "--grace-seconds", "0").stdout
		next := regexp.MustCompile(`secret +(qk_\w+)`).FindStringSubmatch(rotated)[1]
		if a, b := n.ping(secret), n.ping(next); a.status != http.StatusUnauthorized || b.status != http.StatusOK {
			t.Errorf("after the rotation: the old secret %d, the new one %d", a.status, b.status)
		}
		if revoked := run("revoke", id).stdout; !strings.Contains(revoked, "is revoked") {
			t.Errorf("revoke: %s", revoked)
		}
		if a := n.ping(next); a.status != http.StatusUnauthorized {
			t.Errorf("after the revoke: %d", a.status)
		}

		// For a program.
		var key quotad.Key
		created = run("create", "acme", "--json", "--rate-limit=5", "--rate-window=30", "--route-groups=exports,default",
			"--allowed-cidrs=127.0.0.0/8", "--expires-at=2099-01-02T03:04:05Z")
		if err := json.Unmarshal([]byte(created.stdout), &key); err != nil || key.Secret == "" || *key.RateLimit != 5 || *key.RateWindow != 30 ||
			len(key.RouteGroups) != 2 || len(key.AllowedCIDRs) != 1 || key.ExpiresAt == nil {
			t.Errorf("create --json: %s %v", created.stdout, err)
		}
		var page struct{ Items []quotad.Key }
		if err := json.Unmarshal([]byte(run("list", "acme", "--json").stdout), &page); err != nil || len(page.Items) != 2 {
			t.Errorf("list --json: %d keys, %v", len(page.Items), err)
		}
		if err := json.Unmarshal([]byte(run("revoke", key.ID, "--json").stdout), &key); err != nil || key.Status != quotad.KeyRevoked {
			t.Errorf("revoke --json: %s %v", key.Status, err)
		}
	})
}

func TestKeysCommandsRefused(t *testing.T) {
	t.Parallel()
	n := start(t, embedded(t))
	n.tier("ten", 10, nil)
	n.tenant("acme", "ten")
	url := "QUOTAD_ADMIN_URL=" + n.admin
	token := "QUOTAD_ADMIN_TOKEN=" + ownerToken
	for _, c := range []struct {
		environ []string
		args    []string
		code    int
		want    string
	}{
		{[]string{url}, []string{"list", "acme"}, exitUsage, "--token: is required"},
		{[]string{url, token}, []string{"list"}, exitUsage, "wrong number of arguments"},
		{[]string{url, token}, []string{"rotate", "qk_0123456789abcdef_s3cret"}, exitUsage, "is a secret"},
		{[]string{url, token}, []string{"create", "acme", "--rate-limit=x", "--expires-at=soon"}, exitUsage, "--expires-at: must be a time"},
		{[]string{url, token}, []string{"create", "acme", "--rate-limit=-1", "--route-groups=nowhere"}, exitFailed, "rate_window is required with rate_limit"},
		{[]string{url, token}, []string{"create", "nobody"}, exitFailed, "quotad: "},
		{[]string{url, token}, []string{"revoke", "0123456789abcdef"}, exitFailed, "quotad: "},
		{[]string{url, "QUOTAD_ADMIN_TOKEN=s3cret-s3cret-s3cret"}, []string{"list", "acme"}, exitFailed, "A valid admin token is required"},
		{[]string{"QUOTAD_ADMIN_URL=http://127.0.0.1:1", token}, []string{"list", "acme"}, exitFailed, "ask the admin API"},
		{[]string{"QUOTAD_ADMIN_URL=http://me:s3cret@127.0.0.1:1", token}, []string{"list", "acme"}, exitUsage, "QUOTAD_ADMIN_URL: must be http://host:port"},
		{[]string{"QUOTAD_ADMIN_URL=" + n.api, token}, []string{"list", "acme"}, exitFailed, "There is no such resource"},
	} {
		got := runProgram(t, c.environ, append([]string{"keys"}, c.args...)...)
		if got.code != c.code || !strings.Contains(got.stderr, c.want) || strings.Contains(got.stderr, "s3cret") || got.stdout != "" {
			t.Errorf("keys %v: %+v", c.args, got)
		}
	}
}
