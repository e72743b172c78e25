package httpapi

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/legacy"
	"github.com/google/go-cmp/cmp"
	"github.com/labstack/echo/v4"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/quota"
)

// document is the description of the HTTP surface, which the admin listener serves.
func document(t *testing.T) *openapi3.T {
	t.Helper()
	raw, err := os.ReadFile("../admin/openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	doc, err := openapi3.NewLoader().LoadFromData(raw)
	if err != nil {
		t.Fatal(err)
	}
	doc.Servers = nil
	return doc
}

func TestTheDocumentHasTheDoors(t *testing.T) {
	t.Parallel()
	served := map[string]bool{}
	for _, r := range service(t, &answers{}, Options{}).Handler().(*echo.Echo).Routes() {
		path := strings.Replace(r.Path, "*", "{path}", 1)
		switch r.Method {
		case http.MethodHead, http.MethodOptions: // as GET, and for preflights
		case echo.RouteNotFound:
			for _, method := range []string{"GET", "PUT", "POST", "DELETE", "PATCH", "HEAD", "OPTIONS"} {
				served[method+" "+path] = true
			}
		default:
			served[r.Method+" "+path] = true
		}
	}
	documented := map[string]bool{}
	for path, item := range document(t).Paths.Map() {
		if strings.HasPrefix(path, "/v1/") || path == "/healthz" || path == "/readyz" {
			for method := range item.Operations() {
				documented[method+" "+path] = true
			}
		}
	}
	if diff := cmp.Diff(served, documented); diff != "" {
		t.Error(diff)
	}
}

func TestAnswersAreAsDocumented(t *testing.T) {
	t.Parallel()
	router, err := legacy.NewRouter(document(t))
	if err != nil {
		t.Fatal(err)
	}
	full := admitted()
	full.Limits = slices.DeleteFunc(full.Limits, func(l quotad.LimitStatus) bool { return l.Shadow })
	degraded, none := full, quotad.Decision{Allowed: true, Tenant: "acme", Limits: []quotad.LimitStatus{}}
	degraded.Degraded, degraded.DegradedBy = true, quotad.FailLocal
	denied := refused()
	denied.Limits = denied.Limits[:2]
	coded := func(code quotad.Code) *answers { return &answers{err: &quotad.Error{Code: code}} }

	checkers := map[string]*answers{
		"admits": {decision: full, decisions: []quotad.Decision{full, full}}, "degraded": {decision: degraded, decisions: []quotad.Decision{degraded}},
		"no limits": {decision: none, decisions: []quotad.Decision{none}}, "refuses": {decision: denied},
		"results": {decision: full, results: []quota.Result{{Decision: full}, {Decision: degraded}, {Decision: denied}, {Err: &quotad.Error{Code: quotad.CodeRouteNotAllowed}}}},
		"api key": coded(quotad.CodeInvalidAPIKey), "route": coded(quotad.CodeRouteNotAllowed), "path": coded(quotad.CodeInvalidPath),
		"cost": coded(quotad.CodeCostExceedsLimit), "limiter": coded(quotad.CodeLimiterUnavailable), "store": coded(quotad.CodeStoreUnavailable),
	}
	const json = "Content-Type: application/json"
	requests := []func() *http.Request{
		func() *http.Request { return request("GET", "/v1/ping", "", withKey) },
		func() *http.Request { return request("GET", "/v1/ping?cost=2", "", withKey) },
		func() *http.Request { return request("GET", "/v1/ping?cost=x&y=z", "", withKey) },
		func() *http.Request { return request("GET", "/v1/ping", "") },
		func() *http.Request { return request("GET", "/v1/ping", "", withKey, withKey) },
		func() *http.Request { return request("POST", "/v1/check", `{"route_group":"exports"}`, withKey, json) },
		func() *http.Request {
			return request("POST", "/v1/check", `{"method":"GET","path":"/x","cost":0,"subject":"s","ip":"192.0.2.1"}`, withKey, json, "Accept: application/problem+json")
		},
		func() *http.Request { return request("POST", "/v1/check", `{"route_group":1,"x":2}`, withKey, json) },
		func() *http.Request { return request("POST", "/v1/check", `{}`, withKey) },
		func() *http.Request {
			return request("POST", "/v1/check", strings.Repeat(" ", maxBody+1), withKey, json)
		},
		func() *http.Request { return request("POST", "/v1/checks", list(check, check), withKey, json) },
		func() *http.Request { return request("POST", "/v1/checks", list(), withKey, json) },
		func() *http.Request { return request("POST", "/v1/checks", list(check), withKey) },
		func() *http.Request {
			return request("POST", "/v1/checks", strings.Repeat(" ", maxChecksBody+1), withKey, json)
		},
		func() *http.Request { return request("GET", "/v1/authorize", "", withKey) },
		func() *http.Request { return request("POST", "/v1/authorize/v1/exports", "", withKey) },
		func() *http.Request { return request("GET", "/v1/authorize?deny_status=403", "", withKey) },
		func() *http.Request { return request("GET", "/v1/limits", "", withKey) },
		func() *http.Request { return request("GET", "/v1/limits?route_group=exports&subject=s", "", withKey) },
		func() *http.Request { return request("GET", "/v1/limits?x=y", "", withKey) },
		func() *http.Request { return request("GET", "/healthz", "") },
		func() *http.Request { return request("GET", "/readyz", "") },
	}
	ready := func(context.Context) Readiness { return Readiness{Notes: []string{"n"}} }
	notReady := func(context.Context) Readiness { return Readiness{Reasons: []string{"r"}} }
	for name, a := range checkers {
		for i, f := range []func(context.Context) Readiness{ready, notReady} {
			s := service(t, a, Options{Ready: f})
			for _, r := range requests {
				if i == 0 || strings.HasSuffix(r().URL.Path, "z") {
					compare(t, router, name, r(), do(s, r()))
				}
			}
		}
	}
}

// compare holds an answer against the document, and the request too when it was
// accepted: the document must not be stricter than the server.
func compare(t *testing.T, router routers.Router, name string, r *http.Request, w *httptest.ResponseRecorder) {
	t.Helper()
	lookup := r.Clone(r.Context())
	if rest, ok := strings.CutPrefix(r.URL.Path, "/v1/authorize/"); ok {
		lookup.URL.Path = "/v1/authorize/" + strings.ReplaceAll(rest, "/", "_") // templates of the document hold no slash
	}
	route, params, err := router.FindRoute(lookup)
	if err != nil {
		t.Fatalf("%s: %v", r.URL.Path, err)
	}
	opts := &openapi3filter.Options{
		IncludeResponseStatus: true, MultiError: true, AuthenticationFunc: openapi3filter.NoopAuthenticationFunc, SkipSettingDefaults: true,
	}
	in := &openapi3filter.RequestValidationInput{Request: r, PathParams: params, Route: route, Options: opts}
	if w.Code == http.StatusOK {
		if err := openapi3filter.ValidateRequest(r.Context(), in); err != nil {
			t.Errorf("%s: %s %s was accepted, and is not as documented: %v", name, r.Method, r.URL, err)
		}
	}
	out := &openapi3filter.ResponseValidationInput{RequestValidationInput: in, Status: w.Code, Header: w.Result().Header, Options: opts}
	body := w.Body.Bytes()
	if err := openapi3filter.ValidateResponse(r.Context(), out.SetBodyBytes(body)); err != nil {
		t.Errorf("%s: %s %s answers %d, which is not as documented: %v\n%s", name, r.Method, r.URL, w.Code, err, body)
	}
}
