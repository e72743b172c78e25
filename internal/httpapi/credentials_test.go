package httpapi

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/quotad/quotad"
)

const (
	keyA  = "X-API-Key: qk_a"
	check = `{"route_group":"exports"}`
)

func TestMoreThanOneCredentialIsRefusedAtEveryDoor(t *testing.T) {
	t.Parallel()
	guesses := make([]string, 100)
	for i := range guesses {
		guesses[i] = keyA
	}
	for name, headers := range map[string][]string{
		"valid and invalid":      {keyA, "X-API-Key: nonsense"},
		"two valid":              {keyA, "X-API-Key: qk_b"},
		"the same twice":         {keyA, keyA},
		"mixed case names":       {keyA, "x-api-KEY: qk_b"},
		"a list":                 {"X-API-Key: qk_a, qk_b"},
		"a list without spaces":  {"X-API-Key: qk_a,qk_b"},
		"a list with empty ends": {"X-API-Key: ,qk_a"},
		"empty and not":          {"X-API-Key: ", keyA},
		"a hundred guesses":      guesses,
		"bearer of our form":     {keyA, "Authorization: Bearer qk_b"},
		"bearer, odd case":       {keyA, "authorization: bEARER   qk_b"},
		"a bare key":             {keyA, "Authorization: qk_b"},
		"a service token":        {keyA, "Authorization: Bearer qa_b"},
	} {
		for _, target := range []string{"GET /v1/ping", "GET /v1/limits", "POST /v1/check", "GET /v1/authorize", "POST /v1/authorize/v1/x"} {
			a := &answers{decision: admitted()}
			method, path, _ := strings.Cut(target, " ")
			body := map[bool]string{true: check}[path == "/v1/check"]
			w := do(service(t, a, Options{}), request(method, path, body, append(headers, "Content-Type: application/json")...))
			if w.Code != 400 {
				t.Errorf("%s, %s: got %d", name, target, w.Code)
			}
			wantRefusal(t, w, quotad.CodeAmbiguousCredentials)
			a.neverAsked(t)
		}
	}
}

func TestAKeyInTheQueryIsNeverAKey(t *testing.T) {
	t.Parallel()
	for _, query := range []string{"api_key=x", "apikey=x", "X-API-Key=qk_b", "key=qk_b", "access_token=x", "API_KEY="} {
		for _, target := range []string{"GET /v1/ping", "GET /v1/limits", "POST /v1/check"} {
			a := &answers{decision: admitted()}
			s := service(t, a, Options{})
			method, path, _ := strings.Cut(target, " ")
			wantRefusal(t, do(s, request(method, path+"?"+query, "", keyA)), quotad.CodeAmbiguousCredentials)
			wantRefusal(t, do(s, request(method, path+"?"+query, "")), quotad.CodeAPIKeyRequired)
			a.neverAsked(t)
		}
	}
}

func TestForwardAuthLeavesTheUpstreamsCredentialsAlone(t *testing.T) {
	t.Parallel()
	for _, headers := range [][]string{
		{"Authorization: Basic dXNlcjpwYXNz"}, {"Authorization: Bearer eyJhbGciOiJub25lIn0.qk_.x"},
		{"Authorization: Digest x", "Authorization: Bearer y"},
	} {
		a := &answers{decision: admitted()}
		w := do(service(t, a, Options{}), request("GET", "/v1/authorize/v1/x?api_key=upstreams&cost=0", "", append(headers, keyA)...))
		wantStatus(t, w, 200)
		if call := a.asked(t); call.APIKey != "qk_a" || call.ServiceToken != "" || call.Cost != nil {
			t.Errorf("asked %+v", call)
		}
	}
}

func TestForwardAuthRefusesASecondKeyInEitherQuery(t *testing.T) {
	t.Parallel()
	a := &answers{decision: admitted()}
	s := service(t, a, trusting())
	wantRefusal(t, get(s, "/v1/authorize/v1/x?any=qk_b"), quotad.CodeAmbiguousCredentials)
	wantRefusal(t, get(s, "/v1/authorize", "X-Forwarded-Uri: /v1/x?any=qk_b"), quotad.CodeAmbiguousCredentials)
	a.neverAsked(t)
}

