package quotad_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quotad/quotad"
)

func TestADecisionCrossesTheWireWhole(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c, key := w.client(), w.key("acme")
	d := allow(t, c, costing(exports(key), 4))
	if d.KeyID == "" {
		t.Error("the decision names no key")
	}
	d.KeyID = ""
	want := quotad.Decision{
		Allowed: true, Tenant: "acme", Tier: "pro", RouteGroup: "exports", Cost: 4,
		Limits: []quotad.LimitStatus{{
			Policy: "base", Scope: quotad.ScopeKey, Algorithm: quotad.FixedWindow, Limit: 10, Remaining: 6, Window: 60, ResetAfter: 60, Allowed: true,
		}},
	}
	if diff := cmp.Diff(want, d); diff != "" {
		t.Error(diff)
	}
}

func TestARefusalIsAValue(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c, key := w.client(), w.key("acme")
	allow(t, c, costing(exports(key), 8))
	want := quotad.Decision{
		RouteGroup: "exports", Cost: 3, RetryAfter: 60,
		Limits: []quotad.LimitStatus{{
			Policy: "base", Scope: quotad.ScopeKey, Algorithm: quotad.FixedWindow, Limit: 10, Remaining: 2, Window: 60, ResetAfter: 60, RetryAfter: 60,
		}},
	}
	if diff := cmp.Diff(want, deny(t, c, costing(exports(key), 3))); diff != "" {
		t.Error(diff)
	}
	allow(t, c, costing(exports(key), 2))
}

func TestARefusalByAQuotaSaysSo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.editTier("pro", func(s *quotad.TierSpec) {
		s.Quotas = []quotad.Quota{{Name: "monthly", RouteGroup: "*", Scope: quotad.ScopeTenant, Quota: quotad.Units(1), Period: quotad.Month}}
	})
	c, key := w.client(), w.key("acme")
	allow(t, c, exports(key))
	if d := deny(t, c, exports(key)); d.Refusal() != quotad.CodeQuotaExceeded {
		t.Errorf("got %s", d.Refusal())
	}
}

func TestErrorsAreTheSameOnBothSidesOfTheWire(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	key := w.key("acme")
	narrow := w.key("acme", func(s *quotad.KeySpec) { s.RouteGroups = []string{"default"} })
	c := w.client(byToken(w.token()))
	for name, test := range map[string]struct {
		q    quotad.CheckRequest
		want quotad.Code
	}{
		"no credential":        {quotad.CheckRequest{RouteGroup: "exports"}, quotad.CodeAPIKeyRequired},
		"unknown key":          {exports("qk_unknown"), quotad.CodeInvalidAPIKey},
		"not in its groups":    {exports(narrow), quotad.CodeRouteNotAllowed},
		"cost that never fits": {costing(exports(key), 11), quotad.CodeCostExceedsLimit},
		"negative cost":        {costing(exports(key), -1), quotad.CodeInvalidCost},
		"cost above all":       {costing(exports(key), quotad.MaxUnits+1), quotad.CodeInvalidCost},
		"no such group":        {quotad.CheckRequest{APIKey: key, RouteGroup: "nowhere"}, quotad.CodeInvalidRequest},
		"no question":          {quotad.CheckRequest{APIKey: key}, quotad.CodeInvalidRequest},
		"no such tenant":       {quotad.CheckRequest{Tenant: "nobody", RouteGroup: "exports"}, quotad.CodeInvalidRequest},
		"key and tenant":       {quotad.CheckRequest{APIKey: key, Tenant: "acme", RouteGroup: "exports"}, quotad.CodeInvalidRequest},
		"path that escapes":    {quotad.CheckRequest{APIKey: key, Method: "GET", Path: "/a/../b"}, quotad.CodeInvalidPath},
		"path no JSON carries": {quotad.CheckRequest{APIKey: key, Method: "GET", Path: "/\xff"}, quotad.CodeInvalidPath},
		"two keys":             {exports(key + "," + key), quotad.CodeAmbiguousCredentials},
		"more than a body":     {quotad.CheckRequest{APIKey: key, Method: "GET", Path: "/" + strings.Repeat("a", 70_000)}, quotad.CodePayloadTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			d, err := c.Check(t.Context(), test.q)
			if !errors.Is(err, &quotad.Error{Code: test.want}) || d.Allowed {
				t.Errorf("got %+v, %v; want %s", d, err, test.want)
			}
		})
	}
	if d := allow(t, c, exports(key)); d.Limits[0].Remaining != 9 {
		t.Errorf("what was refused was charged: %+v", d.Limits)
	}
}

