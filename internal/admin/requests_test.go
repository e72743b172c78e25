package admin

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/database/databasetest"
	"github.com/quotad/quotad/internal/replies"
	"github.com/quotad/quotad/internal/testenv"
	"github.com/quotad/quotad/migrations"
)

func TestRequestsHaveNames(t *testing.T) {
	each(t, Options{}, func(t *testing.T, w *world) {
		if got := w.call("GET", "/admin/v1/tiers", nil, with{headerRequestID, "abc-1.2_3"}).header.Get(headerRequestID); got != "abc-1.2_3" {
			t.Errorf("a sane name came back as %q", got)
		}
		for _, name := range []string{"a b", strings.Repeat("a", 129), `"x"`, "é"} {
			if got := w.call("GET", "/admin/v1/tiers", nil, with{headerRequestID, name}).header.Get(headerRequestID); got == name || got == "" {
				t.Errorf("%q came back as %q", name, got)
			}
		}
		for line := range strings.Lines(w.logs.String()) {
			if !json.Valid([]byte(line)) {
				t.Errorf("a log line is no JSON: %s", line)
			}
		}
	})
}

func TestPathsAndMethodsThatAreNone(t *testing.T) {
	each(t, Options{}, func(t *testing.T, w *world) {
		w.aTier("pro")
		for _, path := range []string{
			"/", "/admin", "/admin/v1", "/admin/v1/", "/admin/v1/usage", "/admin/v1/explain", "/admin/v1/apply", "/console/",
			"/admin/v1/tiers/", "/admin/v1/tiers/pro/", "/admin/v1/tiers/pro/x", "/admin/v1/Tiers", "/admin/v1//tiers", "/admin/v1/tiers%2Fpro",
			"/admin%2Fv1/tiers", "/admin/v1/tiers/%2e%2e", "/admin/v1/tiers/a%2Fb", "/admin/v1/tiers/a%00", "/admin/v1/tiers/%F0%9F%98%80",
			"/admin/v1/tiers/" + strings.Repeat("a", 5000), "/admin%2Findex.html", "/admin%5Capi", "/%2e%2e/admin", "/assets/..%2fadmin",
			"/admin/v1/keys/none", "/admin/v1/keys/0000000000000000", "/admin/v1/admin-tokens/none", "/admin/v1/tenants/a b/keys",
		} {
			w.call("GET", strings.ReplaceAll(path, " ", "%20"), nil).refuses(quotad.CodeNotFound)
		}
		w.call("GET", "/admin/v1/tiers/p%72o", nil).is(200) // the same name, spelt otherwise
		for path, allow := range map[string]string{
			"/admin/v1/tiers": "GET, HEAD, POST", "/admin/v1/tiers/pro": "DELETE, GET, HEAD, PATCH",
			"/admin/v1/keys/x/rotate": "POST", "/admin/v1/audit-events": "GET, HEAD", "/openapi.yaml": "GET, HEAD",
		} {
			got := w.call("PUT", path, nil)
			got.refuses(quotad.CodeMethodNotAllowed)
			for method := range strings.SplitSeq(allow, ", ") {
				if !strings.Contains(got.header.Get("Allow"), method) {
					t.Errorf("%s: Allow is %q, want %s", path, got.header.Get("Allow"), allow)
				}
			}
		}
		w.call("QUERY", "/admin/v1/tiers", nil).refuses(quotad.CodeMethodNotAllowed)
		w.call("OPTIONS", "/admin/v1/tiers", nil).is(204)
	})
}

func TestQueriesThatAreNone(t *testing.T) {
	each(t, Options{}, func(t *testing.T, w *world) {
		w.aTier("pro")
		for _, query := range []string{"limt=5", "limit=5&limit=6", "limit=", "tenant=acme", "limit=5;cursor=x", ";", "limit=%zz"} {
			w.call("GET", "/admin/v1/tiers?"+query, nil).refuses(quotad.CodeInvalidRequest)
		}
		w.call("GET", "/admin/v1/tiers?cursor=", nil).is(200)
		wrong := w.call("GET", "/admin/v1/tiers/pro?limit=5", nil)
		wrong.refuses(quotad.CodeInvalidRequest)
		if body := string(wrong.body); !strings.Contains(body, `"detail":"limit is not a query parameter of this resource"`) || !strings.HasSuffix(body, "}\n") {
			t.Errorf("got %q", body)
		}
		w.call("DELETE", "/admin/v1/tiers/pro?dry_run=true", nil).refuses(quotad.CodeInvalidRequest)
		w.call("GET", "/admin/v1/tiers/pro", nil).is(200)
	})
}

