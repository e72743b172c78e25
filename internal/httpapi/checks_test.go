package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/quota"
)

// checksBody answers a list of checks with a key, the body and the headers.
func checksBody(s *Server, body string, headers ...string) *httptest.ResponseRecorder {
	return do(s, request("POST", "/v1/checks", body, append(headers, withKey, "Content-Type: application/json")...))
}

// list is the body of a list of checks.
func list(checks ...string) string { return `{"checks":[` + strings.Join(checks, ",") + `]}` }

// resultsOf reads the results of an answer, each as it stands there.
func resultsOf(t *testing.T, w *httptest.ResponseRecorder) (results []string) {
	t.Helper()
	wantStatus(t, w, 200)
	var answer struct {
		Results []json.RawMessage `json:"results"`
	}
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil {
		t.Fatalf("%v: %s", err, w.Body)
	}
	for _, r := range answer.Results {
		results = append(results, string(r))
	}
	return results
}

// Each result is, byte for byte, what the check alone would have been answered.
func TestEachResultIsWhatTheCheckAloneIsAnswered(t *testing.T) {
	t.Parallel()
	local, delayed := admitted(), admitted()
	local.Degraded, local.DegradedBy = true, quotad.FailLocal
	delayed.DelayMS = 250
	fault := &quotad.Error{Code: quotad.CodeInvalidRequest, Fields: quotad.Faults{"checks[3].method": "must be an HTTP method"}}
	results := []quota.Result{
		{Decision: admitted()}, {Decision: refused()}, {Decision: local}, {Err: fault}, {Decision: delayed},
		{Err: quotad.NewError(quotad.CodeCostExceedsLimit, "a cost of 7 can never pass")},
		{Err: quotad.NewError(quotad.CodeRouteNotAllowed, "")}, {Err: &quotad.Error{Code: quotad.CodeLimiterUnavailable}},
		{Err: &quotad.Error{Code: quotad.CodeInvalidAPIKey, Cause: errors.New("tenant suspended")}},
		{Err: errors.New("hidden")}, {Decision: quotad.Decision{Allowed: true}},
	}
	for _, language := range []string{"en", "ar"} {
		header := "Accept-Language: " + language
		w := checksBody(service(t, &answers{results: results}, Options{}), list(check), header)
		got := resultsOf(t, w)
		if len(got) != len(results) {
			t.Fatalf("%d results, want %d", len(got), len(results))
		}
		for i, r := range results {
			alone := checkBody(service(t, &answers{decision: r.Decision, err: r.Err}, Options{}), check, header)
			want := alone.Body.String()
			if alone.Code == 200 {
				want = `{"status":200,` + want[1:]
			}
			if got[i] != want {
				t.Errorf("result %d:\ngot  %s\nwant %s", i, got[i], want)
			}
		}
		wantHeaders(t, w, "Content-Type: application/json", "Cache-Control: no-store", "X-Quotad-Degraded: local", "Content-Language: "+language,
			"X-RateLimit-Limit:", "X-RateLimit-Remaining:", "X-RateLimit-Reset:", "RateLimit:", "RateLimit-Policy:", "Retry-After:", "X-Quotad-Delay-Ms:")
		var read []quotad.CheckResult
		if err := json.Unmarshal([]byte("["+strings.Join(got, ",")+"]"), &read); err != nil || read[1].Status != 429 || read[1].Problem.RetryAfter != 30 {
			t.Errorf("a client reads %+v, %v", read[1], err)
		}
	}
	w := checksBody(service(t, &answers{decision: admitted()}, Options{}), list(check))
	wantHeaders(t, w, "Content-Language:", "Vary:", "X-Quotad-Degraded:")
	open := local
	open.DegradedBy = quotad.FailOpen
	for _, both := range [][]quota.Result{{{Decision: open}, {Decision: local}}, {{Decision: local}, {Decision: open}}} {
		wantHeaders(t, checksBody(service(t, &answers{results: both}, Options{}), list(check, check)), "X-Quotad-Degraded: open")
	}
}