func TestAnErrorKeepsItsDetailAndItsWait(t *testing.T) {
	t.Parallel()
	e := &quotad.Error{Code: quotad.CodeStoreUnavailable, Detail: "the database hangs", RetryAfter: 3 * time.Second}
	url := answering(t, func(w http.ResponseWriter, r *http.Request) {
		p := quotad.ProblemOf(e)
		w.WriteHeader(p.Status)
		_, _ = w.Write(p.AppendJSON(nil))
	})
	for name, c := range map[string]*quotad.Client{"closed": newClient(t, url), "open": newClient(t, url, open)} {
		_, err := c.Check(t.Context(), exports("qk_a"))
		var got *quotad.Error
		if !errors.Is(err, quotad.ErrStoreUnavailable) || !errors.As(err, &got) {
			t.Fatalf("%s: got %v", name, err)
		}
		if diff := cmp.Diff(e, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestAServiceTokenAsksForATenant(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.client(byToken(w.token()))
	q := quotad.CheckRequest{Tenant: "acme", Method: "POST", Path: "/v1/exports?format=csv", Subject: "ann"}
	if d := allow(t, c, q); d.Tenant != "acme" || d.RouteGroup != "exports" || d.KeyID != "" {
		t.Errorf("got %+v", d)
	}
	if d := deny(t, c, costing(q, 10)); d.Tenant != "acme" || d.Cost != 10 {
		t.Errorf("got %+v", d)
	}
	_, err := w.client().Check(t.Context(), q)
	if !errors.Is(err, &quotad.Error{Code: quotad.CodeInvalidRequest}) {
		t.Errorf("without a token: %v", err)
	}
}

func TestTheClientsOwnKeyAsksWhereAQuestionHasNone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	own, other := w.key("acme"), w.key("acme")
	c := w.client(func(o *quotad.ClientOptions) { o.APIKey = own })
	allow(t, c, quotad.CheckRequest{RouteGroup: "exports"})
	if d := allow(t, c, exports(other)); d.Limits[0].Remaining != 9 {
		t.Errorf("the question's own key was not used: %+v", d)
	}
	if d := allow(t, c, quotad.CheckRequest{RouteGroup: "exports"}); d.Limits[0].Remaining != 8 {
		t.Errorf("got %+v", d)
	}
}

func TestAddressesReachTheirLimits(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	perAddress := []quotad.Limit{{Name: "logins", RouteGroup: "login", Scope: quotad.ScopeIP, Algorithm: quotad.FixedWindow, RateLimit: quotad.Units(1), RateWindow: 300}}
	w.group(quotad.RouteGroupSpec{Name: "login", Match: []string{"POST /login"}, Auth: quotad.AuthNone, Limits: perAddress})
	key, token := w.key("acme"), w.token()
	login := quotad.CheckRequest{Method: "POST", Path: "/login"}
	from := func(q quotad.CheckRequest, address string) quotad.CheckRequest {
		q.ForwardedFor = addr(address)
		return q
	}
	for name, q := range map[string]quotad.CheckRequest{
		"192.0.2.1": login,
		"192.0.2.2": {Method: "POST", Path: "/login", APIKey: key},
		"192.0.2.3": {Method: "POST", Path: "/login", Tenant: "acme"},
	} {
		c := w.client(byToken(token))
		allow(t, c, from(q, name))
		deny(t, c, from(q, name))
		allow(t, c, from(q, "198.51.100."+name[len(name)-1:]))
	}
	named := quotad.CheckRequest{Tenant: "acme", Method: "POST", Path: "/login", IP: "203.0.113.1"}
	c := w.client(byToken(token))
	allow(t, c, from(named, "192.0.2.1"))
	deny(t, c, named)
}

func TestLimitsSayWhatIsLeft(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c, key := w.client(), w.key("acme")
	allow(t, c, costing(exports(key), 3))
	for range 2 {
		got, err := c.Limits(t.Context(), quotad.LimitsRequest{APIKey: key})
		must(t, got, err)
		left := map[string]int64{}
		for _, g := range got.RouteGroups {
			left[g.RouteGroup] = g.Limits[0].Remaining
		}
		if diff := cmp.Diff(map[string]int64{"default": 10, "exports": 7}, left); diff != "" || got.Tenant != "acme" || got.Tier != "pro" || got.KeyID == "" {
			t.Errorf("%+v: %s", got, diff)
		}
	}
	one, err := c.Limits(t.Context(), quotad.LimitsRequest{APIKey: key, RouteGroup: "exports", Subject: "ann & co"})
	if len(must(t, one, err).RouteGroups) != 1 {
		t.Errorf("got %+v", one)
	}
	for want, q := range map[quotad.Code]quotad.LimitsRequest{
		quotad.CodeAPIKeyRequired: {}, quotad.CodeInvalidAPIKey: {APIKey: "qk_x"}, quotad.CodeInvalidRequest: {APIKey: key, RouteGroup: "nowhere"},
	} {
		if _, err := c.Limits(t.Context(), q); !errors.Is(err, &quotad.Error{Code: want}) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestPeeksMoveNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c, key := w.client(), w.key("acme")
	for range 100 {
		if d := allow(t, c, costing(exports(key), 0)); d.Limits[0].Remaining != 10 {
			t.Fatalf("got %+v", d.Limits)
		}
	}
}

func TestParallelCallersGetExactlyTheLimit(t *testing.T) {
	t.Parallel()
	for name, build := range map[string]func(testing.TB) *world{"memory": newWorld, "redis": redisWorld} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := build(t)
			w.tier(quotad.TierSpec{Name: "large", RateLimit: quotad.Units(500), RateWindow: quotad.MaxWindow})
			w.tenant(quotad.TenantSpec{ID: "big", Tier: "large"})
			c, key := w.client(), w.key("big")
			var admitted atomic.Int64
			var wg sync.WaitGroup
			for range 200 {
				wg.Go(func() {
					for range 5 {
						d, err := c.Check(t.Context(), exports(key))
						if err != nil || d.Degraded {
							t.Errorf("got %+v, %v", d, err)
						}
						if d.Allowed {
							admitted.Add(1)
						}
					}
				})
			}
			wg.Wait()
			if admitted.Load() != 500 {
				t.Errorf("%d of 500 were admitted", admitted.Load())
			}
		})
	}
}

