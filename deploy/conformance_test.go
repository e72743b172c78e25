package deploy

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/quotad/quotad/internal/testenv"
)

// TestGateways holds every gateway to the table, with one world each.
func TestGateways(t *testing.T) {
	t.Parallel()
	for _, g := range gateways() {
		t.Run(g.name, func(t *testing.T) {
			t.Parallel()
			redis := testenv.OwnRedis(t)
			quotad := startQuotad(t, "--redis", redis.URL(), "--on-store-failure", "closed")
			between := startRelay(t, strings.TrimPrefix(quotad.URL(), "http://"))
			w := &world{api: startAPI(t), quotad: quotad}
			w.gateway = g.start(t, variant{patient: true}, "http://"+between.Addr().String(), w.api.URL)

			t.Run("statuses", func(t *testing.T) { statuses(t, g, w.in(t)) })
			t.Run("delays", func(t *testing.T) { delays(t, w.in(t)) })
			t.Run("claims", func(t *testing.T) { claims(t, g, w.in(t)) })
			t.Run("addresses", func(t *testing.T) { addresses(t, g, w.in(t)) })
			t.Run("credentials", func(t *testing.T) { credentials(t, g, w.in(t)) })
			t.Run("paths", func(t *testing.T) { paths(t, g, w.in(t)) })
			t.Run("streams", func(t *testing.T) { streams(t, g, w.in(t), between) })
			redis.Stop() // the last: it stays away
			t.Run("store away", func(t *testing.T) { storeIsAway(t, g, w.in(t)) })
		})
	}
}

var methods = []string{"GET", "HEAD", "POST", "OPTIONS"}

// calls makes a call with each method and returns the answers.
func (w *world) calls(t *testing.T, target string, headers ...string) map[string]answer {
	t.Helper()
	answers := map[string]answer{}
	for _, method := range methods {
		c := call{method: method, target: target, headers: headers}
		if method == "POST" {
			c.body = "a=b"
		}
		a := w.send(t, c)
		if method == "HEAD" && a.body != "" {
			t.Errorf("HEAD with a body: %q", a.body)
		}
		answers[method] = a
	}
	return answers
}

// statuses are the rows of the table that need no store or quotad to be away.
func statuses(t *testing.T, g gateway, w *world) {
	w.quotad.tier("wide", 1000, "")
	w.quotad.tier("narrow", 1, "")
	w.quotad.must("POST", "/tiers", `{"name":"unlimited","rate_limit":null,"rate_window":60}`)
	w.quotad.must("POST", "/tenants", `{"id":"unlimited","name":"Unlimited","tier":"unlimited"}`)
	w.quotad.group("secret", "/v1/secret", "")
	w.quotad.group("login", "/v1/login", `,"auth":"none"`)
	wide, narrow := w.quotad.key("wide", ""), w.quotad.key("narrow", "")
	free, tied := w.quotad.key("unlimited", ""), w.quotad.key("wide", `,"route_groups":["default"]`)

	for method, a := range w.calls(t, "/v1/things?a=b", "X-API-Key: "+wide) {
		within.check(t, g, a)
		if method != "HEAD" && a.body != "hello" {
			t.Errorf("%s: got %q, want the API's body", method, a.body)
		}
		got := w.passed(t, a)
		if got.method != method || got.target != "/v1/things?a=b" || got.header.Get("X-Quotad-Tenant") != "wide" {
			t.Errorf("%s: the API got %+v", method, got)
		}
		if want := within.at(g).rates; want && a.header.Get("X-RateLimit-Limit") != "1000" {
			t.Errorf("%s: X-RateLimit-Limit %q", method, a.header.Get("X-RateLimit-Limit"))
		}
	}
	if left := w.quotad.left(wide); left != 1000-len(methods) {
		t.Errorf("%d calls leave %d of 1000: each must count once", len(methods), left)
	}
	for _, c := range []call{
		{method: "GET", target: "/v1/things", headers: []string{"X-API-Key: " + free}},
		{method: "POST", target: "/v1/login"},
		{method: "OPTIONS", target: "/v1/things", headers: []string{"Origin: " + pageOrigin, "Access-Control-Request-Method: POST"}},
	} {
		a := w.send(t, c)
		unlimited.check(t, g, a)
		w.passed(t, a)
	}
	a := w.get(t, "/v1/teapot", wide)
	apisRefusal.check(t, g, a)
	if w.passed(t, a); a.body != "teapot" || a.header.Get("Retry-After") != "9" {
		t.Errorf("the API's own refusal came as %q, Retry-After %q", a.body, a.header.Get("Retry-After"))
	}

	within.check(t, g, w.get(t, "/v1/things", narrow))
	wrong := wide[:len(wide)-1] + string('A'+(wide[len(wide)-1]-'A'+1)%26)
	for _, row := range []struct {
		situation *situation
		code      string
		target    string
		headers   []string
	}{
		{&noKey, "api_key_required", "/v1/things", nil},
		{&noKey, "api_key_required", "/v1/things", []string{"X-API-Key:"}},
		{&unknownKey, "invalid_api_key", "/v1/things", []string{"X-API-Key: " + wrong}},
		{&unknownKey, "invalid_api_key", "/v1/things", []string{"X-API-Key: nonsense"}},
		{&notAllowed, "route_not_allowed", "/v1/secret", []string{"X-API-Key: " + tied}},
		{&exhausted, "rate_limit_exceeded", "/v1/things", []string{"X-API-Key: " + narrow}},
		{&exhausted, "rate_limit_exceeded", "/v1/things?deny_status=403", []string{"X-API-Key: " + narrow}}, // not for a client to say
		{&exhausted, "rate_limit_exceeded", "/v1/things?deny_status=1", []string{"X-API-Key: " + narrow}},
	} {
		for method, a := range w.calls(t, row.target, row.headers...) {
			row.situation.check(t, g, a)
			w.refused(t, a)
			if method != "HEAD" {
				if code := a.problem(t); code != row.code {
					t.Errorf("%s: got %s, want %s", method, code, row.code)
				}
			}
			if challenge := a.header.Get("WWW-Authenticate"); (challenge != "") != (a.status == 401) {
				t.Errorf("%s: WWW-Authenticate %q on %d", method, challenge, a.status)
			}
		}
	}
	refusalsSpeak(t, w, narrow)
	refusalsKeepConnections(t, g, w, narrow)
}

