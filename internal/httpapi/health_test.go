package httpapi

import (
	"context"
	"net/http/httptest"
	"testing"
)

func TestHealthAndReadiness(t *testing.T) {
	t.Parallel()
	ready := Readiness{}
	a := &answers{}
	s := service(t, a, Options{Ready: func(ctx context.Context) Readiness {
		if _, bounded := ctx.Deadline(); !bounded {
			t.Error("readiness has no time limit")
		}
		return ready
	}})
	want := func(target string, status int, body string) {
		t.Helper()
		w := get(s, target)
		if w.Code != status || w.Body.String() != body+"\n" {
			t.Errorf("%s: got %d %s, want %d %s", target, w.Code, w.Body, status, body)
		}
		wantHeaders(t, w, "Content-Type: application/json", "Cache-Control: no-store")
	}
	want("/healthz", 200, `{"status":"ok"}`)
	want("/healthz?probe=1", 200, `{"status":"ok"}`)
	want("/readyz", 200, `{"status":"ready"}`)

	ready = Readiness{Notes: []string{"redis: breaker open"}}
	want("/readyz", 200, `{"status":"ready","notes":["redis: breaker open"]}`)

	ready = Readiness{Reasons: []string{"database: migrating"}, Notes: []string{"n"}}
	want("/readyz", 503, `{"status":"not ready","reasons":["database: migrating"],"notes":["n"]}`)
	want("/healthz", 200, `{"status":"ok"}`)

	ready = Readiness{}
	s.Drain()
	want("/readyz", 503, `{"status":"not ready","reasons":["shutting down"]}`)
	want("/healthz", 200, `{"status":"ok"}`)
	w := httptest.NewRecorder()
	s.Ready().ServeHTTP(w, request("GET", "/readyz", ""))
	wantStatus(t, w, 503)
	a.decision = admitted()
	wantStatus(t, get(s, "/v1/ping"), 200) // calls in flight, and those of slow load balancers, are still answered
}