func TestHeadHasTheHeadersOfGet(t *testing.T) {
	each(t, Options{}, func(t *testing.T, w *world) {
		w.aTier("pro")
		for _, path := range []string{"/admin/v1/tiers", "/admin/v1/tiers/pro", "/openapi.yaml", "/admin/v1/audit-events"} {
			get, head := w.call("GET", path, nil).is(200), w.call("HEAD", path, nil).is(200)
			if len(head.body) != 0 {
				t.Errorf("%s: HEAD has a body", path)
			}
			for _, name := range []string{"Content-Type", "ETag", "Cache-Control"} {
				if get.header.Get(name) != head.header.Get(name) {
					t.Errorf("%s: %s is %q and %q", path, name, get.header.Get(name), head.header.Get(name))
				}
			}
		}
	})
}

func TestErrorsComeAsTheClientLikesThem(t *testing.T) {
	each(t, Options{}, func(t *testing.T, w *world) {
		for accept, want := range map[string]string{
			"": jsonType, "*/*": jsonType, "application/json": jsonType, "application/problem+json": replies.ProblemJSON,
			"application/json, application/problem+json": replies.ProblemJSON, "application/json, application/problem+json;q=0.5": jsonType,
			"application/problem+json;q=0": jsonType, "text/html": jsonType, ";;,,": jsonType,
		} {
			got := w.call("GET", "/admin/v1/tiers/none", nil, with{"Accept", accept})
			got.refuses(quotad.CodeNotFound)
			if got.header.Get("Content-Type") != want {
				t.Errorf("Accept %q: got %s", accept, got.header.Get("Content-Type"))
			}
		}
		got := w.call("GET", "/admin/v1/tiers/none", nil, with{"Accept-Language", "ar"})
		if p := got.refuses(quotad.CodeNotFound); p.Message != "لا يوجد مورد كهذا." || got.header.Get("Content-Language") != "ar" {
			t.Errorf("got %q", p.Message)
		}
	})
}

func TestBodiesThatAreTooLarge(t *testing.T) {
	each(t, Options{}, func(t *testing.T, w *world) {
		w.aTier("pro")
		big := `{"description":"` + strings.Repeat("a", maxBody) + `"}`
		w.call("PATCH", "/admin/v1/tiers/pro", big).refuses(quotad.CodePayloadTooLarge)
		w.call("POST", "/admin/v1/tiers", big).refuses(quotad.CodePayloadTooLarge)
		w.call("POST", "/admin/v1/tiers", big, with{"Idempotency-Key", "k"}).refuses(quotad.CodePayloadTooLarge)
		w.call("POST", "/admin/v1/tiers", `{}`, with{"Content-Type", "text/plain"}).refuses(quotad.CodeUnsupportedMedia)
		w.call("PATCH", "/admin/v1/tiers/pro", `{}`, with{"Content-Type", "application/json-patch+json"}).refuses(quotad.CodeUnsupportedMedia)
		w.call("POST", "/admin/v1/tiers", `{}`, with{"Content-Type", ""}).refuses(quotad.CodeUnsupportedMedia)
	})
}

// A client that sends no end of a body is answered as soon as it is too much.
func TestAnEndlessBodyIsCutOff(t *testing.T) {
	each(t, Options{}, func(t *testing.T, w *world) {
		conn, err := net.Dial("tcp", strings.TrimPrefix(w.server.URL, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if err := conn.SetDeadline(time.Now().Add(testenv.Patience)); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(conn, "POST /admin/v1/tiers HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n", w.tokens[quotad.RoleOwner])
		go func() {
			chunk := "1000\r\n" + strings.Repeat("a", 0x1000) + "\r\n"
			for {
				if _, err := conn.Write([]byte(chunk)); err != nil {
					return
				}
			}
		}()
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		if resp.Body.Close(); resp.StatusCode != http.StatusRequestEntityTooLarge {
			t.Errorf("got status %d", resp.StatusCode)
		}
	})
}

func TestAPanicIsAnErrorLikeOthers(t *testing.T) {
	each(t, Options{}, func(t *testing.T, w *world) {
		s := New(w.stores, Options{Logger: nil})
		e := s.handler.(*echo.Echo)
		e.GET("/panic", func(echo.Context) error { panic("secret detail") })
		rec := httptest.NewRecorder()
		s.Handler().ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/panic", nil))
		got := answer{t: t, status: rec.Code, header: rec.Header(), body: rec.Body.Bytes()}
		got.refuses(quotad.CodeInternal)
		if strings.Contains(rec.Body.String(), "secret detail") {
			t.Error("the answer shows the panic")
		}
	})
}

func TestMountedHandlersNeedNoToken(t *testing.T) {
	say := func(text string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, text)
		})
	}
	const lives, ready, metrics = `{"status":"ok"}`, `{"status":"ready"}`, `{}`
	each(t, Options{Health: say(lives), Ready: say(ready), Metrics: say(metrics)}, func(t *testing.T, w *world) {
		for path, want := range map[string]string{"/healthz": lives, "/readyz": ready, "/metrics": metrics} {
			if got := w.call("GET", path, nil, with{"Authorization", ""}).is(200); string(got.body) != want {
				t.Errorf("%s: got %s", path, got.body)
			}
		}
	})
}

