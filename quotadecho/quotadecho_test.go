package quotadecho_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/quotadecho"
)

// standIn answers every key "good" with a decision, "spent" with a refusal, and
// others as unknown, in the words of quotad. How a real one is asked is tested with
// the middleware itself.
func standIn(t *testing.T) *quotad.Client {
	t.Helper()
	write := func(w http.ResponseWriter, p quotad.Problem) {
		w.WriteHeader(p.Status)
		_, _ = w.Write(p.AppendJSON(nil))
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-RateLimit-Limit", "10")
		switch r.Header.Get("X-API-Key") {
		case "good":
			d := quotad.Decision{Allowed: true, Tenant: "acme"}
			_, _ = w.Write(d.AppendJSON(nil))
		case "spent":
			p := quotad.ProblemOf(&quotad.Error{Code: quotad.CodeRateLimitExceeded})
			p.RetryAfter = 30
			write(w, p)
		default:
			write(w, quotad.ProblemOf(quotad.ErrInvalidAPIKey))
		}
	}))
	t.Cleanup(server.Close)
	client, err := quotad.NewClient(server.URL, quotad.ClientOptions{Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.CloseIdleConnections)
	return client
}

// serving is the address of an echo with the middleware.
func serving(t *testing.T, use func(e *echo.Echo, m echo.MiddlewareFunc)) string {
	t.Helper()
	e := echo.New()
	use(e, quotadecho.Middleware(standIn(t), quotad.MiddlewareOptions{}))
	e.GET("/things/:id", func(c echo.Context) error {
		d, ok := quotad.DecisionFrom(c.Request().Context())
		if _, wrapped := c.Response().Writer.(interface{ Unwrap() http.ResponseWriter }); wrapped || !ok {
			t.Errorf("the writer is a %T, and a decision there: %v", c.Response().Writer, ok)
		}
		if c.Param("id") == "broken" {
			return echo.NewHTTPError(http.StatusTeapot, "broken")
		}
		if err := c.String(http.StatusOK, d.Tenant); err != nil {
			return err
		}
		return http.NewResponseController(c.Response()).Flush()
	})
	e.GET("/hijacked", func(c echo.Context) error {
		conn, _, err := http.NewResponseController(c.Response()).Hijack()
		if err != nil {
			t.Errorf("hijack: %v", err)
			return err
		}
		_, err = io.WriteString(conn, "HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
		return errors.Join(err, conn.Close())
	})
	server := httptest.NewServer(e)
	t.Cleanup(server.Close)
	return server.URL
}

func TestTheSameMiddlewareInEcho(t *testing.T) {
	t.Parallel()
	for name, use := range map[string]func(*echo.Echo, echo.MiddlewareFunc){
		"use": func(e *echo.Echo, m echo.MiddlewareFunc) { e.Use(m) },
		"pre": func(e *echo.Echo, m echo.MiddlewareFunc) { e.Pre(m) },
	} {
		url := serving(t, use)
		for _, call := range []struct {
			path, key string
			status    int
			body      string
		}{
			{"/things/7", "good", 200, "acme"},
			{"/things/7", "spent", 429, `{"error":"rate_limit_exceeded",`},
			{"/things/7", "other", 401, `{"error":"invalid_api_key",`},
			{"/things/broken", "good", 418, `{"message":"broken"}`},
			{"/hijacked", "good", 202, ""},
			{"/nowhere", "good", 404, ""},
		} {
			r, _ := http.NewRequest("GET", url+call.path, nil)
			r.Header.Set("X-API-Key", call.key)
			res, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			body, _ := io.ReadAll(res.Body)
			_ = res.Body.Close()
			if res.StatusCode != call.status || !strings.HasPrefix(string(body), call.body) {
				t.Errorf("%s: %s with %s: got %d %s", name, call.path, call.key, res.StatusCode, body)
			}
			if call.status != 202 && res.Header.Get("X-RateLimit-Limit") != "10" {
				t.Errorf("%s: %s with %s: got %v", name, call.path, call.key, res.Header)
			}
			if retry := res.Header.Get("Retry-After"); (retry == "30") != (call.status == 429) {
				t.Errorf("%s: %s with %s: Retry-After %q", name, call.path, call.key, retry)
			}
		}
	}
}
