package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/legacy"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/admintokens"
	"github.com/quotad/quotad/internal/apikeys"
	"github.com/quotad/quotad/internal/database"
	"github.com/quotad/quotad/internal/database/databasetest"
	"github.com/quotad/quotad/internal/events"
	"github.com/quotad/quotad/internal/idempotency"
	"github.com/quotad/quotad/internal/testenv"
	"github.com/quotad/quotad/internal/tiers"
)

// world is a server over real stores, and a client of it that holds every answer
// against openapi.yaml and looks for secrets in it.
type world struct {
	t      *testing.T
	db     *database.DB
	stores Stores
	server *httptest.Server
	client *http.Client
	tokens map[quotad.Role]string
	logs   *lockedBuffer

	clock *testenv.Clock

	mu      sync.Mutex
	secrets []string
}

// each runs a test over both engines.
func each(t *testing.T, opts Options, f func(t *testing.T, w *world)) {
	t.Parallel()
	databasetest.Each(t, func(t *testing.T, db *database.DB) { f(t, newWorld(t, db, opts)) })
}

func newWorld(t *testing.T, db *database.DB, opts Options) *world {
	t.Helper()
	w := &world{
		t: t, db: db, tokens: map[quotad.Role]string{}, logs: new(lockedBuffer), clock: testenv.NewClock(),
	}
	log := events.NewLog(db, events.Options{Now: w.clock.Now})
	w.stores = Stores{
		Tiers: tiers.NewStore(db, log, tiers.Options{Now: w.clock.Now}), Keys: apikeys.NewStore(db, log, apikeys.Options{Now: w.clock.Now}),
		AdminTokens: admintokens.NewStore(db, log, admintokens.Options{Now: w.clock.Now}), Events: log,
		Idempotency: idempotency.NewStore(db, idempotency.Options{Now: w.clock.Now}),
	}
	opts.Now = w.clock.Now
	if opts.Timeout == 0 {
		opts.Timeout = testenv.Patience
	}
	opts.Logger = slog.New(slog.NewJSONHandler(w.logs, &slog.HandlerOptions{Level: slog.LevelDebug}))
	for _, role := range quotad.Roles {
		token, err := w.stores.AdminTokens.Create(t.Context(), quotad.Actor{Type: "command"},
			quotad.AdminTokenSpec{Name: "the " + string(role), Role: role})
		if err != nil {
			t.Fatal(err)
		}
		w.tokens[role] = token.Secret
		w.secrets = append(w.secrets, token.Secret)
	}
	w.server = httptest.NewServer(New(w.stores, opts).Handler())
	t.Cleanup(w.server.Close)
	w.client = &http.Client{Transport: &checked{w: w, router: documented(t)}}
	return w
}

// answer is what came back.
type answer struct {
	t      *testing.T
	status int
	header http.Header
	body   []byte
}

// with sets a header of a request.
type with struct{ name, value string }

// as presents the token of a role.
func (w *world) as(role quotad.Role) with { return with{"Authorization", "Bearer " + w.tokens[role]} }

// call sends a request as the owner, unless headers say otherwise. The body is
// JSON text, or a value to be encoded.
func (w *world) call(method, path string, body any, headers ...with) answer {
	w.t.Helper()
	got, err := w.try(method, path, body, headers...)
	if err != nil {
		w.t.Fatal(err)
	}
	return got
}

func (w *world) try(method, path string, body any, headers ...with) (answer, error) {
	var content io.Reader
	switch b := body.(type) {
	case nil:
	case string:
		content = strings.NewReader(b)
	default:
		raw, err := json.Marshal(b)
		if err != nil {
			return answer{}, err
		}
		content = bytes.NewReader(raw)
	}
	req, err := http.NewRequestWithContext(context.Background(), method, w.server.URL+path, content)
	if err != nil {
		return answer{}, err
	}
	if content != nil {
		req.Header.Set("Content-Type", jsonType)
	}
	req.Header.Set("Authorization", "Bearer "+w.tokens[quotad.RoleOwner])
	for _, h := range headers {
		if h.value == "" {
			req.Header.Del(h.name)
		} else {
			req.Header.Set(h.name, h.value)
		}
	}
	resp, err := w.client.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	return answer{t: w.t, status: resp.StatusCode, header: resp.Header, body: raw}, err
}

// is fails the test when the status is another one.
func (a answer) is(status int) answer {
	a.t.Helper()
	if a.status != status {
		a.t.Fatalf("got status %d, want %d: %s", a.status, status, a.body)
	}
	return a
}