func TestHandlersThatAreNotGivenAreNotMounted(t *testing.T) {
	each(t, Options{}, func(t *testing.T, w *world) {
		for _, path := range []string{"/healthz", "/readyz", "/metrics"} {
			resp, err := http.Get(w.server.URL + path)
			if err != nil {
				t.Fatal(err)
			}
			if resp.Body.Close(); resp.StatusCode != http.StatusNotFound {
				t.Errorf("%s: got %d", path, resp.StatusCode)
			}
		}
	})
}

// Refused, silent or closed: a store that is away is 503, soon, and never 401.
func TestTheStoreIsAway(t *testing.T) {
	t.Parallel()
	own := testenv.OwnPostgres(t)
	if err := migrations.Up(t.Context(), own.URL()); err != nil {
		t.Fatal(err)
	}
	db := databasetest.Open(t, own.URL())
	w := newWorld(t, db, Options{Timeout: 5 * time.Second}) // short, as some calls wait for it, and yet enough on a busy machine
	w.aTier("pro")
	away := func(how string) {
		start := time.Now()
		var wg sync.WaitGroup
		for _, call := range []struct{ method, path, body string }{
			{"GET", "/admin/v1/tiers", ""},
			{"PATCH", "/admin/v1/tiers/pro", `{"rate_limit":5}`},
			{"POST", "/admin/v1/tiers", `{"name":"a","rate_limit":1,"rate_window":1}`},
		} {
			wg.Go(func() {
				var body any
				if call.body != "" {
					body = call.body
				}
				got, err := w.try(call.method, call.path, body, with{"Idempotency-Key", "k"})
				if took := time.Since(start); took > time.Minute || err != nil {
					t.Errorf("%s: the answer took %v, %v", how, took, err)
				}
				if got.status != http.StatusServiceUnavailable || got.header.Get("Retry-After") == "" {
					t.Errorf("%s: got %d %s", how, got.status, got.body)
				}
			})
		}
		wg.Wait()
	}
	own.Freeze()
	away("frozen")
	own.Resume()
	w.until(200, "GET", "/admin/v1/tiers")
	own.Stop()
	away("stopped")
	own.Start()
	w.until(200, "GET", "/admin/v1/tiers")
	w.call("PATCH", "/admin/v1/tiers/pro", `{"rate_limit":5}`).is(200)
}

// until asks again until the status is the one wanted.
func (w *world) until(status int, method, path string) {
	w.t.Helper()
	for deadline := time.Now().Add(testenv.Patience); ; {
		got, err := w.try(method, path, nil)
		if err == nil && got.status == status {
			return
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("got %d %s, %v", got.status, got.body, err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func TestRequestsAreBoundInUnderFiveSeconds(t *testing.T) {
	t.Parallel()
	if bound := New(Stores{}, Options{}).opts.Timeout; bound >= 5*time.Second {
		t.Errorf("the default bound is %v", bound)
	}
}

func TestAClosedStoreIsAway(t *testing.T) {
	t.Parallel()
	db := databasetest.SQLite(t)
	w := newWorld(t, db, Options{})
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	w.call("GET", "/admin/v1/tiers", nil).refuses(quotad.CodeStoreUnavailable)
}

func TestKindsOfErrorsWithoutOne(t *testing.T) {
	t.Parallel()
	wrapped := fmt.Errorf("route: %w", echo.ErrNotFound)
	if err := kindOf(wrapped); !errors.Is(err, quotad.ErrNotFound) {
		t.Errorf("got %v", err)
	}
}
