package httpapi

import (
	"errors"
	"fmt"
	"maps"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quotad/quotad"
)

func TestARefusalByALimitHasTheDocumentedBody(t *testing.T) {
	t.Parallel()
	s := service(t, &answers{decision: refused()}, Options{})
	const limits = `,"limits":[` +
		`{"policy":"base","scope":"key","algorithm":"token_bucket","limit":1000,"remaining":900,"window":60,"reset_after":12,"retry_after":0,"allowed":true,"shadow":false},` +
		`{"policy":"exports","scope":"key","algorithm":"token_bucket","limit":20,"remaining":0,"window":300,"reset_after":30,"retry_after":30,"allowed":false,"shadow":false},` +
		`{"policy":"trial","scope":"","algorithm":"","limit":5,"remaining":0,"window":60,"reset_after":0,"retry_after":60,"allowed":false,"shadow":true}]}`
	const want = `{"error":"rate_limit_exceeded","message":"Too many requests: the rate limit is exceeded. Try again in 30 seconds.",` +
		`"retry_after":30,"type":"https://iana.org/assignments/http-problem-types#quota-exceeded",` +
		`"title":"Request cannot be satisfied as assigned quota has been exceeded","status":429,` +
		`"detail":"The limit exports has 0 of 20 units left, and the call takes 1.","violated-policies":["exports"]`
	if diff := cmp.Diff(want+"}", get(s, "/v1/ping").Body.String()); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(want+limits, checkBody(s, `{"route_group":"exports"}`).Body.String()); diff != "" {
		t.Error(diff)
	}
}

func TestMessagesFollowAcceptLanguage(t *testing.T) {
	t.Parallel()
	s := service(t, &answers{decision: refused()}, Options{})
	w := get(s, "/v1/ping", "Accept-Language: ar-EG, en;q=0.5")
	wantHeaders(t, w, "Content-Language: ar", "Vary: Accept, Accept-Language", "Content-Type: application/json")
	if !strings.Contains(w.Body.String(), `"message":"طلبات كثيرة جدًا: تم تجاوز الحد المسموح. حاول مرة أخرى بعد 30 ثانية."`) {
		t.Errorf("got %s", w.Body)
	}
	wantHeaders(t, get(s, "/v1/ping", "Accept-Language: fr"), "Content-Language: en")
	wantHeaders(t, get(s, "/v1/ping", "Accept-Language: fr", "Accept-Language: ar"), "Content-Language: ar")
}

func TestProblemJSONOnlyForThoseWhoNameIt(t *testing.T) {
	t.Parallel()
	s := service(t, &answers{decision: refused()}, Options{})
	for accept, want := range map[string]string{
		"":                         "application/json",
		"*/*":                      "application/json",
		"application/json":         "application/json",
		"application/problem+json": "application/problem+json",
		"text/html, application/problem+json;q=0.4":        "application/problem+json",
		"application/json, application/problem+json":       "application/problem+json",
		"application/json, application/problem+json;q=0.5": "application/json",
		"application/problem+json;q=0":                     "application/json",
		"application/problem+json; q=nonsense":             "application/json",
		"application/problem+jsonx":                        "application/json",
	} {
		w := get(s, "/v1/ping", "Accept: "+accept)
		if got := header(w, "Content-Type"); got != want {
			t.Errorf("Accept: %s: got %s, want %s", accept, got, want)
		}
	}
}

func TestEveryKindOfInvalidKeyHasOneAnswer(t *testing.T) {
	t.Parallel()
	var bodies []string
	var headers []map[string][]string
	for _, err := range []error{
		quotad.ErrInvalidAPIKey,
		quotad.NewError(quotad.CodeInvalidAPIKey, "revoked"),
		&quotad.Error{Code: quotad.CodeInvalidAPIKey, Detail: "expired", RetryAfter: time.Second, Cause: errors.New("x")},
		fmt.Errorf("check: %w", &quotad.Error{Code: quotad.CodeInvalidAPIKey, Fields: quotad.Faults{"tenant": "suspended"}}),
	} {
		for _, known := range []quotad.Decision{{}, {Tenant: "acme", KeyID: "k1", Tier: "pro"}} {
			w := get(service(t, &answers{decision: known, err: err}, Options{}), "/v1/ping", "X-Request-Id: same")
			wantRefusal(t, w, quotad.CodeInvalidAPIKey)
			wantHeaders(t, w, `WWW-Authenticate: ApiKey realm="quotad"`)
			bodies, headers = append(bodies, w.Body.String()), append(headers, maps.Clone(w.Result().Header))
		}
	}
	for i := range bodies {
		if bodies[i] != bodies[0] || !cmp.Equal(headers[i], headers[0]) {
			t.Errorf("answer %d differs: %s %v", i, bodies[i], headers[i])
		}
	}
}