// refusalsSpeak: a refusal is in the client's language and type, and a page may read it.
func refusalsSpeak(t *testing.T, w *world, exhausted string) {
	a := w.get(t, "/v1/things", exhausted, "Origin: "+pageOrigin, "Accept-Language: ar", "Accept: application/problem+json")
	if !strings.Contains(a.body, "violated-policies") || strings.Contains(a.body, "Too many") {
		t.Errorf("not in Arabic: %s", a.body)
	}
	if got := a.header.Get("Content-Type"); got != "application/problem+json" {
		t.Errorf("Content-Type %q", got)
	}
	if a.header.Get("Access-Control-Allow-Origin") != pageOrigin || !strings.Contains(a.header.Get("Access-Control-Expose-Headers"), "Retry-After") {
		t.Errorf("the page can't read it: %v", a.header)
	}
}

// refusalsKeepConnections: a refusal is no reason for a gateway to make its client connect anew.
func refusalsKeepConnections(t *testing.T, g gateway, w *world, key string) {
	conn, err := dial(w.gateway.URL(), client)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	r := bufio.NewReader(conn)
	for n := range 3 {
		c := call{method: "GET", target: "/v1/things", headers: []string{"X-API-Key: " + key, "Connection: keep-alive"}}
		if _, err := io.WriteString(conn, c.text("kept")); err != nil {
			t.Fatal(err)
		}
		res, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatalf("answer %d on one connection: %v", n+1, err)
		}
		if _, err := io.Copy(io.Discard, res.Body); err != nil || res.StatusCode != exhausted.at(g).status {
			t.Fatalf("answer %d on one connection: %s, %v", n+1, res.Status, err)
		}
	}
}

// delays: the API is told how long a leaky bucket asks to wait, as nobody else does.
func delays(t *testing.T, w *world) {
	w.quotad.tier("leaky", 2880, `,"algorithm":"leaky_bucket","burst":1,"max_delay_ms":60000`) // one each half minute
	key := w.quotad.key("leaky", "")
	if said := w.passed(t, w.get(t, "/v1/things", key)).header.Get("X-Quotad-Delay-Ms"); said != "" {
		t.Errorf("the API is told to wait %q of a call that is in time", said)
	}
	said := w.passed(t, w.get(t, "/v1/things", key, "X-Quotad-Delay-Ms: 1")).header.Values("X-Quotad-Delay-Ms")
	if ms, err := strconv.Atoi(strings.Join(said, ",")); err != nil || ms < 2 || ms > 30_000 {
		t.Errorf("the API is told to wait %q, want up to 30000", said)
	}
}

// storeIsAway: quotad refuses by its policy.
func storeIsAway(t *testing.T, g gateway, w *world) {
	w.quotad.tier("stranded", 1000, "")
	key := w.quotad.key("stranded", "")
	soon(t, "Redis is away", func() error { // counters are remembered for a moment
		if a := w.get(t, "/v1/things", key); a.status != storeAway.at(g).status {
			return fmt.Errorf("got %d", a.status)
		}
		return nil
	})
	for method, a := range w.calls(t, "/v1/things", "X-API-Key: "+key) {
		storeAway.check(t, g, a)
		w.refused(t, a)
		if method != "HEAD" && a.problem(t) != "limiter_unavailable" {
			t.Errorf("got %s", a.body)
		}
	}
}
