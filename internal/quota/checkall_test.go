package quota

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/database"
	"github.com/quotad/quotad/internal/database/databasetest"
	"github.com/quotad/quotad/internal/ratelimit"
	"github.com/quotad/quotad/internal/testenv"
)

// decideAll is a list that must be decided, call by call.
func (n *node) decideAll(calls ...Call) []Result {
	n.t.Helper()
	results, d, err := n.CheckAll(context.Background(), calls)
	if err != nil || len(results) != len(calls) {
		n.t.Fatalf("%d results of %d calls, kept out by %+v, error %v", len(results), len(calls), d, err)
	}
	return results
}

// said is a result in short: what is left of each limit, or the code of the error.
func said(results []Result) (short []string) {
	for _, r := range results {
		switch {
		case r.Err != nil:
			short = append(short, string(codeOf(r.Err)))
		default:
			text := fmt.Sprint(r.Decision.Allowed)
			for _, l := range r.Decision.Limits {
				text += fmt.Sprint(" ", l.Remaining)
			}
			short = append(short, text)
		}
	}
	return short
}

func TestAListIsJudgedInOrder(t *testing.T) {
	world(t, func(t *testing.T, n *node) {
		n.editTier("pro", func(s *quotad.TierSpec) { s.Limits = []quotad.Limit{rate("all", "*", quotad.ScopeKey, 12, 60)} })
		key := n.mustKey("acme", func(k *quotad.KeySpec) { k.RouteGroups = []string{"exports", "default"} })
		n.mustGroup(quotad.RouteGroupSpec{Name: "closed"})
		n.mustGroup(quotad.RouteGroupSpec{Name: "login", Auth: quotad.AuthNone, Limits: []quotad.Limit{rate("tries", "login", quotad.ScopeIP, 2, 60)}})
		call := func(group string, cost int64) Call {
			return Call{APIKey: key.Secret, RouteGroup: group, Cost: &cost, Door: "checks", Address: address("192.0.2.1")}
		}
		got := said(n.decideAll(
			call("exports", 4), call("exports", 4), call("exports", 4), call("nowhere", 1), call("exports", -1), call("exports", 11), call("closed", 1),
			call("exports", 0), call("exports", 2), call("default", 2), call("default", 1), call("login", 1), call("login", 1), call("login", 1),
			Call{Method: "GET", Path: "/v1/x/../y"}, Call{Fault: quotad.NewError(quotad.CodeInvalidRequest, "no such member")}, call("exports", 1),
		))
		want := []string{
			"true 6 8", "true 2 4", "false 2 4", "invalid_request", "invalid_cost", "cost_exceeds_limit", "route_not_allowed",
			"true 2 4", "true 0 2", "true 8 0", "false 8 0", "true 1", "true 0", "false 0",
			"invalid_path", "invalid_request", "false 0 0",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	})
}

// A list comes to what its calls come to one by one: for keys and services, over memory
// and Redis, with calls of all kinds, and periods that end in between.
func TestAListIsWhatItsCallsAreOneByOne(t *testing.T) {
	t.Parallel()
	for place, limiter := range map[string]func(t *testing.T, c *testenv.Clock) Limiter{
		"memory": func(_ *testing.T, c *testenv.Clock) Limiter {
			return ratelimit.NewMemory(ratelimit.MemoryOptions{Now: c.Now})
		},
		"redis": func(t *testing.T, c *testenv.Clock) Limiter { return inRedis(t, c) },
	} {
		t.Run(place, func(t *testing.T) {
			t.Parallel()
			db, own, ofCounters := databasetest.SQLite(t), testenv.NewClock(), testenv.NewClock()
			alone, listed := newNode(t, db, own, limiter(t, ofCounters)), newNode(t, db, own, limiter(t, ofCounters))
			alone.furnish()
			alone.editTier("pro", func(s *quotad.TierSpec) {
				s.Limits = []quotad.Limit{
					rate("all", "*", quotad.ScopeTenant, 60, 60), rate("subject", "exports", quotad.ScopeSubject, 7, 60), rate("ip", "*", quotad.ScopeIP, 9, 3600),
				}
				s.Quotas = []quotad.Quota{per(quotad.Day, 80)}
			})
			alone.mustTier(quotad.TierSpec{Name: "leaky", RateLimit: quotad.Units(3), Algorithm: quotad.LeakyBucket, MaxDelayMS: 2000, RateWindow: 3})
			alone.mustTenant("slow", "leaky")
			alone.mustTenant("other", "pro")
			alone.mustTenant("gone", "pro")
			alone.editTenant("gone", func(s *quotad.TenantSpec) { s.Status = quotad.TenantSuspended })
			alone.mustGroup(quotad.RouteGroupSpec{Name: "heavy", Match: []string{"PUT /v1/heavy"}, Cost: quotad.Units(3)})
			alone.mustGroup(quotad.RouteGroupSpec{Name: "closed"})
			alone.mustGroup(quotad.RouteGroupSpec{
				Name: "login", Match: []string{"POST /login"}, Auth: quotad.AuthNone,
				Limits: []quotad.Limit{rate("tries", "login", quotad.ScopeIP, 2, 60)},
			})
			key := alone.mustKey("acme", func(k *quotad.KeySpec) { k.RouteGroups = []string{"exports", "default", "heavy"} })
			token := alone.mustToken(quotad.RoleService, nil)

			r := rand.New(rand.NewPCG(1, 2))
			one := func(of ...string) string { return of[r.IntN(len(of))] }
			draw := func(byToken bool) (call Call) {
				call = Call{APIKey: key.Secret, Address: address("192.0.2.1"), Door: "checks"}
				if byToken {
					call.APIKey, call.ServiceToken, call.Tenant = "", token.Secret, one("acme", "acme", "acme", "slow", "other", "gone", "nobody", "")
				}
				if call.RouteGroup = one("exports", "exports", "default", "heavy", "closed", "login", "nowhere", "", ""); call.RouteGroup == "" {
					call.Method, call.Path = one("POST", "PUT"), one("/v1/exports", "/v1/heavy", "/login", "/", "/a/../b")
				}
				if r.IntN(2) == 0 {
					call.Cost = quotad.Units([]int64{0, 1, 1, 2, 5, 11, -1}[r.IntN(7)])
				}
				call.Subject = one("", "", "ann", "bob", "\x00")
				if r.IntN(3) == 0 {
					call.IP = address(one("198.51.100.1", "2001:db8::1"))
				}
				return call
			}
			for round := range 60 {
				by := time.Duration(r.IntN(20)) * time.Second
				if round%20 == 19 {
					by = 12 * time.Hour
				}
				own.Advance(by)
				ofCounters.Advance(by)
				calls, byToken := make([]Call, 1+r.IntN(100)), r.IntN(2) == 0
				for i := range calls {
					calls[i] = draw(byToken)
				}
				var want []Result
				for _, call := range calls {
					d, err := alone.Check(t.Context(), call)
					want = append(want, Result{d, err})
				}
				got := listed.decideAll(calls...)
				for i := range calls {
					if diff := cmp.Diff(want[i].Decision, got[i].Decision); diff != "" || fmt.Sprint(want[i].Err) != fmt.Sprint(got[i].Err) {
						t.Fatalf("list %d, call %d of %d, %+v: got %v, want %v (-alone +listed)\n%s", round, i, len(calls), calls[i], got[i].Err, want[i].Err, diff)
					}
				}
			}
		})
	}
}

// The caller of a list is looked up once, and a credential that fails is no more than
// one failure, whatever it was to ask; nothing is charged then.
func TestTheCallerOfAListIsOne(t *testing.T) {
	t.Parallel()
	n, _, registry := watched(t, perMinute(0, 3))
	n.mustGroup(quotad.RouteGroupSpec{Name: "login", Auth: quotad.AuthNone, Limits: []quotad.Limit{rate("tries", "login", quotad.ScopeIP, 50, 60)}})
	key := n.mustKey("acme")
	login := func(call Call) Call { call.RouteGroup = "login"; return call }
	list := func(call Call, times int) (calls []Call) {
		call.Address, call.Door = address("192.0.2.1"), "checks"
		for range times {
			calls = append(calls, login(call), call)
		}
		return calls
	}
	if got := said(n.decideAll(list(by(key), 20)...)); got[19] != "true 0" || got[21] != "false 0" || got[38] != "true 30" {
		t.Errorf("%v", got)
	}
	if n.tap.found.Load() != 1 || n.tap.tenants.Load() != 1 || n.tap.tiers.Load() != 1 {
		t.Errorf("looked up %d times", n.tap.queries())
	}
	var d quotad.Decision
	for range 3 {
		results, kept, err := n.CheckAll(t.Context(), list(Call{APIKey: "junk", RouteGroup: "exports"}, 30))
		if results != nil || codeOf(err) != quotad.CodeInvalidAPIKey {
			t.Errorf("%v, %+v, %v", results, kept, err)
		}
	}
	results, d, err := n.CheckAll(t.Context(), list(Call{APIKey: "junk", RouteGroup: "exports"}, 30))
	if results != nil || err != nil || d.Allowed || len(d.Limits) != 1 || d.Limits[0].Policy != policyFailedKeys || d.RetryAfter < 1 {
		t.Errorf("a failed key beyond the limit: %v, %+v, %v", results, d, err)
	}
	results, _, err = n.CheckAll(t.Context(), list(Call{RouteGroup: "exports"}, 2))
	if results != nil || codeOf(err) != quotad.CodeAPIKeyRequired {
		t.Errorf("no credential: %v, %v", results, err)
	}
	both := by(key)
	both.ServiceToken = n.mustToken(quotad.RoleService, nil).Secret
	results, _, err = n.CheckAll(t.Context(), []Call{both, both})
	if results != nil || codeOf(err) != quotad.CodeAmbiguousCredentials {
		t.Errorf("two credentials: %v, %v", results, err)
	}
	// Where no group asks for a key, a bad one is not looked at.
	junk := login(Call{APIKey: "junk", Address: address("192.0.2.1"), Door: "checks"})
	if got := said(n.decideAll(junk, junk)); got[0] != "true 29" || got[1] != "true 28" {
		t.Errorf("what refused lists charged: %v", got)
	}
	// A check that could not be read is told that to those who may ask.
	odd := Call{Fault: quotad.NewError(quotad.CodeInvalidCost, ""), Door: "checks"}
	if results, _, err := n.CheckAll(t.Context(), []Call{odd}); results != nil || codeOf(err) != quotad.CodeAPIKeyRequired {
		t.Errorf("nobody asks what can't be read: %v, %v", results, err)
	}
	if results := n.decideAll(); results == nil {
		t.Error("an empty list is none")
	}

	values, _ := series(t, registry)
	for name, want := range map[string]float64{
		"quotad_decisions_total door=checks reason= result=allow":                     10 + 20 + 2,
		"quotad_decisions_total door=checks reason=rate_limit_exceeded result=deny":   10 + 1,
		"quotad_decisions_total door=checks reason=invalid_api_key result=error":      3,
		"quotad_decisions_total door=checks reason=api_key_required result=error":     2,
		"quotad_decision_duration_seconds door=checks":                                40 + 2 + 4 + 2,
		"quotad_decisions_total door=check reason=ambiguous_credentials result=error": 1,
	} {
		if values[name] != want {
			t.Errorf("%s is %v, want %v", name, values[name], want)
		}
	}
}

func TestAListIsOneCallOfItsAddress(t *testing.T) {
	gated(t, perMinute(2, 0), func(t *testing.T, n *node) {
		call := from(by(n.mustKey("acme")), "192.0.2.1")
		for range 2 {
			n.decideAll(call, call, call)
		}
		queries := n.tap.queries()
		results, d, err := n.CheckAll(t.Context(), []Call{call, call})
		if results != nil || err != nil || d.Allowed || d.Limits[0].Policy != policyAddress || n.tap.queries() != queries {
			t.Errorf("%v, %+v, %v", results, d, err)
		}
		service := from(Call{ServiceToken: n.mustToken(quotad.RoleService, nil).Secret, Tenant: "acme", RouteGroup: "exports"}, "192.0.2.1")
		for range 5 {
			n.decideAll(service, service)
		}
	})
}

// A service asks for many tenants at once: what is wrong with one is not the others' affair.
func TestAListOfManyTenants(t *testing.T) {
	world(t, func(t *testing.T, n *node) {
		token := n.mustToken(quotad.RoleService, nil)
		n.mustTenant("gone", "pro")
		n.editTenant("gone", func(s *quotad.TenantSpec) { s.Status = quotad.TenantSuspended })
		of := func(tenant string) Call {
			return Call{ServiceToken: token.Secret, Tenant: tenant, RouteGroup: "exports", Cost: quotad.Units(4), Door: "checks"}
		}
		calls, want := []Call{}, []string{}
		for i := range 30 {
			n.mustTenant(fmt.Sprint("t", i), "pro")
		}
		for range 3 {
			for i := range 30 {
				calls = append(calls, of(fmt.Sprint("t", i)))
			}
			calls = append(calls, of("gone"), of("nobody"), of(""))
		}
		for _, left := range []string{"true 6", "true 2", "false 2"} {
			for range 30 {
				want = append(want, left)
			}
			want = append(want, "invalid_api_key", "invalid_request", "invalid_request")
		}
		if diff := cmp.Diff(want, said(n.decideAll(calls...))); diff != "" {
			t.Error(diff)
		}
		odd := of("")
		odd.Fault = quotad.NewError(quotad.CodeInvalidCost, "")
		if diff := cmp.Diff([]string{"invalid_cost", "false 2"}, said(n.decideAll(odd, of("t1")))); diff != "" {
			t.Error(diff)
		}
		bad := of("t1")
		bad.ServiceToken = n.mustToken(quotad.RoleOperator, nil).Secret
		if results, _, err := n.CheckAll(t.Context(), []Call{bad, of("t1")}); results != nil || codeOf(err) != quotad.CodeInvalidAPIKey {
			t.Errorf("a token of another role: %v, %v", results, err)
		}
		// In a group that asks for no key a token still has to be good, and then names the address.
		n.mustGroup(quotad.RouteGroupSpec{Name: "login", Auth: quotad.AuthNone, Limits: []quotad.Limit{rate("tries", "login", quotad.ScopeIP, 5, 60)}})
		login := Call{ServiceToken: token.Secret, RouteGroup: "login", IP: address("192.0.2.1"), Door: "checks"}
		if diff := cmp.Diff([]string{"true 4", "true 3"}, said(n.decideAll(login, login))); diff != "" {
			t.Error(diff)
		}
		login.ServiceToken = bad.ServiceToken
		if results, _, err := n.CheckAll(t.Context(), []Call{login}); results != nil || codeOf(err) != quotad.CodeInvalidAPIKey {
			t.Errorf("a token of another role, where no key is asked for: %v, %v", results, err)
		}
	})
}

// Two hundred lists at once over three nodes, for tenants of many shards, beside single
// calls: each counter admits exactly its limit.
func TestParallelListsAdmitExactlyTheLimit(t *testing.T) {
	t.Parallel()
	url, prefix := testenv.Redis(t)
	db, clock := databasetest.SQLite(t), testenv.NewClock()
	var nodes []*node
	for range 3 {
		client, err := ratelimit.Connect(url, ratelimit.ConnectOptions{Timeout: testenv.Patience})
		must(t, 0, err)
		t.Cleanup(func() { client.Close() })
		nodes = append(nodes, newNode(t, db, clock, ratelimit.NewFailover(
			ratelimit.NewRedis(client, ratelimit.RedisOptions{Prefix: prefix, Timeout: testenv.Patience}),
			ratelimit.NewMemory(ratelimit.MemoryOptions{}), ratelimit.FailoverOptions{Budget: testenv.Patience})))
	}
	const tenants, units = 8, 150
	nodes[0].mustTier(quotad.TierSpec{Name: "day", RateLimit: quotad.Units(units), RateWindow: 86400, Algorithm: quotad.SlidingWindowLog})
	nodes[0].mustGroup(quotad.RouteGroupSpec{Name: "exports"})
	for i := range tenants {
		nodes[0].mustTenant(fmt.Sprint("t", i), "day")
	}
	token := nodes[0].mustToken(quotad.RoleService, nil)
	var admitted [tenants]atomic.Int64
	var wg sync.WaitGroup
	for w := range 230 {
		wg.Go(func() {
			r, n := rand.New(rand.NewPCG(uint64(w), 9)), nodes[w%len(nodes)]
			var calls []Call
			var of []int
			for range 30 {
				tenant := r.IntN(tenants)
				of = append(of, tenant)
				calls = append(calls, Call{
					ServiceToken: token.Secret, Tenant: fmt.Sprint("t", tenant), RouteGroup: "exports", Cost: quotad.Units(1 + r.Int64N(2)), Door: "checks",
				})
			}
			if w < 30 {
				if n.decide(calls[0]).Allowed {
					admitted[of[0]].Add(*calls[0].Cost)
				}
				return
			}
			for i, r := range n.decideAll(calls...) {
				if r.Err != nil || r.Decision.Degraded {
					t.Errorf("%+v", r)
				}
				if r.Decision.Allowed {
					admitted[of[i]].Add(r.Decision.Cost)
				}
			}
		})
	}
	wg.Wait()
	for i := range tenants {
		if n := admitted[i].Load(); n != units {
			t.Errorf("tenant %d: %d units of %d", i, n, units)
		}
	}
}

// Each tenant of a list is answered by its own tier's policy while the counters are away.
func TestFailurePoliciesInAList(t *testing.T) {
	t.Parallel()
	for name, break_ := range map[string]func(*testenv.Server){"killed": (*testenv.Server).Stop, "frozen": (*testenv.Server).Freeze} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := testenv.OwnRedis(t)
			client, err := ratelimit.Connect(server.URL(), ratelimit.ConnectOptions{})
			must(t, 0, err)
			t.Cleanup(func() { client.Close() })
			clock := testenv.NewClock()
			n := newNode(t, databasetest.SQLite(t), clock, ratelimit.NewFailover(
				ratelimit.NewRedis(client, ratelimit.RedisOptions{}), ratelimit.NewMemory(ratelimit.MemoryOptions{Now: clock.Now}), ratelimit.FailoverOptions{Retry: time.Hour}))
			n.furnish()
			token := n.mustToken(quotad.RoleService, nil)
			var calls []Call
			for range 5 {
				for _, policy := range quotad.FailurePolicies {
					calls = append(calls, Call{ServiceToken: token.Secret, Tenant: string(policy), RouteGroup: "exports", Door: "checks"})
				}
			}
			for _, policy := range quotad.FailurePolicies {
				n.mustTier(quotad.TierSpec{Name: string(policy), RateLimit: quotad.Units(3), OnStoreFailure: &policy})
				n.mustTenant(string(policy), string(policy))
			}
			break_(server)
			for list := range 12 { // with the breaker closed, and open
				got := map[string]int{}
				for i, r := range n.decideAll(calls...) {
					switch {
					case r.Err != nil:
						got[calls[i].Tenant+" "+string(codeOf(r.Err))]++
					case r.Decision.Allowed:
						got[calls[i].Tenant+" "+string(r.Decision.DegradedBy)]++
					}
				}
				want := map[string]int{"open open": 5, "closed limiter_unavailable": 5, "local local": 3}
				if list > 0 {
					delete(want, "local local")
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("list %d: %s", list, diff)
				}
			}
		})
	}
}

