package httpapi

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/quota"
)

func TestACheckAnswersWithTheDecision(t *testing.T) {
	t.Parallel()
	a := &answers{decision: admitted()}
	w := checkBody(service(t, a, Options{}), check)
	wantStatus(t, w, 200)
	wantHeaders(t, w, "Content-Type: application/json", "X-RateLimit-Limit: 20", "Cache-Control: no-store")
	var got quotad.Decision
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(admitted(), got, cmpopts.IgnoreFields(quotad.LimitStatus{}, "ResetAt")); diff != "" {
		t.Error(diff)
	}
}

func TestACheckAsksWhatItsBodySays(t *testing.T) {
	t.Parallel()
	peer := netip.MustParseAddr("192.0.2.1")
	for body, want := range map[string]quota.Call{
		`{"route_group":"exports"}`:                    {RouteGroup: "exports"},
		" {\n\t\"route_group\" : \"exports\" \r\n} ":   {RouteGroup: "exports"},
		`{"route_group":"\u0065xports"}`:               {RouteGroup: "exports"},
		`{"\u0072oute_group":"exports"}`:               {RouteGroup: "exports"},
		`{"method":"POST","path":"/v1/exports"}`:       {Method: "POST", Path: "/v1/exports"},
		`{"method":"post","path":"/v1/x?a=b?c"}`:       {Method: "POST", Path: "/v1/x"},
		`{"path":"/a%2Fb/../c","method":"PURGE"}`:      {Method: "PURGE", Path: "/a%2Fb/../c"},
		`{"route_group":"a","cost":0}`:                 {RouteGroup: "a", Cost: quotad.Units(0)},
		`{"route_group":"a","cost":9007199254740991}`:  {RouteGroup: "a", Cost: quotad.Units(quotad.MaxUnits)},
		`{"cost" : 7 ,"route_group":"a"}`:              {RouteGroup: "a", Cost: quotad.Units(7)},
		`{"route_group":"a","subject":"日本語 😀"}`:        {RouteGroup: "a", Subject: "日本語 😀"},
		`{"route_group":"a","subject":"\ud83d\ude00"}`: {RouteGroup: "a", Subject: "😀"},
		`{"route_group":"a","subject":"}]{[\",:\\"}`:   {RouteGroup: "a", Subject: `}]{[",:\`},
		`{"route_group":"a","ip":"2001:db8::1"}`:       {RouteGroup: "a", IP: netip.MustParseAddr("2001:db8::1")},
		`{"route_group":"a","ip":"::ffff:10.1.2.3"}`:   {RouteGroup: "a", IP: netip.MustParseAddr("10.1.2.3")},
		`{"route_group":"a","cost":null,"subject":null,"ip":null,"tenant":null,"method":null,"path":null}`: {RouteGroup: "a"},
	} {
		a := &answers{decision: admitted()}
		w := checkBody(service(t, a, Options{}), body)
		if w.Code != 200 {
			t.Errorf("%s: %d %s", body, w.Code, w.Body)
			continue
		}
		want.APIKey, want.Door, want.Address = "qk_test", "check", peer
		if diff := cmp.Diff(want, a.asked(t), cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
			t.Errorf("%s: %s", body, diff)
		}
	}
}

func TestOddCostsAreRefusedAndChargeNothing(t *testing.T) {
	t.Parallel()
	for _, cost := range []string{
		"-1", "-0", "0.5", "1e3", "1E3", "1.0", "NaN", "Infinity", "-Infinity", "+3", "03", "00", "0x1", ".5", "",
		"99999999999999999999", "9007199254740992", `"3"`, `" 3"`, `"+3"`, `"NaN"`, `""`, "true", "[1]", `{"a":1}`, "1_000",
	} {
		a := &answers{decision: admitted()}
		s := service(t, a, Options{})
		for _, body := range []string{`{"route_group":"a","cost":` + cost + `}`, `{"cost": ` + cost + ` ,"route_group":"a"}`} {
			w := checkBody(s, body)
			wantRefusal(t, w, quotad.CodeInvalidCost)
			wantFields(t, w, `{"cost":"`+badCost+`"}`)
		}
		if cost[:min(1, len(cost))] != `"` {
			wantRefusal(t, get(s, "/v1/ping?cost="+strings.ReplaceAll(cost, "+", "%2B")), quotad.CodeInvalidCost)
		}
		a.neverAsked(t)
	}
	a := &answers{decision: admitted()}
	s := service(t, a, Options{})
	for _, body := range []string{`{"route_group":"a","cost":1,"cost":1}`, `{"cost":1,"route_group":"a","c\u006fst":2}`} {
		wantRefusal(t, checkBody(s, body), quotad.CodeInvalidCost)
	}
	for _, query := range []string{"cost=1&cost=1", "cost=%203", "cost=3%20", "cost"} {
		wantRefusal(t, get(s, "/v1/ping?"+query), quotad.CodeInvalidCost)
	}
	a.neverAsked(t)
}