func TestACallerCanGiveUp(t *testing.T) {
	t.Parallel()
	url, _ := frozen(t)
	c := newClient(t, url, open)
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, cancel)
	if d, err := c.Check(ctx, exports("qk_a")); !errors.Is(err, context.Canceled) || d.Allowed {
		t.Errorf("got %+v, %v", d, err)
	}
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if d, err := c.Check(short, exports("qk_a")); !errors.Is(err, context.DeadlineExceeded) || d.Allowed {
		t.Errorf("got %+v, %v", d, err)
	}
	if _, err := c.Limits(ctx, quotad.LimitsRequest{}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if _, err := c.CheckAll(ctx, []quotad.CheckRequest{exports("qk_a")}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestConnectionsAreUsedAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var dialled atomic.Int64
	transport := &http.Transport{DialContext: counting(&dialled)}
	c, key := w.client(func(o *quotad.ClientOptions) { o.HTTPClient = &http.Client{Transport: transport} }), w.key("acme")
	for range 5 {
		allow(t, c, costing(exports(key), 2))
		_, _ = c.Check(t.Context(), exports(key))
		_, _ = c.Check(t.Context(), exports("qk_unknown"))
		_, _ = c.Check(t.Context(), quotad.CheckRequest{APIKey: key, RouteGroup: "nowhere"})
		_, _ = c.Limits(t.Context(), quotad.LimitsRequest{APIKey: key})
		w.clock.Advance(time.Minute)
	}
	if dialled.Load() != 1 {
		t.Errorf("%d connections were made", dialled.Load())
	}
}

func TestCredentialsAreNeverShown(t *testing.T) {
	t.Parallel()
	const secret = "qk_0123456789abcdef_SECRETSECRETSECRET"
	url, _ := frozen(t)
	var log bytes.Buffer
	o := quotad.ClientOptions{
		APIKey: secret, ServiceToken: secret, Timeout: 10 * time.Millisecond, Logger: slog.New(slog.NewJSONHandler(&log, nil)),
	}
	c, err := quotad.NewClient(url, o)
	must(t, c, err)
	q := quotad.CheckRequest{APIKey: secret, RouteGroup: "exports"}
	l := quotad.LimitsRequest{APIKey: secret, Subject: "ann"}
	var shown []any
	for _, v := range []any{o, &o, c, q, &q, l, q.APIKey} {
		shown = append(shown, v, fmt.Sprint(v), fmt.Sprintf("%s %q %v %+v %#v %x %d", v, v, v, v, v, v, v))
		text, _ := json.Marshal(v)
		shown = append(shown, string(text))
	}
	_, err = c.Check(t.Context(), q)
	_, err2 := c.Limits(t.Context(), l)
	_, err3 := c.CheckAll(t.Context(), []quotad.CheckRequest{q})
	_, err4 := quotad.NewClient("http://user:"+secret+"@host", quotad.ClientOptions{})
	_, err5 := quotad.NewClient(url, quotad.ClientOptions{APIKey: secret + "\n", ServiceToken: secret + "\n"})
	_, err6 := c.Check(t.Context(), quotad.CheckRequest{APIKey: secret + "\n"})
	// Nor does an error name the subject, which a URL holds.
	_, err7 := newClient(t, "http://127.0.0.1:1").Limits(t.Context(), l)
	if err7 == nil || strings.Contains(err7.Error(), "ann") {
		t.Errorf("got %v", err7)
	}
	for _, err := range []error{err, err2, err3, err4, err5, err6} {
		if err == nil {
			t.Error("there is no error to look at")
		}
		shown = append(shown, fmt.Sprintf("%v %+v %#v", err, err, err))
	}
	slog.New(slog.NewTextHandler(&log, nil)).Info("asked", "client", c, "question", q, "key", q.APIKey, "options", o)
	text := fmt.Sprint(shown...) + log.String()
	if strings.Contains(text, "SECRET") || strings.Contains(text, fmt.Sprintf("%x", "SECRET")) {
		t.Errorf("a secret is shown: %s", text)
	}
	if !strings.Contains(log.String(), "quotad does not answer") {
		t.Errorf("log: %s", log.String())
	}
}

func TestAClientSaysWhatIsWrongWithItsOptions(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"", "quotad:8080", "ftp://quotad", "http://", "http://u:p@quotad", "http://quotad?a=b", "http://quotad#a", "http://a b"} {
		if _, err := quotad.NewClient(url, quotad.ClientOptions{}); err == nil || !strings.Contains(err.Error(), "base URL") {
			t.Errorf("%q: got %v", url, err)
		}
	}
	_, err := quotad.NewClient("", quotad.ClientOptions{
		Timeout: -1, OnFailure: quotad.FailLocal, APIKey: "a\r\nb", ServiceToken: quotad.Credential(strings.Repeat("a", 2000)),
	})
	for _, part := range []string{"base URL", "Timeout", "OnFailure", "APIKey", "ServiceToken"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%s is not named in %v", part, err)
		}
	}
	if c, err := quotad.NewClient("https://quotad.example/base/", quotad.ClientOptions{}); err != nil || c.String() != "quotad client of https://quotad.example/base" {
		t.Errorf("got %v, %v", c, err)
	}
}