// A list across the end of a period, by a clock that is wrong, is asked twice at most,
// and one by restless counters not for ever.
func TestAListIsOfTheCountersPeriod(t *testing.T) {
	counters(t, func(t *testing.T, n *node, ofCounters *testenv.Clock) {
		counting := &asking{Limiter: n.limiter}
		n.limiter = counting
		key := n.metered("c", []quotad.Quota{per(quotad.Day, 5)})
		n.mustTier(quotad.TierSpec{Name: "plain", RateLimit: quotad.Units(3)})
		ofCounters.Advance(24 * time.Hour)
		list := []Call{by(key), by(key), costing(by(key), 4), by(key)}
		if diff := cmp.Diff([]string{"true 4", "true 3", "false 3", "true 2"}, said(n.decideAll(list...))); diff != "" {
			t.Error(diff)
		}
		if times := counting.times.Load(); times != 2 {
			t.Errorf("the counters were asked %d times", times)
		}
		restless := &restless{}
		n.limiter = restless
		for _, r := range n.decideAll(list...) {
			if codeOf(r.Err) != quotad.CodeLimiterUnavailable {
				t.Errorf("%+v", r)
			}
		}
		if times := restless.times.Load(); times != 3 {
			t.Errorf("asked %d times", times)
		}
	})
}

