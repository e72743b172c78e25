package httpapi

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/quotad/quotad"
)

// logged is a server that logs everything into the buffer.
func logged(t *testing.T, a *answers) (*Server, *bytes.Buffer) {
	t.Helper()
	var log bytes.Buffer
	return service(t, a, Options{Logger: slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))}), &log
}

func TestAPanicIsAnswered500AndLogged(t *testing.T) {
	t.Parallel()
	a := &answers{before: func() { panic("boom") }}
	s, log := logged(t, a)
	wantRefusal(t, get(s, "/v1/ping", "X-Request-Id: r-1"), quotad.CodeInternal)
	for _, want := range []string{"panic: boom", `"request_id":"r-1"`, "failures_test.go", `"door":"ping"`} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("%s is missing in %s", want, log)
		}
	}
	a.before, a.decision = nil, admitted()
	wantStatus(t, get(s, "/v1/ping"), 200)
}

func TestFailuresThatNobodyForesawAreLoggedOnceASecond(t *testing.T) {
	t.Parallel()
	a := &answers{err: errors.New("script error")}
	s, log := logged(t, a)
	at := now
	s.now = func() time.Time { return at }
	for range 10 {
		get(s, "/v1/ping")
	}
	if got := strings.Count(log.String(), "\n"); got != 1 || !strings.Contains(log.String(), "script error") {
		t.Errorf("got %d lines: %s", got, log)
	}
	at = at.Add(time.Second)
	get(s, "/v1/ping")
	if !strings.Contains(log.String(), `"muted":9`) {
		t.Errorf("got %s", log)
	}
}

func TestOrdinaryCallsAreNotLogged(t *testing.T) {
	t.Parallel()
	a := &answers{decision: admitted()}
	s, log := logged(t, a)
	get(s, "/v1/ping")
	a.decision = refused()
	get(s, "/v1/ping")
	for _, err := range []error{quotad.ErrInvalidAPIKey, quotad.ErrLimiterUnavailable, quotad.ErrStoreUnavailable} {
		a.err = err // the checker has logged these
		get(s, "/v1/ping")
	}
	get(s, "/nowhere")
	checkBody(s, "{}")
	if log.Len() > 0 {
		t.Errorf("got %s", log)
	}
}

func TestSecretsNeverReachTheLog(t *testing.T) {
	t.Parallel()
	for _, a := range []*answers{{err: errors.New("broken")}, {before: func() { panic("boom") }}} {
		s, log := logged(t, a)
		do(s, request("GET", "/v1/ping", "", "X-API-Key: qk_secret"))
		do(s, request("GET", "/v1/authorize?x=qk_secret", "", "X-Forwarded-Uri: /?k=qk_secret", "Authorization: Bearer qa_secret"))
		do(s, request("POST", "/v1/check", `{"route_group":"a","tenant":"t"}`, "Authorization: Bearer qa_secret", "Content-Type: application/json"))
		if log.Len() == 0 || strings.Contains(log.String(), "_secret") {
			t.Errorf("got %s", log)
		}
	}
}
