package quotad

import "testing"

func TestARefusalIsOfTheKindOfTheLimitThatSpeaksForIt(t *testing.T) {
	t.Parallel()
	quota := func(retry int64) LimitStatus { return LimitStatus{Algorithm: CalendarQuota, RetryAfter: retry} }
	limit := func(retry int64) LimitStatus { return LimitStatus{Algorithm: FixedWindow, RetryAfter: retry} }
	admits := func(l LimitStatus) LimitStatus { l.Allowed, l.RetryAfter = true, 0; return l }
	shadow := func(l LimitStatus) LimitStatus { l.Shadow = true; return l }
	for _, c := range []struct {
		name   string
		limits []LimitStatus
		want   Code
	}{
		{"a limit", []LimitStatus{limit(1)}, CodeRateLimitExceeded},
		{"a quota", []LimitStatus{quota(1)}, CodeQuotaExceeded},
		{"a quota beside a limit that admits", []LimitStatus{admits(limit(0)), quota(1)}, CodeQuotaExceeded},
		{"a limit beside a quota that admits", []LimitStatus{limit(1), admits(quota(0))}, CodeRateLimitExceeded},
		{"both, the quota for longer", []LimitStatus{limit(1), quota(2)}, CodeQuotaExceeded},
		{"both, the limit for longer", []LimitStatus{quota(1), limit(2)}, CodeRateLimitExceeded},
		{"both, the quota for ever", []LimitStatus{limit(100), quota(0)}, CodeQuotaExceeded},
		{"both, the limit for ever", []LimitStatus{quota(100), limit(0)}, CodeRateLimitExceeded},
		{"a limit beside a shadow quota", []LimitStatus{shadow(quota(100)), limit(1)}, CodeRateLimitExceeded},
	} {
		d := Decision{Limits: c.limits}
		if got := d.Refusal(); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}