// refuses fails the test unless the answer is an error of the code.
func (a answer) refuses(code quotad.Code) quotad.Problem {
	a.t.Helper()
	a.is(code.Status())
	var p quotad.Problem
	a.into(&p)
	if p.Error != code || p.Status != code.Status() {
		a.t.Fatalf("got %s, want %s", a.body, code)
	}
	if a.header.Get("Cache-Control") != "no-store" {
		a.t.Errorf("an error has Cache-Control %q", a.header.Get("Cache-Control"))
	}
	return p
}

// into decodes the body; unknown fields fail.
func (a answer) into(v any) {
	a.t.Helper()
	dec := json.NewDecoder(bytes.NewReader(a.body))
	dec.DisallowUnknownFields()
	dec.UseNumber()
	if err := dec.Decode(v); err != nil {
		a.t.Fatalf("%v: %s", err, a.body)
	}
}

func as[T any](a answer) T {
	a.t.Helper()
	var v T
	a.into(&v)
	return v
}

// remembers has the world look for a secret in all answers from now on.
func (w *world) remembers(secret string) string {
	w.t.Helper()
	if secret == "" {
		w.t.Fatal("the answer has no secret")
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.secrets = append(w.secrets, secret)
	return secret
}

// checked is a transport that fails the test when an answer is not as documented,
// or shows a secret that was shown before.
type checked struct {
	w      *world
	router routers.Router
}

func (c *checked) RoundTrip(req *http.Request) (*http.Response, error) {
	var sent []byte
	if req.Body != nil {
		var err error
		if sent, err = io.ReadAll(req.Body); err != nil {
			return nil, err
		}
		req.Body = io.NopCloser(bytes.NewReader(sent))
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil {
		return nil, err
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	c.lookForSecrets(req, resp, body)
	c.compare(req, resp, sent, body)
	return resp, nil
}

func (c *checked) lookForSecrets(req *http.Request, resp *http.Response, body []byte) {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	var header bytes.Buffer
	_ = resp.Header.Write(&header)
	for _, secret := range c.w.secrets {
		if bytes.Contains(body, []byte(secret)) || bytes.Contains(header.Bytes(), []byte(secret)) {
			c.w.t.Errorf("%s %s shows a secret again: %s", req.Method, req.URL.Path, body)
		}
	}
}

// compare holds the answer against the document, and the request too if it was
// accepted: the document must not be stricter than the server.
func (c *checked) compare(req *http.Request, resp *http.Response, sent, body []byte) {
	if resp.Header.Get(headerRequestID) == "" {
		c.w.t.Errorf("%s %s: no %s", req.Method, req.URL.Path, headerRequestID)
	}
	if path := req.URL.EscapedPath(); strings.HasSuffix(path, "/") || strings.Contains(path, "%") {
		return // the router of the document is more forgiving than ours
	}
	looked := req.Clone(req.Context())
	if looked.Method == http.MethodHead {
		looked.Method = http.MethodGet
	}
	route, params, err := c.router.FindRoute(looked)
	if err != nil {
		if resp.StatusCode != http.StatusNotFound && resp.StatusCode != http.StatusMethodNotAllowed && req.Method != http.MethodOptions {
			c.w.t.Errorf("%s %s is not documented and answers %d", req.Method, req.URL.Path, resp.StatusCode)
		}
		return
	}
	opts := &openapi3filter.Options{
		IncludeResponseStatus: true, MultiError: true, AuthenticationFunc: openapi3filter.NoopAuthenticationFunc,
		SkipSettingDefaults: true, ExcludeResponseBody: req.Method == http.MethodHead,
	}
	looked.Body = io.NopCloser(bytes.NewReader(sent))
	in := &openapi3filter.RequestValidationInput{Request: looked, PathParams: params, Route: route, Options: opts}
	if resp.StatusCode < 300 {
		if err := openapi3filter.ValidateRequest(context.Background(), in); err != nil {
			c.w.t.Errorf("%s %s was accepted, and is not as documented: %v\n%s", req.Method, req.URL, err, sent)
		}
	}
	out := &openapi3filter.ResponseValidationInput{RequestValidationInput: in, Status: resp.StatusCode, Header: resp.Header, Options: opts}
	if err := openapi3filter.ValidateResponse(context.Background(), out.SetBodyBytes(body)); err != nil {
		c.w.t.Errorf("%s %s: the answer is not as documented: %v\n%s", req.Method, req.URL, err, body)
	}
}

// document3 is openapi.yaml, read.
func document3(t *testing.T) *openapi3.T {
	t.Helper()
	doc, err := openapi3.NewLoader().LoadFromData(document)
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

// documented finds the operation of a request, wherever the server listens.
func documented(t *testing.T) routers.Router {
	t.Helper()
	doc := document3(t)
	doc.Servers = nil
	router, err := legacy.NewRouter(doc)
	if err != nil {
		t.Fatal(err)
	}
	return router
}

// lockedBuffer takes log lines from many goroutines.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
