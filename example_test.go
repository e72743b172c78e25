package quotad_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/admintokens"
	"github.com/quotad/quotad/internal/apikeys"
	"github.com/quotad/quotad/internal/database"
	"github.com/quotad/quotad/internal/events"
	"github.com/quotad/quotad/internal/httpapi"
	"github.com/quotad/quotad/internal/quota"
	"github.com/quotad/quotad/internal/ratelimit"
	"github.com/quotad/quotad/internal/testenv"
	"github.com/quotad/quotad/internal/tiers"
	"github.com/quotad/quotad/migrations"
)

func Example() {
	q := startQuotad() // acme may make 2 exports a minute, and has a key
	defer q.stop()

	client, err := quotad.NewClient(q.url, quotad.ClientOptions{Timeout: 30 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	for range 3 {
		d, err := client.Check(context.Background(), quotad.CheckRequest{APIKey: q.key, Method: "POST", Path: "/v1/exports"})
		switch l, _ := d.Strictest(); {
		case errors.Is(err, quotad.ErrInvalidAPIKey):
			fmt.Println("who is that?")
		case err != nil:
			fmt.Println("no decision:", err)
		case !d.Allowed:
			fmt.Println("come back later:", d.RetryAfter > 0)
		default:
			fmt.Printf("%s may, and has %d of %d left\n", d.Tenant, l.Remaining, l.Limit)
		}
	}
	_, err = client.Check(context.Background(), quotad.CheckRequest{APIKey: "qk_guess", RouteGroup: "exports"})
	fmt.Println(err)
	// Output:
	// acme may, and has 1 of 2 left
	// acme may, and has 0 of 2 left
	// come back later: true
	// invalid_api_key
}

// A service that knows its tenants by itself asks with a service token.
func ExampleClient_Check_tenant() {
	q := startQuotad()
	defer q.stop()
	client, err := quotad.NewClient(q.url, quotad.ClientOptions{ServiceToken: q.token, Timeout: 30 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	d, err := client.Check(context.Background(), quotad.CheckRequest{Tenant: "acme", RouteGroup: "exports", Subject: "ann", Cost: quotad.Units(2)})
	fmt.Println(d.Allowed, err)
	_, err = client.Check(context.Background(), quotad.CheckRequest{Tenant: "acme", RouteGroup: "exports", Subject: "ann", Cost: quotad.Units(3)})
	fmt.Println(errors.Is(err, quotad.ErrCostExceedsLimit))
	// Output:
	// true <nil>
	// true
}

func ExampleClient_CheckAll() {
	q := startQuotad()
	defer q.stop()
	client, err := quotad.NewClient(q.url, quotad.ClientOptions{APIKey: q.key, Timeout: 30 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	one := quotad.CheckRequest{RouteGroup: "exports"}
	results, err := client.CheckAll(context.Background(), []quotad.CheckRequest{one, one, one})
	if err != nil {
		log.Fatal(err)
	}
	for i := range results {
		d, err := results[i].Answer()
		fmt.Println(d.Allowed, err)
	}
	// Output:
	// true <nil>
	// true <nil>
	// false <nil>
}

func ExampleClient_Limits() {
	q := startQuotad()
	defer q.stop()
	client, err := quotad.NewClient(q.url, quotad.ClientOptions{APIKey: q.key, Timeout: 30 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	limits, err := client.Limits(context.Background(), quotad.LimitsRequest{RouteGroup: "exports"})
	if err != nil {
		log.Fatal(err)
	}
	for _, g := range limits.RouteGroups {
		for _, l := range g.Limits {
			fmt.Printf("%s: %d of %d left\n", g.RouteGroup, l.Remaining, l.Limit)
		}
	}
	// Output:
	// exports: 2 of 2 left
}

// A quotad that does not answer: with FailOpen calls are served, and marked.
func ExampleClientOptions_failOpen() {
	client, err := quotad.NewClient("http://127.0.0.1:1", quotad.ClientOptions{OnFailure: quotad.FailOpen})
	if err != nil {
		log.Fatal(err)
	}
	d, err := client.Check(context.Background(), quotad.CheckRequest{APIKey: "qk_…", RouteGroup: "exports"})
	fmt.Println(d.Allowed, d.Degraded, err)

	client, err = quotad.NewClient("http://127.0.0.1:1", quotad.ClientOptions{OnFailure: quotad.FailClosed})
	if err != nil {
		log.Fatal(err)
	}
	d, err = client.Check(context.Background(), quotad.CheckRequest{APIKey: "qk_…", RouteGroup: "exports"})
	fmt.Println(d.Allowed, d.Degraded, errors.Is(err, quotad.ErrLimiterUnavailable))
	// Output:
	// true true <nil>
	// false false true
}

func ExampleClient_Middleware() {
	q := startQuotad()
	defer q.stop()
	client, err := quotad.NewClient(q.url, quotad.ClientOptions{Timeout: 30 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/exports", func(w http.ResponseWriter, r *http.Request) {
		d, _ := quotad.DecisionFrom(r.Context())
		fmt.Fprintln(w, "exported for", d.Tenant)
	})
	metered := client.Middleware(quotad.MiddlewareOptions{
		Skip:    func(r *http.Request) bool { return r.URL.Path == "/healthz" },
		OnError: func(r *http.Request, err error) { log.Printf("quotad: %s %s: %v", r.Method, r.URL.Path, err) },
	})
	service := httptest.NewServer(metered(mux))
	defer service.Close()

	for range 3 {
		r, _ := http.NewRequest("POST", service.URL+"/v1/exports", nil)
		r.Header.Set("X-API-Key", string(q.key))
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			log.Fatal(err)
		}
		body, _ := io.ReadAll(res.Body)
		_ = res.Body.Close()
		first, _, _ := strings.Cut(string(body), ",")
		fmt.Println(res.StatusCode, res.Header.Get("X-RateLimit-Remaining"), strings.TrimSpace(first))
	}
	// Output:
	// 200 1 exported for acme
	// 200 0 exported for acme
	// 429 0 {"error":"rate_limit_exceeded"
}

// A service that logs its users in by itself: its own question of each request.
func ExampleMiddlewareOptions_question() {
	q := startQuotad()
	defer q.stop()
	client, err := quotad.NewClient(q.url, quotad.ClientOptions{ServiceToken: q.token, Timeout: 30 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	metered := client.Middleware(quotad.MiddlewareOptions{Question: func(r *http.Request) (quotad.CheckRequest, error) {
		user, _, ok := r.BasicAuth()
		if !ok {
			return quotad.CheckRequest{}, quotad.NewError(quotad.CodeUnauthorized, "Log in.")
		}
		ask := quotad.QuestionOf(r)
		ask.APIKey, ask.Tenant, ask.Subject = "", "acme", user
		return ask, nil
	}})
	handler := metered(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {}))

	for _, user := range []string{"ann", ""} {
		r := httptest.NewRequest("POST", "/v1/exports", nil)
		if user != "" {
			r.SetBasicAuth(user, "secret")
		}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		fmt.Println(w.Code)
	}
	// Output:
	// 200
	// 401
}

// runningQuotad is what the examples ask: a quotad in this process.
type runningQuotad struct {
	url        string
	key, token quotad.Credential
	stop       func()
}

// startQuotad starts a quotad on a database of its own, with a group "exports" of 2
// a minute, a tenant "acme" with a key, and a service token.
func startQuotad() runningQuotad {
	ctx := context.Background()
	check := func(err error) {
		if err != nil {
			log.Fatal(err)
		}
	}
	dir, err := os.MkdirTemp("", "quotad-example-")
	check(err)
	url := "sqlite://" + filepath.Join(dir, "quotad.db")
	check(migrations.Up(ctx, url))
	db, err := database.Open(ctx, url, database.Options{Timeout: testenv.Patience})
	check(err)
	notices := events.NewLog(db, events.Options{})
	store := tiers.NewStore(db, notices, tiers.Options{})
	keys := apikeys.NewStore(db, notices, apikeys.Options{})
	tokens := admintokens.NewStore(db, notices, admintokens.Options{})
	checker := quota.New(quota.Sources{Keys: keys, Tenants: store, Tiers: store, RouteGroups: store, Tokens: tokens},
		ratelimit.NewMemory(ratelimit.MemoryOptions{}), quota.Options{LoadBudget: testenv.Patience})
	server := httptest.NewServer(httpapi.New(checker, httpapi.Options{}).Handler())

	group := quotad.RouteGroupSpec{Name: "exports", Match: []string{"POST /v1/exports"}}
	group.SetDefaults()
	_, err = store.CreateRouteGroup(ctx, operator, group)
	check(err)
	tier := quotad.TierSpec{Name: "basic", RateLimit: quotad.Units(2), RateWindow: 60, Algorithm: quotad.TokenBucket}
	tier.SetDefaults()
	_, err = store.CreateTier(ctx, operator, tier)
	check(err)
	tenant := quotad.TenantSpec{ID: "acme", Name: "Acme Inc", Tier: "basic"}
	tenant.SetDefaults()
	_, err = store.CreateTenant(ctx, operator, tenant)
	check(err)
	spec := quotad.KeySpec{Name: "ci"}
	spec.SetDefaults()
	key, err := keys.Create(ctx, operator, "acme", spec)
	check(err)
	token, err := tokens.Create(ctx, operator, quotad.AdminTokenSpec{Name: "api", Role: quotad.RoleService})
	check(err)
	return runningQuotad{url: server.URL, key: quotad.Credential(key.Secret), token: quotad.Credential(token.Secret), stop: func() {
		server.Close()
		check(db.Close())
		check(os.RemoveAll(dir))
	}}
}