func TestAListAsksWhatItsBodySays(t *testing.T) {
	t.Parallel()
	a := &answers{decision: admitted()}
	s := service(t, a, Options{})
	body := ` { "checks" : [ {"route_group":"a"} ,{"cost":0,"method":"post","path":"/v1/x?a]b"},` +
		"\n" + `{"route_group":"b","subject":"}],{\"","ip":"::ffff:10.1.2.3"}` + "\t] }"
	got := resultsOf(t, checksBody(s, body))
	if len(got) != 3 {
		t.Fatalf("%d results", len(got))
	}
	want := []quota.Call{
		{RouteGroup: "a", APIKey: "qk_test", Door: "checks", Address: netip.MustParseAddr("192.0.2.1")},
		{Method: "POST", Path: "/v1/x", Cost: quotad.Units(0)},
		{RouteGroup: "b", Subject: `}],{"`, IP: netip.MustParseAddr("10.1.2.3")},
	}
	if diff := cmp.Diff(want, a.calls, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Error(diff)
	}

	a.calls = nil
	r := request("POST", "/v1/checks", list(`{"tenant":"acme","route_group":"a"}`, `{"tenant":"other","route_group":"a"}`),
		"Authorization: Bearer qa_service", "Content-Type: application/json")
	resultsOf(t, do(s, r))
	if len(a.calls) != 2 || a.calls[0].ServiceToken != "qa_service" || a.calls[0].Tenant != "acme" || a.calls[1].Tenant != "other" {
		t.Errorf("asked %+v", a.calls)
	}
}

// What is wrong with one check is said of it, by its path in the body, all at once; the
// others are asked all the same.
func TestAFaultOfACheckIsItsOwn(t *testing.T) {
	t.Parallel()
	a := &answers{decision: admitted()}
	w := checksBody(service(t, a, Options{}), list(check, `{"route_group":"a","cost":-1}`, `5`,
		`{"route_group":"Not A Name","cots":1,"tenant":"acme","cost":1e3}`, check, `{"route_group":"a","cost":1,"cost":2}`, `{}`, `null`, `[]`))
	got := resultsOf(t, w)
	for i, want := range map[int]string{
		1: `"error":"invalid_cost" {"checks[1].cost":"` + badCost + `"}`,
		2: `"error":"invalid_request" {"checks[2]":"must be an object"}`,
		3: `"error":"invalid_request" {"checks[3].cost":"` + badCost + `","checks[3].cots":"is not a field of this body",` +
			`"checks[3].route_group":"must be the name of a route group","checks[3].tenant":"is for service tokens only: an API key has its own tenant"}`,
		5: `"error":"invalid_cost" {"checks[5].cost":"` + badCost + `"}`,
		6: `"error":"invalid_request" {"checks[6].route_group":"is required, or method and path"}`,
		7: `"error":"invalid_request" {"checks[7]":"must be an object"}`,
		8: `"error":"invalid_request" {"checks[8]":"must be an object"}`,
	} {
		code, fields, _ := strings.Cut(want, " ")
		if !strings.HasPrefix(got[i], "{"+code) || !strings.Contains(got[i], `"status":400`) || !strings.Contains(got[i], `"fields":`+fields) {
			t.Errorf("result %d: got %s, want %s", i, got[i], want)
		}
	}
	for _, i := range []int{0, 4} {
		if !strings.HasPrefix(got[i], `{"status":200,`) {
			t.Errorf("result %d: %s", i, got[i])
		}
	}
	if len(a.calls) != 9 || a.calls[0].Fault != nil || a.calls[1].Fault == nil {
		t.Errorf("asked %+v", a.calls)
	}
}

// What is wrong with the whole is said of it, with the faults of its checks, and none is
// asked.
func TestAListThatIsNoneIsRefusedWhole(t *testing.T) {
	t.Parallel()
	many := func(n int) string { return list(strings.Split(strings.Repeat(check+" ", n), " ")[:n]...) }
	const tooMany = `{"checks":"must hold 1 to 100 checks"}`
	for body, fields := range map[string]string{
		"": "", "null": "", "[]": "", "{": "", `{"checks":[}`: "", `{"checks":[{}]}x`: "", "\ufeff" + list(check): "", list("{\"route_group\":\"\xff\"}"): "",
		"{}": `{"checks":"is required"}`, `{"checks":null}`: `{"checks":"must be a list"}`, `{"checks":{}}`: `{"checks":"must be a list"}`,
		`{"checks":"[]"}`: `{"checks":"must be a list"}`, `{"checks":[]}`: tooMany, `{"checks":[ ] }`: tooMany, many(101): tooMany, many(200): tooMany,
		`{"check":[` + check + `]}`:                                               `{"check":"is not a field of this body","checks":"is required"}`,
		`{"checks":[` + check + `],"checks":[]}`:                                  `{"checks":"is given more than once"}`,
		`{"Checks":[` + check + `],"checks":[` + check + `]}`:                     `{"Checks":"is not a field of this body"}`,
		`{"checks":[` + check + `,{"route_group":"a","cost":"1"}],"atomic":true}`: `{"atomic":"is not a field of this body","checks[1].cost":"` + badCost + `"}`,
	} {
		a := &answers{decision: admitted()}
		w := checksBody(service(t, a, Options{}), body)
		wantRefusal(t, w, quotad.CodeInvalidRequest)
		if fields != "" {
			wantFields(t, w, fields)
		}
		a.neverAsked(t)
	}
	a := &answers{decision: admitted()}
	if got := resultsOf(t, checksBody(service(t, a, Options{}), many(100))); len(got) != 100 || len(a.calls) != 100 {
		t.Errorf("%d results of 100 checks, and %d asked", len(got), len(a.calls))
	}
}

