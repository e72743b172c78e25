package admin

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/labstack/echo/v4"

	"github.com/quotad/quotad"
)

// sent is a request with the body, as a handler sees it.
func sent(mediaType, body string) echo.Context {
	req := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body))
	req.Header.Set("Content-Type", mediaType)
	return echo.New().NewContext(req, httptest.NewRecorder())
}

func faultsOf(t *testing.T, err error) quotad.Faults {
	t.Helper()
	var e *quotad.Error
	if err == nil {
		return nil
	}
	if !errors.As(err, &e) || e.Code != quotad.CodeInvalidFields {
		t.Fatalf("got error %v, want invalid fields", err)
	}
	return e.Fields
}

func TestDecodeFillsEveryField(t *testing.T) {
	t.Parallel()
	got, err := decode[quotad.TierSpec](sent("application/json; charset=UTF-8", `{
		"name":"pro","description":"d","rate_limit":0,"rate_window":60,"algorithm":"leaky_bucket","burst":5,"max_delay_ms":250,
		"on_store_failure":"closed","shadow":true,"limits":[{"name":"exports","route_group":"exports","scope":"tenant",
		"algorithm":"fixed_window","rate_limit":null,"rate_window":300,"burst":null,"max_delay_ms":0,"shadow":true}],
		"quotas":[{"name":"monthly","route_group":"exports","scope":"key","quota":0,"period":"month","shadow":true}]}`), quotad.Tier{})
	if err != nil {
		t.Fatal(err)
	}
	closed := quotad.FailClosed
	want := quotad.TierSpec{
		Name: "pro", Description: "d", RateLimit: quotad.Units(0), RateWindow: 60, Algorithm: quotad.LeakyBucket,
		Burst: quotad.Units(5), MaxDelayMS: 250, OnStoreFailure: &closed, Shadow: true,
		Limits: []quotad.Limit{{
			Name: "exports", RouteGroup: "exports", Scope: quotad.ScopeTenant, Algorithm: quotad.FixedWindow,
			RateWindow: 300, Shadow: true,
		}},
		Quotas: []quotad.Quota{{
			Name: "monthly", RouteGroup: "exports", Scope: quotad.ScopeKey, Quota: quotad.Units(0), Period: quotad.Month, Shadow: true,
		}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestDecodeReportsAllFaultsAtOnce(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		body string
		want quotad.Faults
	}{
		"shape and meaning together": {
			`{"name":"Pro","rate_limit":-1,"rate_window":"60","algorithm":7,"shadow":"no","burst":1.5,"plan":1,"version":3,
			"limits":[{"name":"a","rate_limit":1e3,"rate_window":0,"extra":null},{"name":"a","rate_limit":1,"rate_window":1},3,null],
			"max_delay_ms":1,"quotas":[{"name":"a","quota":"1","period":"hour","burst":1},{"name":"b","quota":-1,"period":5},null]}`,
			quotad.Faults{
				"name":                  "must match ^[a-z0-9][a-z0-9._-]{0,62}$",
				"rate_limit":            "must be at least 0",
				"rate_window":           "must be a whole number",
				"algorithm":             "must be a string",
				"shadow":                "must be true or false",
				"burst":                 "must be a whole number",
				"plan":                  "is not a known field",
				"version":               "is read-only",
				"limits[0].rate_limit":  "must be a whole number",
				"limits[0].rate_window": "must be at least 1",
				"limits[0].extra":       "is not a known field",
				"limits[1].name":        "is used by another limit",
				"limits[2]":             "must be an object",
				"limits[3]":             "must not be null",
				"max_delay_ms":          "only a leaky_bucket lets a call wait",
				"quotas[0].name":        "is used by another limit or quota",
				"quotas[0].quota":       "must be a whole number",
				"quotas[0].period":      "must be one of day, week, month, year",
				"quotas[0].burst":       "is not a known field",
				"quotas[1].quota":       "must be at least 0",
				"quotas[1].period":      "must be a string",
				"quotas[2]":             "must not be null",
			},
		},
		"unlimited is said, not left out": {
			`{"name":"a","rate_window":60,"limits":[{"name":"b","rate_window":1}],"quotas":[{"name":"c","period":"day"}]}`,
			quotad.Faults{
				"rate_limit":           "is required; null means unlimited",
				"limits[0].rate_limit": "is required; null means unlimited",
				"quotas[0].quota":      "is required; null means unlimited",
			},
		},
		"required": {
			`{"rate_limit":1,"name":null,"limits":[{"rate_limit":1}],"quotas":[{"quota":1}]}`,
			quotad.Faults{
				"name": "is required", "rate_window": "is required", "limits[0].name": "is required", "limits[0].rate_window": "is required",
				"quotas[0].name": "is required", "quotas[0].period": "is required",
			},
		},
		"given twice": {
			`{"name":"a","name":"b","rate_limit":1,"rate_window":1,"limits":[{"name":"c","rate_limit":1,"rate_limit":2,"rate_window":1}]}`,
			quotad.Faults{"name": "is given twice", "limits[0].rate_limit": "is given twice"},
		},
		"case of names": {
			`{"name":"a","rate_limit":1,"rate_window":1,"Shadow":true}`,
			quotad.Faults{"Shadow": "is not a known field"},
		},
		"beyond what can be counted": {
			`{"name":"a","rate_limit":99999999999999999999,"rate_window":-99999999999999999999,"burst":9007199254740992,"algorithm":"token_bucket"}`,
			quotad.Faults{"rate_limit": "must be at most 9007199254740991", "rate_window": "must be at least 0", "burst": "must be at most 9007199254740991"},
		},
		"empty is not the default": {
			`{"name":"a","rate_limit":0,"rate_window":1,"algorithm":"","limits":[{"name":"b","rate_limit":0,"rate_window":1,"scope":"","route_group":""}]}`,
			quotad.Faults{"algorithm": "must not be empty", "limits[0].scope": "must not be empty", "limits[0].route_group": "must not be empty"},
		},
		"nothing":        {``, quotad.Faults{"body": "is required: a JSON object"}},
		"null":           {`null`, quotad.Faults{"body": "must be a JSON object"}},
		"array":          {`[]`, quotad.Faults{"body": "must be a JSON object"}},
		"cut off":        {`{"name":"a"`, quotad.Faults{"body": "is not valid JSON: it ends too early"}},
		"not JSON":       {`{"name":'a'}`, quotad.Faults{"body": "is not valid JSON after byte 8"}},
		"something else": {`{"name":"a"} {}`, quotad.Faults{"body": "must be one JSON object with nothing behind it"}},
		"a brace":        {`{"name":"a"}}`, quotad.Faults{"body": "must be one JSON object with nothing behind it"}},
		"not UTF-8":      {"{\"name\":\"\xff\"}", quotad.Faults{"body": "must be UTF-8"}},
		"too deep": {
			`{"limits":` + strings.Repeat("[", 60000) + `}`,
			quotad.Faults{"body": "must not nest deeper than 32"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := decode[quotad.TierSpec](sent("application/json", test.body), quotad.Tier{})
			if diff := cmp.Diff(test.want, faultsOf(t, err)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestDecodeBoundsWhatItSaysOfABody(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("é", 10_000)
	var body strings.Builder
	body.WriteString(`{"` + long + `":0`)
	for i := range 2_000 {
		body.WriteString(`,"f` + strings.Repeat("x", i%10) + string(rune('a'+i%26)) + string(rune('a'+i/26%26)) + `":1`)
	}
	body.WriteString(`}`)
	_, err := decode[quotad.TierSpec](sent("application/json", body.String()), quotad.Tier{})
	faults := faultsOf(t, err)
	if len(faults) > maxFaults+20 {
		t.Errorf("got %d faults", len(faults))
	}
	for field := range faults {
		if len(field) > 2*maxName {
			t.Errorf("a field's name has %d bytes", len(field))
		}
	}
}

func TestDecodeReadsKeys(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		body string
		want quotad.Faults
	}{
		"nothing said": {`{}`, nil},
		"nulls":        {`{"name":null,"rate_limit":null,"rate_window":null,"route_groups":null,"allowed_cidrs":null,"expires_at":null,"status":null}`, nil},
		"everything":   {`{"name":"ci","rate_limit":5,"rate_window":60,"route_groups":["a"],"allowed_cidrs":["10.0.0.0/8","2001:db8::/32"],"expires_at":"2030-01-31T12:00:00+02:00","status":"disabled"}`, nil},
		"wrong forms": {
			`{"allowed_cidrs":["10.0.0.0/33","x",7],"expires_at":"tomorrow","route_groups":["a",null,{}],"id":"x","tenant":"acme","hint":"h","secret":"s","last_used_at":null}`,
			quotad.Faults{
				"allowed_cidrs[0]": "must be a range of addresses, such as 192.0.2.0/24",
				"allowed_cidrs[1]": "must be a range of addresses, such as 192.0.2.0/24",
				"allowed_cidrs[2]": "must be a range of addresses, such as 192.0.2.0/24",
				"expires_at":       "must be a time in RFC 3339, such as 2030-01-31T12:00:00Z",
				"route_groups[1]":  "must not be null",
				"route_groups[2]":  "must be a string",
				"id":               "is read-only",
				"tenant":           "is read-only",
				"hint":             "is read-only",
				"secret":           "is read-only",
				"last_used_at":     "is read-only",
			},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := decode[quotad.KeySpec](sent("application/json", test.body), quotad.Key{})
			if diff := cmp.Diff(test.want, faultsOf(t, err)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestDecodeKeepsMetadataAsItIs(t *testing.T) {
	t.Parallel()
	const metadata = `{"n":12345678901234567890,"f":1.50,"list":[null,{"a":null}],"html":"<b>&","u":"é\u2028"}`
	got, err := decode[quotad.TenantSpec](sent("application/json",
		`{"id":"a","name":"A","tier":"t","metadata":`+metadata+`}`), quotad.Tenant{})
	if err != nil {
		t.Fatal(err)
	}
	var want map[string]any
	dec := json.NewDecoder(strings.NewReader(metadata))
	dec.UseNumber()
	if err := dec.Decode(&want); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got.Metadata); diff != "" {
		t.Error(diff)
	}
}

func TestDecodeRefusesMetadataThatNoStoreKeeps(t *testing.T) {
	t.Parallel()
	_, err := decode[quotad.TenantSpec](sent("application/json",
		`{"id":"a","name":"A","tier":"t","metadata":{"a":{"b":["\u0000"]},"c":1e999,"d\u0000":1,"e":1,"e":2},"billing_anchor_day":0}`), quotad.Tenant{})
	want := quotad.Faults{
		"metadata.a.b[0]":    "must not contain NUL",
		"metadata.c":         "is too large a number",
		"metadata":           "must not contain NUL",
		"metadata.e":         "is given twice",
		"billing_anchor_day": "must not be 0",
	}
	if diff := cmp.Diff(want, faultsOf(t, err)); diff != "" {
		t.Error(diff)
	}
}

func TestBodiesOfOtherTypesAndSizesAreRefused(t *testing.T) {
	t.Parallel()
	big := `{"name":"` + strings.Repeat("a", maxBody) + `"}`
	chunked := sent("application/json", big)
	chunked.Request().ContentLength = -1
	encoded := sent("application/json", `{}`)
	encoded.Request().Header.Set("Content-Encoding", "gzip")
	tests := map[string]struct {
		request echo.Context
		want    quotad.Code
	}{
		"no type":         {sent("", `{}`), quotad.CodeUnsupportedMedia},
		"form":            {sent("application/x-www-form-urlencoded", `a=b`), quotad.CodeUnsupportedMedia},
		"text":            {sent("text/plain", `{}`), quotad.CodeUnsupportedMedia},
		"patch":           {sent("application/merge-patch+json", `{}`), quotad.CodeUnsupportedMedia},
		"other charset":   {sent("application/json; charset=utf-16", `{}`), quotad.CodeUnsupportedMedia},
		"encoded":         {encoded, quotad.CodeUnsupportedMedia},
		"too large":       {sent("application/json", big), quotad.CodePayloadTooLarge},
		"too large, sent": {chunked, quotad.CodePayloadTooLarge},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := decode[quotad.TierSpec](test.request, quotad.Tier{})
			if !errors.Is(err, &quotad.Error{Code: test.want}) {
				t.Errorf("got %v, want %s", err, test.want)
			}
		})
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(`{"name":"a","rate_limit":1,"rate_window":1,"limits":[{"name":"b"}]}`)
	f.Add(`{"a":[1,{"a":2,"a":3}],"b":null}`)
	f.Add("{\"limits\":[null,{\"name\":\"\\ud800\"}],\"expires_at\":\"0000-01-01T00:00:00Z\"}")
	f.Fuzz(func(t *testing.T, body string) {
		request := func() echo.Context { return sent("application/json", body) }
		if spec, err := decode[quotad.TierSpec](request(), quotad.Tier{}); err == nil {
			var plain quotad.TierSpec
			if err := json.Unmarshal([]byte(body), &plain); err != nil {
				t.Fatalf("accepted what encoding/json refuses: %v", err)
			}
			plain.SetDefaults()
			if diff := cmp.Diff(plain, spec); diff != "" {
				t.Fatal(diff)
			}
		}
		if spec, err := decode[quotad.KeySpec](request(), quotad.Key{}); err == nil {
			var plain quotad.KeySpec
			if err := json.Unmarshal([]byte(body), &plain); err != nil {
				t.Fatalf("accepted what encoding/json refuses: %v", err)
			}
			plain.SetDefaults()
			if diff := cmp.Diff(plain, spec, cmpopts.EquateComparable(), cmp.Comparer(time.Time.Equal)); diff != "" {
				t.Fatal(diff)
			}
		}
		_, _ = decode[quotad.TenantSpec](request(), quotad.Tenant{})
	})
}