func TestAListWhoseCallerHangsUpIsChargedWhole(t *testing.T) {
	t.Parallel()
	clock := testenv.NewClock()
	n := newNode(t, databasetest.SQLite(t), clock, heeding{ratelimit.NewMemory(ratelimit.MemoryOptions{Now: clock.Now})})
	n.furnish()
	key := n.mustKey("acme")
	n.allow(by(key))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	results, _, err := n.CheckAll(ctx, []Call{by(key), by(key)})
	if err != nil || results[1].Err != nil || results[1].Decision.Limits[0].Remaining != 7 {
		t.Errorf("%+v, %v", results, err)
	}
}

// While the database is away, a list of a key that is not known is refused whole; a
// service's is answered as far as its tenants are known.
func TestAListWhileTheDatabaseIsAway(t *testing.T) {
	t.Parallel()
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		n := newNode(t, db, testenv.NewClock(), nil)
		n.furnish()
		n.mustTenant("cold", "pro")
		key, token := n.mustKey("acme"), n.mustToken(quotad.RoleService, nil)
		of := func(tenant string) Call {
			return Call{ServiceToken: token.Secret, Tenant: tenant, RouteGroup: "exports", Door: "checks"}
		}
		n.decideAll(of("acme"))
		must(t, 0, db.Close())
		results, _, err := n.CheckAll(t.Context(), []Call{by(key), by(key)})
		if results != nil || codeOf(err) != quotad.CodeStoreUnavailable {
			t.Errorf("a key that is not known: %v, %v", results, err)
		}
		if diff := cmp.Diff([]string{"true 8", "store_unavailable", "true 7"}, said(n.decideAll(of("acme"), of("cold"), of("acme")))); diff != "" {
			t.Error(diff)
		}
	})
}

func TestAWarmListAllocatesLittle(t *testing.T) {
	c, key := newStill(t, []quotad.Limit{rate("company", "*", quotad.ScopeTenant, 1_000_000_000, 3600)})
	calls := make([]Call, 50)
	for i := range calls {
		calls[i] = Call{APIKey: key, RouteGroup: "exports", Door: "checks"}
	}
	n := testing.AllocsPerRun(200, func() {
		if results, _, err := c.CheckAll(t.Context(), calls); err != nil || !results[49].Decision.Allowed {
			t.Fatalf("%+v, %v", results, err)
		}
	})
	if n > 50+15 {
		t.Errorf("a warm list of 50 makes %v allocations", n)
	}
}
