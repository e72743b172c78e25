package httpapi

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quotad/quotad"
)

// usedUp is a decision that the quota "monthly" refuses for the last 12 hours of
// November.
func usedUp() quotad.Decision {
	const wait = 12 * 60 * 60
	d := admitted()
	d.Allowed, d.RetryAfter = false, wait
	d.Limits = append(d.Limits[:2], quotad.LimitStatus{
		Policy: "monthly", Scope: quotad.ScopeTenant, Algorithm: quotad.CalendarQuota, Limit: 10000, Window: 30 * 24 * 60 * 60,
		ResetAfter: wait, RetryAfter: wait, ResetAt: now.Add(wait * time.Second),
	})
	return d
}

func TestARefusalByAQuotaIsOfItsOwnKind(t *testing.T) {
	t.Parallel()
	s := service(t, &answers{decision: usedUp()}, Options{})
	w := get(s, "/v1/ping")
	wantRefusal(t, w, quotad.CodeQuotaExceeded)
	wantHeaders(t, w,
		"X-RateLimit-Limit: 10000",
		"X-RateLimit-Remaining: 0",
		"X-RateLimit-Reset: 1796083200",
		`RateLimit-Policy: "base";q=1000;w=60, "exports";q=20;w=300, "monthly";q=10000;w=2592000`,
		`RateLimit: "base";r=900;t=12, "exports";r=19;t=15, "monthly";r=0;t=43200`,
		"Retry-After: 43200")
	const want = `{"error":"quota_exceeded","message":"The quota of this period is used up. Try again in 43200 seconds.",` +
		`"retry_after":43200,"type":"https://iana.org/assignments/http-problem-types#quota-exceeded",` +
		`"title":"Request cannot be satisfied as assigned quota has been exceeded","status":429,` +
		`"detail":"The quota monthly has 0 of 10000 units left, and the call takes 1.","violated-policies":["monthly"]}`
	if diff := cmp.Diff(want, w.Body.String()); diff != "" {
		t.Error(diff)
	}
	wantRefusal(t, checkBody(s, `{"route_group":"exports"}`), quotad.CodeQuotaExceeded)
	wantRefusal(t, get(s, "/v1/authorize/v1/exports"), quotad.CodeQuotaExceeded)
	arabic := get(s, "/v1/ping", "Accept-Language: ar")
	if !strings.Contains(arabic.Body.String(), `"message":"استُنفدت حصة هذه الفترة. حاول مرة أخرى بعد 43200 ثانية."`) {
		t.Errorf("got %s", arabic.Body)
	}
}

func TestAQuotaThatRefusesForLessThanALimitDoesNotSpeak(t *testing.T) {
	t.Parallel()
	d := usedUp()
	d.RetryAfter = 100000
	l := &d.Limits[0]
	l.Allowed, l.Remaining, l.RetryAfter, l.ResetAfter = false, 0, 100000, 100000
	w := get(service(t, &answers{decision: d}, Options{}), "/v1/ping")
	wantRefusal(t, w, quotad.CodeRateLimitExceeded)
	if !strings.Contains(w.Body.String(), `"violated-policies":["base","monthly"]`) {
		t.Errorf("got %s", w.Body)
	}
}

func TestAnAdmittedCallSaysHowLongToWait(t *testing.T) {
	t.Parallel()
	d := admitted()
	d.DelayMS = 250
	s := service(t, &answers{decision: d}, Options{})
	for _, target := range []string{"/v1/ping", "/v1/authorize/v1/exports"} {
		wantHeaders(t, get(s, target), "X-Quotad-Delay-Ms: 250")
	}
	w := checkBody(s, `{"route_group":"exports"}`)
	wantHeaders(t, w, "X-Quotad-Delay-Ms: 250")
	if !strings.Contains(w.Body.String(), `"delay_ms":250,`) {
		t.Errorf("got %s", w.Body)
	}
	wantHeaders(t, get(service(t, &answers{decision: admitted()}, Options{}), "/v1/ping"), "X-Quotad-Delay-Ms:")
}
