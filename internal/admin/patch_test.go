package admin

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/quotad/quotad"
)

func TestMergeIsThatOfTheRFC(t *testing.T) {
	t.Parallel()
	// The examples of RFC 7396, appendix A, whose target and patch are objects,
	// and what arrays keep.
	tests := []struct{ target, patch, want string }{
		{`{"a":"b"}`, `{"a":"c"}`, `{"a":"c"}`},
		{`{"a":"b"}`, `{"b":"c"}`, `{"a":"b","b":"c"}`},
		{`{"a":"b"}`, `{"a":null}`, `{}`},
		{`{"a":"b","b":"c"}`, `{"a":null}`, `{"b":"c"}`},
		{`{"a":["b"]}`, `{"a":"c"}`, `{"a":"c"}`},
		{`{"a":"c"}`, `{"a":["b"]}`, `{"a":["b"]}`},
		{`{"a":{"b":"c"}}`, `{"a":{"b":"d","c":null}}`, `{"a":{"b":"d"}}`},
		{`{"a":[{"b":"c"}]}`, `{"a":[1]}`, `{"a":[1]}`},
		{`{"e":null}`, `{"a":1}`, `{"e":null,"a":1}`},
		{`{}`, `{"a":{"bb":{"ccc":null}}}`, `{"a":{"bb":{}}}`},
		{`{}`, `{"a":[{"b":null}]}`, `{"a":[{"b":null}]}`},
		{`{"a":[1]}`, `{"a":{"b":1}}`, `{"a":{"b":1}}`},
	}
	for _, test := range tests {
		target, _ := parse([]byte(test.target))
		change, _ := parse([]byte(test.patch))
		got, err := json.Marshal(merge(target, change))
		if err != nil || string(got) != test.want {
			t.Errorf("%s patched with %s: got %s (%v), want %s", test.target, test.patch, got, err, test.want)
		}
	}
}

func pro() quotad.TierSpec {
	return quotad.TierSpec{
		Name: "pro", Description: "d", RateLimit: quotad.Units(10), RateWindow: 60, Algorithm: quotad.TokenBucket,
		Burst: quotad.Units(20), Shadow: true,
		Limits: []quotad.Limit{{
			Name: "a", RouteGroup: "*", Scope: quotad.ScopeTenant, Algorithm: quotad.FixedWindow,
			RateLimit: quotad.Units(1), RateWindow: 1,
		}},
		Quotas: []quotad.Quota{{Name: "q", RouteGroup: "*", Scope: quotad.ScopeTenant, Quota: quotad.Units(5), Period: quotad.Month}},
	}
}

func TestPatchChangesWhatItNames(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		body string
		want func(*quotad.TierSpec)
	}{
		"nothing":   {`{}`, func(*quotad.TierSpec) {}},
		"one field": {`{"rate_limit":100}`, func(s *quotad.TierSpec) { s.RateLimit = quotad.Units(100) }},
		"unlimited": {`{"rate_limit":null,"burst":null}`, func(s *quotad.TierSpec) { s.RateLimit, s.Burst = nil, nil }},
		"back to usual": {`{"algorithm":null,"burst":null,"shadow":null,"description":null}`, func(s *quotad.TierSpec) {
			s.Algorithm, s.Burst, s.Shadow, s.Description = quotad.SlidingWindowCounter, nil, false, ""
		}},
		"another queue": {`{"algorithm":"leaky_bucket","max_delay_ms":500}`, func(s *quotad.TierSpec) {
			s.Algorithm, s.MaxDelayMS = quotad.LeakyBucket, 500
		}},
		"no quotas": {`{"quotas":null}`, func(s *quotad.TierSpec) { s.Quotas = []quotad.Quota{} }},
		"other quotas": {`{"quotas":[{"name":"b","quota":null,"period":"day"}]}`, func(s *quotad.TierSpec) {
			s.Quotas = []quotad.Quota{{Name: "b", RouteGroup: "*", Scope: quotad.ScopeTenant, Period: quotad.Day}}
		}},
		"no limits":    {`{"limits":null}`, func(s *quotad.TierSpec) { s.Limits = []quotad.Limit{} }},
		"empty limits": {`{"limits":[]}`, func(s *quotad.TierSpec) { s.Limits = []quotad.Limit{} }},
		"other limits": {`{"limits":[{"name":"b","rate_limit":null,"rate_window":5}]}`, func(s *quotad.TierSpec) {
			s.Limits = []quotad.Limit{{Name: "b", RouteGroup: "*", Scope: quotad.ScopeKey, Algorithm: quotad.SlidingWindowCounter, RateWindow: 5}}
		}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			patch, err := decodePatch[quotad.TierSpec](sent("application/merge-patch+json", test.body), quotad.Tier{})
			if err != nil {
				t.Fatal(err)
			}
			want := pro()
			test.want(&want)
			for range 2 { // a store applies it again when another write came first
				got := pro()
				if err := patch.apply(&got); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Error(diff)
				}
			}
		})
	}
}

func TestPatchReportsAllFaultsAtOnce(t *testing.T) {
	t.Parallel()
	patch, err := decodePatch[quotad.TierSpec](sent("application/json",
		`{"rate_window":0,"burst":"x","created_at":null,"nope":null,"shadow":1,"shadow":2,"limits":[{"name":"b","rate_window":1}],"rate_limit":-1}`), quotad.Tier{})
	if err != nil {
		t.Fatal(err)
	}
	want := quotad.Faults{
		"rate_window":          "must be at least 1",
		"rate_limit":           "must be at least 0",
		"burst":                "must be a whole number",
		"created_at":           "is read-only",
		"nope":                 "is not a known field",
		"shadow":               "is given twice",
		"limits[0].rate_limit": "is required; null means unlimited",
	}
	for range 2 {
		spec := pro()
		if diff := cmp.Diff(want, faultsOf(t, patch.apply(&spec))); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff(pro(), spec); diff != "" {
			t.Errorf("a refused patch changed the value: %s", diff)
		}
	}
}

func TestPatchForgetsWhatWasWrongTheLastTime(t *testing.T) {
	t.Parallel()
	patch, err := decodePatch[quotad.TierSpec](sent("application/json", `{"nope":1,"burst":5}`), quotad.Tier{})
	if err != nil {
		t.Fatal(err)
	}
	spec := pro()
	spec.Algorithm = quotad.FixedWindow
	if faults := faultsOf(t, patch.apply(&spec)); len(faults) != 2 {
		t.Errorf("got %v", faults)
	}
	spec = pro()
	if faults := faultsOf(t, patch.apply(&spec)); len(faults) != 1 {
		t.Errorf("got %v", faults)
	}
}

func TestPatchKeepsMetadataThatItDoesNotName(t *testing.T) {
	t.Parallel()
	patch, err := decodePatch[quotad.TenantSpec](sent("application/json", `{"metadata":{"a":null,"c":{"d":2},"big":12345678901234567890}}`), quotad.Tenant{})
	if err != nil {
		t.Fatal(err)
	}
	spec := quotad.TenantSpec{ID: "x", Name: "X", Tier: "t", Metadata: map[string]any{
		"a": 1, "b": json.Number("98765432109876543210"), "c": map[string]any{"e": "f"},
	}}
	if err := patch.apply(&spec); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"b": json.Number("98765432109876543210"), "big": json.Number("12345678901234567890"),
		"c": map[string]any{"d": json.Number("2"), "e": "f"},
	}
	if diff := cmp.Diff(want, spec.Metadata); diff != "" {
		t.Error(diff)
	}
}
