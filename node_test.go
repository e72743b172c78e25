package quotad_test

import (
	"bufio"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/testenv"
)

// snippets are the JavaScript of docs/node.md, in order.
func snippets(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile("docs/node.md")
	must(t, text, err)
	var found []string
	for _, block := range strings.Split(string(text), "```js\n")[1:] {
		code, _, _ := strings.Cut(block, "```")
		found = append(found, code)
	}
	if len(found) != 3 {
		t.Fatalf("docs/node.md has %d snippets, want 3", len(found))
	}
	return found
}

// nodeService is a Node service behind the middleware of docs/node.md.
func nodeService(t *testing.T, options string) *service {
	t.Helper()
	dir := t.TempDir()
	must(t, 0, os.WriteFile(filepath.Join(dir, "quotad.mjs"), []byte(snippets(t)[0]), 0o600))
	main := `import http from "node:http";
import { quotad } from "./quotad.mjs";
const metered = quotad({ ` + options + `, onError: (err) => console.error(err.message) });
const server = http.createServer((req, res) => metered(req, res, () => res.end("for " + req.quotad?.tenant)));
server.listen(0, "127.0.0.1", () => console.log(server.address().port));
`
	must(t, 0, os.WriteFile(filepath.Join(dir, "main.mjs"), []byte(main), 0o600))
	cmd := exec.CommandContext(t.Context(), testenv.Tool(t, "nodejs", "node"), filepath.Join(dir, "main.mjs"))
	var stderr strings.Builder
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	must(t, stdout, err)
	must(t, 0, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("node says:\n%s", stderr.String())
		}
	})
	port, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		_ = cmd.Wait()
		t.Fatalf("node: %v\n%s", err, stderr.String())
	}
	return &service{t: t, url: "http://127.0.0.1:" + strings.TrimSpace(port)}
}

func TestTheSnippetsForNodeAreJavaScript(t *testing.T) {
	t.Parallel()
	for _, code := range snippets(t) {
		file := filepath.Join(t.TempDir(), "snippet.mjs")
		must(t, 0, os.WriteFile(file, []byte(code), 0o600))
		if out, err := exec.CommandContext(t.Context(), testenv.Tool(t, "nodejs", "node"), "--check", file).CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	}
}

func TestANodeServiceIsMetered(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s, key := nodeService(t, `url: "`+w.url+`/", timeoutMs: 60000`), w.key("acme")
	for _, left := range []string{"9", "8"} {
		a := s.call("GET", "/v1/things?a=b", key)
		a.carries(t, "X-RateLimit-Remaining: "+left, "Cache-Control: private", "Content-Language: ")
		if a.status != 200 || a.body != "for acme" {
			t.Errorf("got %+v", a)
		}
	}
	if a := s.call("HEAD", "/v1/things", key); a.status != 200 || a.header.Get("X-RateLimit-Remaining") != "7" {
		t.Errorf("HEAD: got %+v", a)
	}
	allow(t, w.metered(), costing(quotad.CheckRequest{APIKey: key, RouteGroup: "default"}, 7))
	a := s.call("POST", "/v1/things", key, "Accept-Language: ar")
	if p := a.nodeProblem(t, quotad.CodeRateLimitExceeded); p.RetryAfter != 60 || p.Limits != nil {
		t.Errorf("got %+v", p)
	}
	a.carries(t, "Retry-After: 60", "X-RateLimit-Limit: 10", "X-RateLimit-Remaining: 0", "Content-Language: ar")
	begun := time.Now()
	if n := w.asks(func() {
		for range 20 {
			s.call("POST", "/v1/things", key, "Accept-Language: ar").nodeProblem(t, quotad.CodeRateLimitExceeded)
		}
	}); n > 2+int64(time.Since(begun)/time.Second) { // each second once
		t.Errorf("quotad was asked %d times about a caller who hammers", n)
	}
	if a := s.call("HEAD", "/v1/things", key); a.status != 429 || a.body != "" {
		t.Errorf("HEAD: got %+v", a)
	}
	if n := w.asks(func() {
		for range 3 {
			if a := s.call("OPTIONS", "/", "", "Origin: https://a.example", "Access-Control-Request-Method: GET"); a.status != 200 {
				t.Errorf("got %+v", a)
			}
		}
	}); n != 0 {
		t.Errorf("quotad was asked %d times about preflights", n)
	}
	other := string(w.key("acme"))
	for want, calls := range map[quotad.Code][]reply{
		quotad.CodeAPIKeyRequired: {s.call("GET", "/", ""), s.call("GET", "/?key="+other, "")},
		quotad.CodeInvalidAPIKey: {
			s.call("GET", "/", "qk_guess"), s.call("GET", "/", "\x80\xff"), s.call("GET", "/", quotad.Credential(strings.Repeat("k", 8000))),
		},
		quotad.CodeAmbiguousCredentials: {
			s.call("GET", "/", key, "X-API-Key: "+other), s.call("GET", "/", key+","+quotad.Credential(other)), s.call("GET", "/?k="+other, key),
			s.call("GET", "/", key, "Authorization: Bearer "+other),
		},
		quotad.CodeInvalidPath: {s.call("GET", "/a/%2e%2e/b", quotad.Credential(other)), s.call("GET", "/%FF", quotad.Credential(other))},
	} {
		for _, a := range calls {
			a.nodeProblem(t, want)
		}
	}
	if left := remaining(t, w.metered(), quotad.Credential(other)); left != 10 {
		t.Errorf("what was refused was charged: %d are left", left)
	}
}

