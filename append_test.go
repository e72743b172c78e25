package quotad

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"testing"
)

// byReflection is the value as encoding/json writes it with <, > and & as they are.
func byReflection(t *testing.T, v any) string {
	t.Helper()
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

var appendLimits = []LimitStatus{
	{
		Policy: "exports", Scope: ScopeKey, Algorithm: TokenBucket, Limit: 20, Remaining: 19,
		Window: 300, ResetAfter: 15, RetryAfter: 3, Allowed: true,
	},
	{Policy: `a"b`, Scope: ScopeTenant, Algorithm: FixedWindow, Limit: MaxUnits, Window: MaxWindow, Shadow: true},
}

func TestAppendDecisionIsWhatEncodingJSONWrites(t *testing.T) {
	t.Parallel()
	for _, d := range []Decision{
		{Limits: []LimitStatus{}},
		{
			Allowed: true, Tenant: "acme", KeyID: "k1", Tier: "pro", RouteGroup: "exports", Cost: 1,
			RetryAfter: 30, DelayMS: 250, Degraded: true, Limits: appendLimits, DegradedBy: FailOpen,
		},
		{Tenant: "<&>\u2028\x00\xff", Cost: math.MinInt64, Limits: appendLimits[:1]},
	} {
		if got, want := string(d.AppendJSON(nil)), byReflection(t, d); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

func TestAppendDecisionIsTheDocumentedOne(t *testing.T) {
	t.Parallel()
	d := Decision{
		Allowed: true, Tenant: "acme", KeyID: "k", Tier: "pro", RouteGroup: "exports", Cost: 1,
		Limits: []LimitStatus{{
			Policy: "exports", Scope: ScopeKey, Algorithm: TokenBucket, Limit: 20, Remaining: 19,
			Window: 300, ResetAfter: 15, Allowed: true,
		}},
	}
	const want = `{"allowed":true,"tenant":"acme","key_id":"k","tier":"pro","route_group":"exports","cost":1,"retry_after":0,` +
		`"delay_ms":0,"degraded":false,"limits":[{"policy":"exports","scope":"key","algorithm":"token_bucket","limit":20,` +
		`"remaining":19,"window":300,"reset_after":15,"retry_after":0,"allowed":true,"shadow":false}]}`
	if got := string(d.AppendJSON(nil)); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestAppendNoLimitsIsAnEmptyList(t *testing.T) {
	t.Parallel()
	d := Decision{Allowed: true}
	if got := string(d.AppendJSON(nil)); !strings.HasSuffix(got, `"limits":[]}`) {
		t.Errorf("got %s", got)
	}
}

func TestAppendProblemIsWhatEncodingJSONWrites(t *testing.T) {
	t.Parallel()
	for _, p := range []Problem{
		{},
		ProblemOf(ErrInvalidAPIKey),
		ProblemOf(&Error{Code: CodeInvalidFields, Fields: Faults{"b": "x", "a\n": "<y>", "c": "z"}}),
		{
			Error: CodeRateLimitExceeded, Message: "طلبات كثيرة", RetryAfter: 30, Type: "t", Title: "T", Status: 429,
			Detail: "d", ViolatedPolicies: []string{"exports", "base"}, Limits: appendLimits,
		},
	} {
		if got, want := string(p.AppendJSON(nil)), byReflection(t, p); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

func FuzzAppendStringIsWhatEncodingJSONWrites(f *testing.F) {
	for _, s := range []string{"", "plain", "\"\\\b\f\n\r\t\x00\x1f\x7f", "<&>", "日本語\u2028\u2029", "\xff\xc3", "a\ufffdb", "😀"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if got, want := string(AppendString(nil, s)), byReflection(t, s); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	})
}
