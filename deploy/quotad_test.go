package deploy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quotad/quotad/internal/testenv"
)

// builds is where the tests of this process put the quotad that they build.
var builds string

func TestMain(m *testing.M) {
	var err error
	if builds, err = os.MkdirTemp("", "quotad-deploy-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	os.RemoveAll(builds)
	os.Exit(code)
}

// program builds quotad, once.
var program = sync.OnceValues(func() (string, error) {
	path := filepath.Join(builds, "quotad")
	out, err := exec.Command("go", "build", "-o", path, "../cmd/quotad").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build quotad: %w\n%s", err, out)
	}
	return path, nil
})

const ownerToken = "owner-token-of-the-tests"

// node is a running quotad.
type node struct {
	*testenv.Server
	t testing.TB
}

// startQuotad starts a quotad with options besides those that every test needs.
func startQuotad(t testing.TB, options ...string) *node {
	t.Helper()
	path, err := program()
	if err != nil {
		t.Fatal(err)
	}
	environ := []string{
		"QUOTAD_ADMIN_LISTEN=127.0.0.1:0", "QUOTAD_ADMIN_TOKEN=" + ownerToken, "QUOTAD_TRUSTED_PROXIES=127.0.0.1",
		"QUOTAD_CORS_ORIGINS=" + pageOrigin, "QUOTAD_SHUTDOWN_DELAY=0s",
	}
	if slices.ContainsFunc(options, func(o string) bool { return o == "--redis" || strings.HasPrefix(o, "--redis=") }) {
		environ = append(environ, "QUOTAD_STORE_BUDGET=5s") // tests share a machine
	}
	return &node{t: t, Server: testenv.OwnProgram(t, testenv.Program{
		Name: "quotad",
		Argv: func(_ string, port int) []string {
			return append([]string{path, "serve", "--listen", fmt.Sprintf("127.0.0.1:%d", port)}, options...)
		},
		Env:   environ,
		Ready: answers("/readyz"),
	})}
}

// answers is ready once the server answers at path with 200.
func answers(path string) func(context.Context, string) error {
	return func(ctx context.Context, url string) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+path, nil)
		if err != nil {
			return err
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		defer res.Body.Close()
		if res.StatusCode != http.StatusOK {
			return errors.New(res.Status)
		}
		return nil
	}
}

var adminListen = regexp.MustCompile(`"admin_listen":"([^"]+)"`)

// must asks the admin API for what has to succeed.
func (n *node) must(method, path, body string) map[string]any {
	n.t.Helper()
	at := adminListen.FindStringSubmatch(n.Log())
	if at == nil {
		n.t.Fatalf("quotad does not say where the admin API is:\n%s", n.Log())
	}
	req, err := http.NewRequest(method, "http://"+at[1]+"/admin/v1"+path, strings.NewReader(body))
	if err != nil {
		n.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+ownerToken)
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		n.t.Fatalf("%s %s: %v", method, path, err)
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode >= 300 {
		n.t.Fatalf("%s %s: %s %s %v", method, path, res.Status, raw, err)
	}
	var object map[string]any
	if err := json.NewDecoder(bytes.NewReader(raw)).Decode(&object); err != nil && !errors.Is(err, io.EOF) {
		n.t.Fatalf("%s %s: %v: %s", method, path, err, raw)
	}
	return object
}

// tier makes a tier of units calls a day, and a tenant of the same name in it. more is further fields of the tier.
func (n *node) tier(name string, units int, more string) {
	n.t.Helper()
	n.must("POST", "/tiers", fmt.Sprintf(`{"name":%q,"rate_limit":%d,"rate_window":86400%s}`, name, units, more))
	n.must("POST", "/tenants", fmt.Sprintf(`{"id":%q,"name":%q,"tier":%q}`, name, name, name))
}

// key makes a key of a tenant and returns its secret. more is further fields of the key.
func (n *node) key(tenant, more string) string {
	n.t.Helper()
	return n.must("POST", "/tenants/"+tenant+"/keys", `{"name":"test"`+more+`}`)["secret"].(string)
}

// group makes a route group.
func (n *node) group(name, match, more string) {
	n.t.Helper()
	n.must("POST", "/route-groups", fmt.Sprintf(`{"name":%q,"match":[%q]%s}`, name, match, more))
}

// left asks quotad itself how much of its limit in the group default a key has left, charging nothing.
func (n *node) left(key string) int {
	n.t.Helper()
	req, err := http.NewRequest(http.MethodPost, n.URL()+"/v1/check", strings.NewReader(`{"route_group":"default","cost":0}`))
	if err != nil {
		n.t.Fatal(err)
	}
	req.Header.Set("X-API-Key", key)
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		n.t.Fatal(err)
	}
	defer res.Body.Close()
	var decision struct {
		Limits []struct{ Remaining int }
	}
	if err := json.NewDecoder(res.Body).Decode(&decision); err != nil || len(decision.Limits) == 0 {
		n.t.Fatalf("ask what is left: %s, %+v, %v", res.Status, decision, err)
	}
	return decision.Limits[0].Remaining
}

// soon waits until check returns nil, and fails with what it last returned when the patience is over.
func soon(t testing.TB, what string, check func() error) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: %v", what, err)
		}
	}
}