func TestWithoutACredentialTheCheckerDecides(t *testing.T) {
	t.Parallel()
	// A route group may need none.
	for _, headers := range [][]string{{}, {"X-API-Key: "}, {"Authorization: Basic x"}, {"Authorization: Bearer qk_a"}} {
		for _, target := range []string{"/v1/ping", "/v1/authorize", "/v1/limits"} {
			a := &answers{err: &quotad.Error{Code: quotad.CodeAPIKeyRequired}}
			w := do(service(t, a, Options{}), request("GET", target, "", headers...))
			wantRefusal(t, w, quotad.CodeAPIKeyRequired)
			wantHeaders(t, w, `WWW-Authenticate: ApiKey realm="quotad"`)
			if call := a.asked(t); call.APIKey != "" || call.ServiceToken != "" {
				t.Errorf("asked %+v", call)
			}
		}
	}
}

func TestXAPIKeyWorksInAnyCase(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"X-API-Key", "x-api-key", "X-API-KEY", "x-Api-kEY"} {
		a := &answers{decision: admitted()}
		wantStatus(t, do(service(t, a, Options{}), request("GET", "/v1/ping", "", name+": qk_a")), 200)
		if key := a.asked(t).APIKey; key != "qk_a" {
			t.Errorf("%s: asked with %q", name, key)
		}
	}
}

func TestAServiceTokenNeedsATenantAndAKeyHasItsOwn(t *testing.T) {
	t.Parallel()
	token := []string{"Authorization: bearer  qa_t", "Content-Type: application/json"}
	a := &answers{decision: admitted()}
	w := do(service(t, a, Options{}), request("POST", "/v1/check", `{"tenant":"acme","route_group":"exports"}`, token...))
	wantStatus(t, w, 200)
	if call := a.asked(t); call.ServiceToken != "qa_t" || call.Tenant != "acme" || call.APIKey != "" {
		t.Errorf("asked %+v", call)
	}

	a = &answers{decision: admitted()}
	s := service(t, a, Options{})
	w = do(s, request("POST", "/v1/check", check, token...))
	wantRefusal(t, w, quotad.CodeInvalidRequest)
	wantFields(t, w, `{"tenant":"is required with a service token"}`)
	w = checkBody(s, `{"tenant":"acme","route_group":"exports"}`)
	wantRefusal(t, w, quotad.CodeInvalidRequest)
	wantFields(t, w, `{"tenant":"is for service tokens only: an API key has its own tenant"}`)
	a.neverAsked(t)
}

func TestOtherAuthorizationsOfACheckAreRefused(t *testing.T) {
	t.Parallel()
	for header, code := range map[string]quotad.Code{
		"Basic dXNlcjpwYXNz":  quotad.CodeAPIKeyRequired,
		"Bearer":              quotad.CodeAPIKeyRequired,
		"Bearer ":             quotad.CodeAPIKeyRequired,
		"qa_t":                quotad.CodeAPIKeyRequired,
		"Bearer qk_a":         quotad.CodeAPIKeyRequired,
		"Bearer a, Bearer b":  quotad.CodeAmbiguousCredentials,
		"Bearer a | Bearer b": quotad.CodeAmbiguousCredentials,
	} {
		a := &answers{decision: admitted()}
		headers := []string{"Content-Type: application/json"}
		for value := range strings.SplitSeq(header, " | ") {
			headers = append(headers, "Authorization: "+value)
		}
		wantRefusal(t, do(service(t, a, Options{}), request("POST", "/v1/check", check, headers...)), code)
		a.neverAsked(t)
	}
}

// wantFields expects the faults of an answer, as JSON.
func wantFields(t *testing.T, w *httptest.ResponseRecorder, want string) {
	t.Helper()
	if !strings.Contains(w.Body.String(), `"fields":`+want) {
		t.Errorf("want fields %s, got %s", want, w.Body)
	}
}