// A cost that JSON has no words for makes the body none: it is refused whole, and told
// which costs are to blame.
func TestOddCostsInAListChargeNothing(t *testing.T) {
	t.Parallel()
	for _, cost := range []string{
		"-1", "-0", "0.5", "1e3", "1E3", "1.0", "NaN", "Infinity", "-Infinity", "+3", "03", "00", "0x1", ".5", "",
		"99999999999999999999", "9007199254740992", `"3"`, `" 3"`, `"NaN"`, `""`, "true", "[1]", `{"a":1}`, "1_000",
	} {
		a := &answers{decision: admitted()}
		w := checksBody(service(t, a, Options{}), list(`{"route_group":"a","cost":1}`, `{"route_group":"a","cost":`+cost+`}`, `{"cost": `+cost+` ,"route_group":"a"}`))
		if json.Valid([]byte(cost)) {
			got := resultsOf(t, w)
			for i := 1; i < 3; i++ {
				if !strings.HasPrefix(got[i], `{"error":"invalid_cost",`) || !strings.Contains(got[i], fmt.Sprintf(`"fields":{"checks[%d].cost":"%s"}`, i, badCost)) {
					t.Errorf("cost %s: %s", cost, got[i])
				}
			}
			for i, call := range a.calls {
				if (call.Fault == nil) != (i == 0) {
					t.Errorf("cost %s: call %d asks %+v", cost, i, call)
				}
			}
			continue
		}
		wantRefusal(t, w, quotad.CodeInvalidCost)
		wantFields(t, w, `{"checks[1].cost":"`+badCost+`","checks[2].cost":"`+badCost+`"}`)
		a.neverAsked(t)
	}
	a := &answers{decision: admitted()}
	w := checksBody(service(t, a, Options{}), `{"checks":[{"route_group":"a","cost":NaN},{"route_group":"b","x":1}]}`)
	wantRefusal(t, w, quotad.CodeInvalidRequest)
	wantFields(t, w, `{"checks[0].cost":"`+badCost+`","checks[1].x":"is not a field of this body"}`)
	w = checksBody(service(t, a, Options{}), `{"checks":[{"route_group":"a","cost":NaN}]`)
	wantRefusal(t, w, quotad.CodeInvalidRequest)
}

func TestTheCredentialOfAListIsThatOfACheck(t *testing.T) {
	t.Parallel()
	const json = "Content-Type: application/json"
	for _, headers := range [][]string{
		{json, withKey, withKey}, {json, "X-API-Key: a,b"}, {json, withKey, "Authorization: Bearer qa_x"}, {json, "Authorization: Bearer a,b"},
	} {
		a := &answers{decision: admitted()}
		w := do(service(t, a, Options{}), request("POST", "/v1/checks", list(check), headers...))
		wantRefusal(t, w, quotad.CodeAmbiguousCredentials)
	}
	a := &answers{decision: admitted()}
	s := service(t, a, Options{})
	wantRefusal(t, do(s, request("POST", "/v1/checks?api_key=qk_x", list(check), json)), quotad.CodeAPIKeyRequired)
	wantRefusal(t, do(s, request("POST", "/v1/checks?cost=1", list(check), json, withKey)), quotad.CodeInvalidRequest)
	wantRefusal(t, do(s, request("POST", "/v1/checks", list(check), withKey)), quotad.CodeUnsupportedMedia)

	invalid := &answers{err: &quotad.Error{Code: quotad.CodeInvalidAPIKey, Cause: errors.New("hidden")}}
	w := checksBody(service(t, invalid, Options{}), list(check))
	wantRefusal(t, w, quotad.CodeInvalidAPIKey)
	wantHeaders(t, w, `WWW-Authenticate: ApiKey realm="quotad"`)
	kept := &answers{decision: refused()}
	w = checksBody(service(t, kept, Options{}), list(check))
	wantRefusal(t, w, quotad.CodeRateLimitExceeded)
	wantHeaders(t, w, "Retry-After: 30", "X-RateLimit-Limit: 20")
}