func TestAPingTakesTheCostOfItsQuery(t *testing.T) {
	t.Parallel()
	a := &answers{decision: admitted()}
	w := get(service(t, a, Options{}), "/v1/ping?cost=3")
	wantStatus(t, w, 200)
	if w.Body.String() != `{"pong":true}` {
		t.Errorf("got %s", w.Body)
	}
	want := quota.Call{
		APIKey: "qk_test", Method: "GET", Path: "/v1/ping", Cost: quotad.Units(3), Door: "ping", Address: netip.MustParseAddr("192.0.2.1"),
	}
	if diff := cmp.Diff(want, a.asked(t), cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Error(diff)
	}
}

func TestParametersThatAreNotReadAreRefused(t *testing.T) {
	t.Parallel()
	a := &answers{decision: admitted()}
	s := service(t, a, Options{})
	w := get(s, "/v1/ping?cots=3&x=1")
	wantRefusal(t, w, quotad.CodeInvalidRequest)
	wantFields(t, w, `{"cots":"is not a parameter of this call","x":"is not a parameter of this call"}`)
	wantRefusal(t, get(s, "/v1/limits?route_group=a&route_group=b"), quotad.CodeInvalidRequest)
	wantRefusal(t, get(s, "/v1/limits?cost=1"), quotad.CodeInvalidRequest)
	wantRefusal(t, get(s, "/v1/ping?a=%zz"), quotad.CodeInvalidRequest)
	wantRefusal(t, get(s, "/v1/ping?cost=1;x=2"), quotad.CodeInvalidRequest)
	wantRefusal(t, do(s, request("POST", "/v1/check?cost=1", check, withKey, "Content-Type: application/json")), quotad.CodeInvalidRequest)
	a.neverAsked(t)
}

func TestAllFaultsOfABodyAreNamedAtOnce(t *testing.T) {
	t.Parallel()
	a := &answers{decision: admitted()}
	w := checkBody(service(t, a, Options{}), `{"route_group":"Not A Name","method":"G T","path":1,"cost":-1,"subject":"a\u0000","ip":"10.0.0.1:80",`+
		`"tenant":"","Route_Group":"x","<b>":{"deep":[1,{"a":"}"}]},"subject":"twice"}`)
	wantRefusal(t, w, quotad.CodeInvalidRequest)
	wantFields(t, w, `{"<b>":"is not a field of this body","Route_Group":"is not a field of this body",`+
		`"cost":"`+badCost+`","ip":"must be an IPv4 or IPv6 address","method":"must be an HTTP method","path":"must be a string",`+
		`"route_group":"must be the name of a route group","subject":"is given more than once","tenant":"must not be empty"}`)
	a.neverAsked(t)
}

func TestBodiesThatAreNoQuestionAreRefused(t *testing.T) {
	t.Parallel()
	for _, body := range []string{
		"", " ", "null", "[]", `"a"`, "1", "{", "}", "{}", `{}`, `{"route_group":"a"}x`, `{"route_group":"a"}{}`,
		`{"route_group":"a"},`, `{'route_group':'a'}`, "{\"route_group\":\"\xff\"}", "{\"method\":\"GET\",\"path\":\"/\xff\"}", `{"route_group":"a",}`, `{"route_group":""}`,
		`{"method":"GET"}`, `{"path":"/x"}`, `{"route_group":"a","path":"/x"}`, `{"route_group":"a","method":"GET","path":"/x"}`,
		`{"route_group":"a","route_group":"a"}`, `{"ROUTE_GROUP":"a"}`, `{"route_group":"*"}`, `{"route_group":["a"]}`,
		`{"route_group":"a","subject":"\ud800"}`, `{"route_group":"a","subject":"` + strings.Repeat("é", 128) + `"}`,
		`{"route_group":"a","subject":"a\nb"}`, `{"route_group":"a","subject":"a\u2028b"}`, `{"route_group":"a","ip":"localhost"}`,
		"\ufeff" + check, strings.Repeat("[", 20000),
	} {
		a := &answers{decision: admitted()}
		w := checkBody(service(t, a, Options{}), body)
		if w.Code != 400 {
			t.Errorf("%.60q: got %d", body, w.Code)
		}
		wantRefusal(t, w, quotad.CodeInvalidRequest)
		a.neverAsked(t)
	}
}