func TestErrorsOfTheCheckerBecomeTheirAnswers(t *testing.T) {
	t.Parallel()
	for _, code := range []quotad.Code{
		quotad.CodeAPIKeyRequired, quotad.CodeInvalidAPIKey, quotad.CodeInvalidCost, quotad.CodeCostExceedsLimit,
		quotad.CodeInvalidPath, quotad.CodeInvalidRequest, quotad.CodeRouteNotAllowed,
		quotad.CodeLimiterUnavailable, quotad.CodeStoreUnavailable,
	} {
		s := service(t, &answers{err: fmt.Errorf("check: %w", &quotad.Error{Code: code, Detail: "the detail"})}, Options{})
		for _, w := range []*httptest.ResponseRecorder{get(s, "/v1/ping"), get(s, "/v1/authorize"), get(s, "/v1/limits"), checkBody(s, `{"route_group":"a"}`)} {
			wantRefusal(t, w, code)
			wantHeaders(t, w, "X-RateLimit-Limit:", "X-Quotad-Tenant:")
			switch code.Status() {
			case 503:
				wantHeaders(t, w, "Retry-After: 1")
			default:
				wantHeaders(t, w, "Retry-After:")
			}
			if detailed := code != quotad.CodeInvalidAPIKey; strings.Contains(w.Body.String(), "the detail") != detailed {
				t.Errorf("got %s", w.Body)
			}
		}
	}
}

func TestA503SaysHowLongToWait(t *testing.T) {
	t.Parallel()
	a := &answers{err: &quotad.Error{Code: quotad.CodeStoreUnavailable, RetryAfter: 1500 * time.Millisecond}}
	w := get(service(t, a, Options{}), "/v1/ping")
	wantHeaders(t, w, "Retry-After: 2")
	if !strings.Contains(w.Body.String(), `"retry_after":2,`) {
		t.Errorf("got %s", w.Body)
	}
}

func TestWhatBrokeStaysInside(t *testing.T) {
	t.Parallel()
	for _, err := range []error{
		errors.New("dial tcp 10.0.0.1: password=hunter2"),
		&quotad.Error{Code: quotad.CodeInternal, Detail: "password=hunter2"},
	} {
		w := get(service(t, &answers{err: err}, Options{}), "/v1/ping")
		wantRefusal(t, w, quotad.CodeInternal)
		if strings.Contains(w.Body.String(), "hunter2") {
			t.Errorf("got %s", w.Body)
		}
	}
}

func TestUnknownPathsAndMethodsHaveTheErrorShape(t *testing.T) {
	t.Parallel()
	a := &answers{decision: admitted()}
	s := service(t, a, Options{})
	for _, target := range []string{"/", "/v1", "/v1/", "/v1/ping/", "//v1/ping", "/V1/ping", "/v1/pingx", "/v1/authorizex", "/v1/checks/", "/v1/usage", "/admin/v1/tiers", "/%2e%2e/v1/ping"} {
		wantRefusal(t, get(s, target), quotad.CodeNotFound)
	}
	for _, c := range [][3]string{
		{"POST", "/v1/ping", "OPTIONS, GET, HEAD"}, {"DELETE", "/v1/limits", "OPTIONS, GET, HEAD"}, {"GET", "/v1/checks", "OPTIONS, POST"},
		{"GET", "/v1/check", "OPTIONS, POST"}, {"HEAD", "/v1/check", "OPTIONS, POST"}, {"BREW", "/v1/ping", "OPTIONS, GET, HEAD"},
		{"POST", "/healthz", "OPTIONS, GET, HEAD"},
	} {
		w := do(s, request(c[0], c[1], "", withKey))
		wantStatus(t, w, 405)
		wantHeaders(t, w, "Allow: "+c[2], "Cache-Control: no-store")
		if c[0] != "HEAD" {
			wantRefusal(t, w, quotad.CodeMethodNotAllowed)
		} else if w.Body.Len() > 0 {
			t.Errorf("HEAD has a body: %s", w.Body)
		}
	}
	a.neverAsked(t)
}
