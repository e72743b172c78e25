package httpapi

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/quotad/quotad"
)

func TestAnAdmittedCallCarriesTheHeadersOfTheLimitWithLeastLeft(t *testing.T) {
	t.Parallel()
	s := service(t, &answers{decision: admitted()}, Options{})
	for _, target := range []string{"/v1/ping", "/v1/authorize/v1/exports"} {
		w := get(s, target)
		wantStatus(t, w, 200)
		wantHeaders(t, w,
			"X-RateLimit-Limit: 20",
			"X-RateLimit-Remaining: 19",
			"X-RateLimit-Reset: 1796040015",
			`RateLimit-Policy: "base";q=1000;w=60, "exports";q=20;w=300`,
			`RateLimit: "base";r=900;t=12, "exports";r=19;t=15`,
			"Cache-Control: no-store",
			"Retry-After:", "X-Quotad-Degraded:")
	}
}

func TestARefusedCallCarriesTheHeadersOfTheLimitThatRefuses(t *testing.T) {
	t.Parallel()
	s := service(t, &answers{decision: refused()}, Options{})
	w := get(s, "/v1/ping")
	wantStatus(t, w, 429)
	wantHeaders(t, w,
		"X-RateLimit-Limit: 20",
		"X-RateLimit-Remaining: 0",
		"X-RateLimit-Reset: 1796040030",
		`RateLimit-Policy: "base";q=1000;w=60, "exports";q=20;w=300`,
		`RateLimit: "base";r=900;t=12, "exports";r=0;t=30`,
		"Retry-After: 30",
		"Cache-Control: no-store")
}

func TestOfSeveralRefusingLimitsTheLongestWaitSpeaks(t *testing.T) {
	t.Parallel()
	d := refused()
	d.RetryAfter = 50
	l := &d.Limits[0]
	l.Allowed, l.Remaining, l.RetryAfter, l.ResetAfter, l.ResetAt = false, 3, 50, 50, now.Add(50*time.Second)
	w := get(service(t, &answers{decision: d}, Options{}), "/v1/ping")
	wantHeaders(t, w, "X-RateLimit-Limit: 1000", "X-RateLimit-Remaining: 3", "X-RateLimit-Reset: 1796040050", "Retry-After: 50")
	if !strings.Contains(w.Body.String(), `"violated-policies":["base","exports"]`) {
		t.Errorf("got %s", w.Body)
	}
}

func TestALimitThatNeverAdmitsPromisesNothing(t *testing.T) {
	t.Parallel()
	d := quotad.Decision{Limits: []quotad.LimitStatus{{Policy: "base", Window: 60}}, Cost: 1}
	w := get(service(t, &answers{decision: d}, Options{}), "/v1/ping")
	wantStatus(t, w, 429)
	wantHeaders(t, w, "Retry-After:", "X-RateLimit-Limit: 0", "X-RateLimit-Remaining: 0",
		"X-RateLimit-Reset: 1796040000", `RateLimit: "base";r=0`)
	if strings.Contains(w.Body.String(), "retry_after") {
		t.Errorf("got %s", w.Body)
	}
}

func TestAnUnlimitedCallHasNoRateHeaders(t *testing.T) {
	t.Parallel()
	d := admitted()
	d.Limits = d.Limits[2:] // the shadow
	w := get(service(t, &answers{decision: d}, Options{}), "/v1/ping")
	wantStatus(t, w, 200)
	wantHeaders(t, w, "X-RateLimit-Limit:", "X-RateLimit-Remaining:", "X-RateLimit-Reset:", "RateLimit:", "RateLimit-Policy:",
		"Cache-Control: no-store")
}

func TestIETFHeadersCanBeSwitchedOff(t *testing.T) {
	t.Parallel()
	w := get(service(t, &answers{decision: admitted()}, Options{OmitIETFHeaders: true}), "/v1/ping")
	wantHeaders(t, w, "RateLimit:", "RateLimit-Policy:", "X-RateLimit-Limit: 20")
}

func TestStructuredIntegersKeepTo15Digits(t *testing.T) {
	t.Parallel()
	d := quotad.Decision{Allowed: true, Limits: []quotad.LimitStatus{status("base", quotad.MaxUnits, quotad.MaxUnits-1, 60, 1)}}
	w := get(service(t, &answers{decision: d}, Options{}), "/v1/ping")
	wantHeaders(t, w,
		`RateLimit-Policy: "base";q=999999999999999;w=60`,
		`RateLimit: "base";r=999999999999999;t=1`,
		"X-RateLimit-Limit: 9007199254740991")
}

func TestDegradedAnswersAreMarked(t *testing.T) {
	t.Parallel()
	for policy, want := range map[quotad.FailurePolicy]string{
		quotad.FailOpen: "X-Quotad-Degraded: open", quotad.FailLocal: "X-Quotad-Degraded: local",
	} {
		for _, d := range []quotad.Decision{admitted(), refused()} {
			d.Degraded, d.DegradedBy = true, policy
			a := &answers{decision: d, decisions: []quotad.Decision{admitted(), d}}
			s := service(t, a, Options{})
			wantHeaders(t, get(s, "/v1/ping"), want)
			wantHeaders(t, checkBody(s, `{"route_group":"exports"}`), want)
			wantHeaders(t, get(s, "/v1/authorize"), want)
			wantHeaders(t, get(s, "/v1/limits"), want)
		}
	}
}

func TestRequestIDs(t *testing.T) {
	t.Parallel()
	s := service(t, &answers{decision: admitted()}, Options{})
	wantHeaders(t, get(s, "/v1/ping", "X-Request-Id: a-B.9:/+=@_"), "X-Request-Id: a-B.9:/+=@_")
	seen := map[string]bool{}
	for _, headers := range [][]string{
		{}, {}, {"X-Request-Id: "}, {"X-Request-Id: a b"}, {"X-Request-Id: é"}, {"X-Request-Id: a", "X-Request-Id: b"},
		{"X-Request-Id: " + strings.Repeat("a", 129)}, {"X-Request-Id: <script>"},
	} {
		id := header(get(s, "/v1/ping", headers...), "X-Request-Id")
		if !saneRequestID(id) || len(id) < 15 || seen[id] {
			t.Errorf("%q: got %q", headers, id)
		}
		seen[id] = true
	}
	if got := header(get(s, "/nowhere"), "X-Request-Id"); got == "" {
		t.Error("an answer without a route has no request id")
	}
}

func TestNoHeaderEverHasAnExponent(t *testing.T) {
	t.Parallel()
	d := quotad.Decision{Allowed: true, Limits: []quotad.LimitStatus{status("base", math.MaxInt64, 1e15, 60, 1)}}
	for name, values := range get(service(t, &answers{decision: d}, Options{}), "/v1/ping").Result().Header {
		if strings.Contains(strings.Join(values, ""), "e+") {
			t.Errorf("%s: %q", name, values)
		}
	}
}
