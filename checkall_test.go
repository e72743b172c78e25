package quotad_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/quotad/quotad"
)

func TestManyQuestionsAreAnsweredInOrder(t *testing.T) {
	t.Parallel()
	for name, build := range map[string]func(testing.TB) *world{"memory": newWorld, "redis": redisWorld} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := build(t)
			key, token := w.key("acme"), w.token()
			keyed := []quotad.CheckRequest{
				costing(exports(key), 6), costing(exports(key), 5), costing(exports(key), 4), costing(exports(key), 11), costing(exports(key), -1),
				{APIKey: key, RouteGroup: "nowhere"}, {APIKey: key, Method: "POST", Path: "/v1/exports"}, {APIKey: key, Method: "GET", Path: "/elsewhere"},
				costing(exports(key), 0), {APIKey: key, Method: "GET", Path: "/\xff"},
			}
			for name, c := range map[string]*quotad.Client{
				"by key":      w.client(),
				"by own key":  w.client(func(o *quotad.ClientOptions) { o.APIKey = w.key("acme") }),
				"by token":    w.client(byToken(token)),
				"both policy": w.client(open),
			} {
				questions := append([]quotad.CheckRequest{}, keyed...)
				mine := w.key("acme")
				for i := range questions {
					switch name {
					case "by own key":
						questions[i].APIKey = ""
					case "by token":
						questions[i].APIKey, questions[i].Tenant, questions[i].Subject = "", "acme", "ann"
					case "both policy":
						questions[i].APIKey = mine
					}
				}
				if w.asks(func() {
					results, err := c.CheckAll(t.Context(), questions)
					must(t, results, err)
					var got []string
					for _, r := range results {
						d, err := r.Answer()
						var e *quotad.Error
						switch {
						case errors.As(err, &e):
							got = append(got, string(e.Code))
						case d.Allowed:
							got = append(got, "allowed "+d.RouteGroup)
						default:
							got = append(got, "refused "+d.Limits[0].Policy)
						}
					}
					want := []string{
						"allowed exports", "refused base", "allowed exports", "cost_exceeds_limit", "invalid_cost", "invalid_request", "refused base", "allowed default",
						"allowed exports", "invalid_path",
					}
					if diff := cmp.Diff(want, got); diff != "" {
						t.Errorf("%s: %s", name, diff)
					}
				}) != 1 {
					t.Errorf("%s: quotad was not asked once", name)
				}
			}
		})
	}
}

func TestWhatIsWrongWithAllQuestionsIsOneError(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	key := w.key("acme")
	c := w.client(byToken(w.token()))
	for name, test := range map[string]struct {
		questions []quotad.CheckRequest
		want      quotad.Code
	}{
		"no credential":   {[]quotad.CheckRequest{{RouteGroup: "exports"}}, quotad.CodeAPIKeyRequired},
		"unknown key":     {[]quotad.CheckRequest{exports("qk_x")}, quotad.CodeInvalidAPIKey},
		"two keys":        {[]quotad.CheckRequest{exports(key), exports(w.key("acme"))}, quotad.CodeAmbiguousCredentials},
		"key and token":   {[]quotad.CheckRequest{exports(key), {Tenant: "acme", RouteGroup: "exports"}}, quotad.CodeAmbiguousCredentials},
		"token and none":  {[]quotad.CheckRequest{{Tenant: "acme", RouteGroup: "exports"}, {RouteGroup: "exports"}}, quotad.CodeAmbiguousCredentials},
		"two addresses":   {[]quotad.CheckRequest{{APIKey: key, ForwardedFor: addr("192.0.2.1")}, {APIKey: key}}, quotad.CodeInvalidRequest},
		"more than a 100": {make([]quotad.CheckRequest, 101), quotad.CodeInvalidRequest},
	} {
		for i := range test.questions {
			if len(test.questions) > 100 {
				test.questions[i] = exports(key)
			}
		}
		if results, err := c.CheckAll(t.Context(), test.questions); !errors.Is(err, &quotad.Error{Code: test.want}) || results != nil {
			t.Errorf("%s: got %v, %v; want %s", name, results, err, test.want)
		}
	}
	if results, err := c.CheckAll(t.Context(), nil); err != nil || len(results) != 0 {
		t.Errorf("got %v, %v", results, err)
	}
}

// As many results as checks, each one of the two kinds, or nothing is believed.
func TestResultsThatDoNotFitAreNone(t *testing.T) {
	t.Parallel()
	allowed := quotad.Decision{Allowed: true}
	ok := quotad.CheckResult{Status: 200, Decision: &allowed}
	one := string(ok.AppendJSON(nil))
	problem := quotad.ProblemOf(quotad.ErrInvalidAPIKey)
	for name, results := range map[string]string{
		"none":             "",
		"too few":          one,
		"too many":         one + "," + one + "," + one,
		"one denies":       one + "," + strings.Replace(one, "true", "false", 1),
		"one is empty":     one + ",{}",
		"one is null":      one + ",null",
		"half a problem":   one + `,{"status":401,"error":"invalid_api_key"}`,
		"another's status": one + "," + strings.Replace(string(problem.AppendJSON(nil)), "401", "200", 1),
		"no status":        one + `,{"allowed":true}`,
	} {
		url := answering(t, func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte(`{"results":[` + results + `]}`))
		})
		questions := []quotad.CheckRequest{exports("qk_a"), exports("qk_a")}
		if results, err := newClient(t, url).CheckAll(t.Context(), questions); !errors.Is(err, quotad.ErrLimiterUnavailable) {
			t.Errorf("%s: got %v, %v", name, results, err)
		}
		if results, err := newClient(t, url, open).CheckAll(t.Context(), questions); err != nil || len(results) != 2 || !results[1].Decision.Degraded {
			t.Errorf("%s: got %v, %v", name, results, err)
		}
	}
}

func TestAddressesOfManyQuestionsReachTheirLimits(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.editTier("pro", func(s *quotad.TierSpec) {
		s.Limits = []quotad.Limit{{Name: "place", RouteGroup: "*", Scope: quotad.ScopeIP, Algorithm: quotad.FixedWindow, RateLimit: quotad.Units(1), RateWindow: 60}}
	})
	for name, ask := range map[string]struct {
		c *quotad.Client
		q quotad.CheckRequest
	}{
		"key":   {w.client(), exports(w.key("acme"))},
		"token": {w.client(byToken(w.token())), quotad.CheckRequest{Tenant: "acme", RouteGroup: "exports"}},
	} {
		for _, last := range []string{"1", "2"} {
			q := ask.q
			q.ForwardedFor = addr("192.0." + map[string]string{"key": "2", "token": "3"}[name] + "." + last)
			results, err := ask.c.CheckAll(t.Context(), []quotad.CheckRequest{q, q})
			must(t, results, err)
			if results[0].Status != 200 || results[1].Status != 429 {
				t.Errorf("%s: got %d and %d", name, results[0].Status, results[1].Status)
			}
		}
	}
}
