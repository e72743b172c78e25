package quotad

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestACheckResultIsTheDecisionOrTheProblemWithItsStatus(t *testing.T) {
	t.Parallel()
	d := Decision{Allowed: true, Tenant: "acme", KeyID: "k1", Tier: "pro", RouteGroup: "exports", Cost: 1, Limits: appendLimits}
	p := ProblemOf(&Error{Code: CodeRateLimitExceeded})
	p.ViolatedPolicies, p.Limits = []string{"exports"}, appendLimits
	text, err := json.Marshal([]CheckResult{{Status: 200, Decision: &d}, {Status: 429, Problem: &p}})
	if err != nil {
		t.Fatal(err)
	}
	want := `[` + strings.Replace(byReflection(t, d), "{", `{"status":200,`, 1) + `,` + byReflection(t, p) + `]`
	if string(text) != want {
		t.Errorf("got  %s\nwant %s", text, want)
	}
	var got []CheckResult
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if len(got) != 2 || got[0].Status != 200 || got[0].Problem != nil || got[1].Status != 429 || got[1].Decision != nil {
		t.Fatalf("got %+v", got)
	}
	if byReflection(t, got[0].Decision) != byReflection(t, d) || byReflection(t, got[1].Problem) != byReflection(t, p) {
		t.Errorf("read %+v and %+v", got[0].Decision, got[1].Problem)
	}
}

func TestACheckResultOfNeitherIsNoJSON(t *testing.T) {
	t.Parallel()
	if text, err := json.Marshal(CheckResult{Status: 200}); err == nil {
		t.Errorf("wrote %s", text)
	}
	for _, text := range []string{`5`, `{"status":"200"}`, `{"status":200,"allowed":1}`, `{"status":429,"error":1}`} {
		if err := json.Unmarshal([]byte(text), new(CheckResult)); err == nil {
			t.Errorf("read %s", text)
		}
	}
}

func TestACheckRequestLeavesOutWhatItDoesNotSay(t *testing.T) {
	t.Parallel()
	text, _ := json.Marshal(CheckRequest{RouteGroup: "exports", Cost: Units(0)})
	if want := `{"route_group":"exports","cost":0}`; string(text) != want {
		t.Errorf("got %s, want %s", text, want)
	}
}