func TestListsAreCapped(t *testing.T) {
	t.Parallel()
	pad := func(n int) string { return list(check) + strings.Repeat(" ", n-len(list(check))) }
	s := service(t, &answers{decision: admitted()}, Options{})
	wantStatus(t, checksBody(s, pad(maxChecksBody)), 200)
	w := checksBody(s, pad(maxChecksBody+1))
	wantRefusal(t, w, quotad.CodePayloadTooLarge)
	if !strings.Contains(w.Body.String(), "at most 1048576 bytes") {
		t.Errorf("got %s", w.Body)
	}
	r := request("POST", "/v1/checks", pad(maxChecksBody+1), withKey, "Content-Type: application/json")
	r.ContentLength = -1
	wantRefusal(t, do(s, r), quotad.CodePayloadTooLarge)
	long := `{"method":"GET","path":"/` + strings.Repeat("x", 8<<10) + `","subject":"` + strings.Repeat("s", 255) + `"}`
	checks := make([]string, 100)
	for i := range checks {
		checks[i] = long
	}
	if got := resultsOf(t, checksBody(s, list(checks...))); len(got) != 100 {
		t.Errorf("%d results of a hundred checks with the longest paths", len(got))
	}
}

func TestAnAnswerRepeatsLittleOfABadList(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString(`{"checks":[{"route_group":"a"`)
	for i := range 300 {
		fmt.Fprintf(&b, `,"%d%s":1`, i, strings.Repeat("é", 60))
	}
	b.WriteString(`}]`)
	bad := b.String()
	if w := checksBody(service(t, &answers{decision: admitted()}, Options{}), bad+"}"); w.Body.Len() > 4096 {
		t.Errorf("the answer has %d bytes", w.Body.Len())
	}
	w := checksBody(service(t, &answers{decision: admitted()}, Options{}), bad+`,"x":1}`)
	wantRefusal(t, w, quotad.CodeInvalidRequest)
	if w.Body.Len() > 4096 {
		t.Errorf("the answer has %d bytes", w.Body.Len())
	}
}

// A client that hangs up leaves no line of a failure behind.
func TestAListWhoseClientHangsUpIsNoFailure(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	a := &answers{results: []quota.Result{{Err: fmt.Errorf("look up a tenant: %w", context.Canceled)}}}
	s, log := logged(t, a)
	do(s, request("POST", "/v1/checks", list(check), withKey, "Content-Type: application/json").WithContext(ctx))
	if log.Len() > 0 {
		t.Errorf("logged %s", log)
	}
	do(s, request("POST", "/v1/checks", list(check), withKey, "Content-Type: application/json"))
	if !strings.Contains(log.String(), "call failed") {
		t.Errorf("a failure that nobody foresaw is not logged: %s", log)
	}
}

// FuzzDecodeChecks holds the list's decoder to that of one check: what it takes, each
// check alone is read as.
func FuzzDecodeChecks(f *testing.F) {
	for _, body := range []string{
		list(check), list(check, `{"method":"GET","path":"/x","cost":3}`), list(`5`, `{"a":{"b":[1,"}"]}}`, `"]"`), `{"checks":[]}`,
		`{"checks":[{"cost":NaN,"route_group":"a"}]}`, `{"checks":[[[]]],"x":1}`, "{\"checks\" : [ { } \t, -1.5e+3 ]\n}",
	} {
		f.Add([]byte(body), false)
	}
	f.Fuzz(func(t *testing.T, body []byte, byToken bool) {
		calls, err := decodeChecks(body, byToken)
		if err != nil {
			return
		}
		var want struct {
			Checks []json.RawMessage `json:"checks"`
		}
		d := json.NewDecoder(strings.NewReader(string(body)))
		d.DisallowUnknownFields()
		if err := d.Decode(&want); err != nil || len(want.Checks) != len(calls) || len(calls) == 0 || len(calls) > quotad.MaxChecks {
			t.Fatalf("%q is taken as %d checks, but is %d, %v", body, len(calls), len(want.Checks), err)
		}
		for i, call := range calls {
			alone, err := decodeCheck(want.Checks[i], byToken)
			if (err == nil) != (call.Fault == nil) {
				t.Fatalf("%q: check %d is faulty by %v, alone by %v", body, i, call.Fault, err)
			}
			if call.Fault = nil; err == nil && !cmp.Equal(alone, call, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })) {
				t.Errorf("%q: check %d is %+v, alone %+v", body, i, call, alone)
			}
		}
	})
}