// nodeProblem is problem of a service that writes fewer headers around it.
func (a reply) nodeProblem(t *testing.T, want quotad.Code) quotad.Problem {
	t.Helper()
	a.header.Set("X-Content-Type-Options", "nosniff")
	a.header.Set("Vary", "Accept, Accept-Language")
	return a.problem(t, want)
}

func TestANodeServiceAsksForItsTenants(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := nodeService(t, `url: "`+w.url+`", timeoutMs: 60000, serviceToken: "`+string(w.token())+`",
		question: (req) => ({ tenant: req.headers["x-tenant"], subject: "ann", route_group: "exports", cost: 4 })`)
	for _, want := range []int{200, 200, 429} {
		if a := s.call("GET", "/", "qk_ignored", "X-Tenant: acme"); a.status != want {
			t.Errorf("got %+v, want %d", a, want)
		}
	}
	s.call("GET", "/", "", "X-Tenant: nobody").nodeProblem(t, quotad.CodeInvalidRequest)
}

func TestANodeServiceWithoutAQuotad(t *testing.T) {
	t.Parallel()
	hanging := newSwitchable(t)
	hanging.hangs.Store(true)
	closed := nodeService(t, `url: "`+hanging.url+`", timeoutMs: 50`)
	begun := time.Now()
	for range 20 {
		closed.call("GET", "/", "qk_a").nodeProblem(t, quotad.CodeLimiterUnavailable)
	}
	// Five, and one in each second that has passed.
	if sent, most := hanging.asked.Load(), 5+int64(time.Since(begun)/time.Second); sent > most {
		t.Errorf("%d calls were sent, want at most %d", sent, most)
	}
	url, _ := frozen(t)
	opened := nodeService(t, `url: "`+url+`", timeoutMs: 50, failOpen: true`)
	for range 20 {
		a := opened.call("GET", "/", "qk_a")
		if a.status != 200 {
			t.Errorf("got %+v", a)
		}
		a.carries(t, "X-Quotad-Degraded: open")
	}
	w := newWorld(t)
	wrong := nodeService(t, `url: "`+w.url+`", timeoutMs: 60000, failOpen: true, question: () => ({ route_group: "nowhere" })`)
	wrong.call("GET", "/", w.key("acme")).nodeProblem(t, quotad.CodeInvalidRequest)
	broken := nodeService(t, `url: "`+w.url+`", failOpen: true, question: (req) => ({ tenant: req.user.company })`)
	broken.call("GET", "/", w.key("acme")).nodeProblem(t, quotad.CodeInternal)
	elsewhere := nodeService(t, `url: "`+answering(t, http.NotFound)+`", timeoutMs: 60000, failOpen: true`)
	elsewhere.call("GET", "/", w.key("acme")).nodeProblem(t, quotad.CodeInternal)
	misplaced := nodeService(t, `url: "`+w.url+`/api", timeoutMs: 60000, failOpen: true`)
	misplaced.call("GET", "/", w.key("acme")).nodeProblem(t, quotad.CodeInternal)
}