func TestAnAnswerRepeatsLittleOfABadBody(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString(`{"route_group":"a"`)
	for range 300 {
		b.WriteString(`,"` + strings.Repeat("x", b.Len()%90) + strings.Repeat("é", 60) + `":1`)
	}
	b.WriteString("}")
	w := checkBody(service(t, &answers{}, Options{}), b.String())
	wantRefusal(t, w, quotad.CodeInvalidRequest)
	if w.Body.Len() > 4096 {
		t.Errorf("the answer has %d bytes", w.Body.Len())
	}
}

func TestBodiesAreCapped(t *testing.T) {
	t.Parallel()
	pad := func(n int) string { return check + strings.Repeat(" ", n-len(check)) }
	a := &answers{decision: admitted()}
	s := service(t, a, Options{})
	wantStatus(t, checkBody(s, pad(maxBody)), 200)
	wantRefusal(t, checkBody(s, pad(maxBody+1)), quotad.CodePayloadTooLarge)
	r := request("POST", "/v1/check", pad(maxBody+1), withKey, "Content-Type: application/json")
	r.ContentLength = -1
	wantRefusal(t, do(s, r), quotad.CodePayloadTooLarge)
}

func TestOnlyJSONIsRead(t *testing.T) {
	t.Parallel()
	for contentType, want := range map[string]int{
		"application/json":                   200,
		"application/json; charset=utf-8":    200,
		"Application/JSON;charset=\"UTF-8\"": 200,
		"application/json; charset=latin1":   415,
		"application/x-www-form-urlencoded":  415,
		"text/json":                          415,
		"application/jsonx":                  415,
		"":                                   415,
		";":                                  415,
	} {
		a := &answers{decision: admitted()}
		w := do(service(t, a, Options{}), request("POST", "/v1/check", check, withKey, "Content-Type: "+contentType))
		if w.Code != want {
			t.Errorf("%q: got %d", contentType, w.Code)
		}
	}
	a := &answers{}
	s := service(t, a, Options{})
	wantRefusal(t, do(s, request("POST", "/v1/check", check, withKey)), quotad.CodeUnsupportedMedia)
	wantRefusal(t, checkBody(s, check, "Content-Encoding: gzip"), quotad.CodeUnsupportedMedia)
	a.neverAsked(t)
}

// FuzzDecodeCheck holds the decoder to encoding/json: what it takes, that takes
// too, and reads the same.
func FuzzDecodeCheck(f *testing.F) {
	for _, body := range []string{
		check, `{"method":"GET","path":"/x","cost":3,"subject":"s\n","ip":"::1","tenant":"t"}`, `{"a":{"b":[1,"}"]},"cost":1e3}`,
		`{"route_group":"\u0061","cost":null}`, `{ }`, `{"":""}`, `[{}]`, `{"cost":NaN}`, "{\"\\\"\":-1.5e+3 , \"x\":[ ]\t}",
	} {
		f.Add([]byte(body), false)
	}
	f.Fuzz(func(t *testing.T, body []byte, byToken bool) {
		call, err := decodeCheck(body, byToken)
		if err != nil {
			return
		}
		var want struct {
			RouteGroup string `json:"route_group"`
			Method     string `json:"method"`
			Path       string `json:"path"`
			Cost       *int64 `json:"cost"`
			Subject    string `json:"subject"`
			IP         string `json:"ip"`
			Tenant     string `json:"tenant"`
		}
		d := json.NewDecoder(strings.NewReader(string(body)))
		d.DisallowUnknownFields()
		if err := d.Decode(&want); err != nil {
			t.Fatalf("%q is taken, but %v", body, err)
		}
		path, _, _ := strings.Cut(want.Path, "?")
		if call.RouteGroup != want.RouteGroup || call.Method != strings.ToUpper(want.Method) || call.Path != path ||
			call.Subject != want.Subject || call.Tenant != want.Tenant || !cmp.Equal(call.Cost, want.Cost) {
			t.Errorf("%q: got %+v, want %+v", body, call, want)
		}
	})
}
