package quota

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/database"
	"github.com/quotad/quotad/internal/database/databasetest"
	"github.com/quotad/quotad/internal/ratelimit"
	"github.com/quotad/quotad/internal/testenv"
	"github.com/quotad/quotad/migrations"
)

// listen runs the node's listening until the test ends.
func (n *node) listen() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- n.log.Run(ctx) }()
	n.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			n.t.Errorf("listening: %v", err)
		}
	})
	testenv.Eventually(n.t, "the node listens", n.log.Connected)
}

// soon waits for the call to end with the code.
func (n *node) soon(call Call, what string, code quotad.Code) {
	n.t.Helper()
	testenv.Eventually(n.t, what, func() bool {
		_, err := n.Check(context.Background(), call)
		return codeOf(err) == code
	})
}

func TestChangesTakeEffectOnOtherNodes(t *testing.T) {
	t.Parallel()
	url, clock := databasetest.PostgresURL(t), testenv.NewClock()
	one, two := newNode(t, databasetest.Open(t, url), clock, nil), newNode(t, databasetest.Open(t, url), clock, nil)
	one.furnish()
	two.listen()
	key, revoked := one.mustKey("acme"), one.mustKey("acme")
	for _, k := range []quotad.Key{key, revoked} {
		one.allow(by(k))
		two.allow(by(k))
	}

	one.revoke(revoked.ID)
	one.fail(by(revoked), quotad.CodeInvalidAPIKey)
	two.soon(by(revoked), "the revoke", quotad.CodeInvalidAPIKey)

	one.editTenant("acme", func(s *quotad.TenantSpec) { s.Status = quotad.TenantSuspended })
	two.soon(by(key), "the suspension", quotad.CodeInvalidAPIKey)
	one.editTenant("acme", func(s *quotad.TenantSpec) { s.Status = quotad.TenantActive })
	two.soon(by(key), "the end of the suspension", "")

	one.editTier("pro", func(s *quotad.TierSpec) { s.RateLimit = quotad.Units(0) })
	testenv.Eventually(t, "the tier's new limit", func() bool { return !two.decide(costing(by(key), 0)).Allowed })
	one.editTier("pro", func(s *quotad.TierSpec) { s.RateLimit = quotad.Units(10) })

	one.editKey(key.ID, func(k *quotad.KeySpec) { k.RouteGroups = []string{"default"} })
	two.soon(by(key), "the key's groups", quotad.CodeRouteNotAllowed)
	one.mustGroup(quotad.RouteGroupSpec{Name: "uploads", Auth: quotad.AuthNone})
	call := Call{RouteGroup: "uploads", Address: address("192.0.2.1")}
	two.soon(call, "the new group", "")

	// A key that was tried at the other node before it was made.
	made := one.mustKey("acme")
	two.soon(by(made), "the new key", "")
}

func TestChangesAreSeenWithinTheTTLWhereNoNoticeArrives(t *testing.T) {
	t.Parallel()
	url, clock := databasetest.PostgresURL(t), testenv.NewClock()
	one, deaf := newNode(t, databasetest.Open(t, url), clock, nil), newNode(t, databasetest.Open(t, url), clock, nil)
	one.furnish()
	key := one.mustKey("acme")
	deaf.allow(by(key))
	one.revoke(key.ID)
	for range 29 { // after which it would be asked for again, and be seen earlier
		deaf.allow(costing(by(key), 0)) // reading does not extend it
		clock.Advance(time.Second)
	}
	clock.Advance(31 * time.Second)
	deaf.fail(by(key), quotad.CodeInvalidAPIKey)
}

func TestWhatWasMissedIsAskedForWhenListeningBeginsAgain(t *testing.T) {
	t.Parallel()
	url, clock := databasetest.PostgresURL(t), testenv.NewClock()
	one, two := newNode(t, databasetest.Open(t, url), clock, nil), newNode(t, databasetest.Open(t, url), clock, nil)
	one.furnish()
	key := one.mustKey("acme")
	two.allow(by(key))
	one.revoke(key.ID)
	two.allow(by(key)) // it has not heard
	two.listen()
	two.fail(by(key), quotad.CodeInvalidAPIKey)
}

// ownPostgres is a server that the test can stop, with a node on it.
func ownPostgres(t *testing.T, change ...func(*Options)) (*testenv.Server, *node, *database.DB) {
	t.Helper()
	server := testenv.OwnPostgres(t)
	if err := migrations.Up(t.Context(), server.URL()); err != nil {
		t.Fatal(err)
	}
	db := databasetest.Open(t, server.URL())
	n := newNode(t, db, testenv.NewClock(), nil, change...)
	n.furnish()
	n.editTier("pro", func(s *quotad.TierSpec) { s.RateLimit = quotad.Units(1_000_000) })
	return server, n, db
}

func TestPostgresIsAway(t *testing.T) {
	t.Parallel()
	server, n, _ := ownPostgres(t)
	warm := make([]quotad.Key, 100)
	for i := range warm {
		warm[i] = n.mustKey("acme")
	}
	cold, revoked := n.mustKey("acme"), n.mustKey("acme")
	n.listen() // after the writes, whose notices would come once more
	for _, k := range append(warm, revoked) {
		n.allow(by(k))
	}

	server.Stop()
	n.Invalidate(quotad.ResourceKey, revoked.ID) // the last that was heard of it
	for minute := range 11 {
		begun := time.Now()
		for _, k := range warm {
			n.allow(by(k))
		}
		if took := time.Since(begun); took > time.Minute { // no call waits for the budget of its load
			t.Errorf("minute %d: 100 calls took %v", minute, took)
		}
		if _, e := n.fail(by(cold), quotad.CodeStoreUnavailable); e.RetryAfter <= 0 {
			t.Errorf("a cold key is not told when to come again: %+v", e)
		}
		n.fail(by(revoked), quotad.CodeStoreUnavailable)
		n.Advance(time.Minute)
	}
	if n.guard.closed() {
		t.Error("the database is taken to be there")
	}
	n.Advance(time.Minute) // past what stale entries may serve
	n.fail(by(warm[0]), quotad.CodeStoreUnavailable)
	if _, unknown := n.keys.Len(); unknown != 0 {
		t.Errorf("%d ids are remembered as unknown", unknown)
	}

	server.Start()
	testenv.Eventually(t, "a cold key works again", func() bool {
		_, err := n.Check(context.Background(), by(cold))
		return err == nil
	})
	for _, k := range warm {
		n.allow(by(k))
	}
	n.allow(by(revoked)) // it never was: the notice was of something else
	testenv.Eventually(t, "the node listens again", n.log.Connected)
	n.revoke(revoked.ID)
	n.fail(by(revoked), quotad.CodeInvalidAPIKey)
}

// Calls of known keys end while each load that was begun since Postgres froze is yet
// to end: that none of them waited for one is seen by that order, however slow the
// machine.
func TestPostgresIsFrozen(t *testing.T) {
	t.Parallel()
	const budget = 2 * time.Minute // more than the calls take together, of which one may wait for a part of it
	for name, inUse := range map[string]bool{"keys in use": true, "keys that were idle": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			registry := prometheus.NewRegistry()
			server, n, _ := ownPostgres(t, func(o *Options) { o.LoadBudget, o.Registerer = budget, registry })
			served := func(outcome string) float64 {
				values, _ := series(t, registry)
				return values["quotad_cache_requests_total cache=keys outcome="+outcome]
			}
			warm := make([]quotad.Key, 50)
			for i := range warm {
				warm[i] = n.mustKey("acme")
			}
			revoked := n.mustKey("acme")
			for _, k := range append(warm, revoked) {
				n.allow(by(k))
			}
			hits := served("hit")
			var ended atomic.Int64
			count := func(string) { ended.Add(1) }
			n.tap.after.Store(&count)

			server.Freeze()
			if inUse {
				n.Advance(45 * time.Second) // half of the TTL is over: what is asked for is loaded again
				for _, k := range warm {
					n.allow(by(k))
				}
				if got := served("hit") - hits; got != float64(len(warm)) {
					t.Errorf("%v hits within the TTL, want %d", got, len(warm))
				}
				testenv.Eventually(t, "the database is known to hang", n.guard.hangs)
			}
			n.Advance(time.Minute)
			for range 5 {
				for _, k := range warm {
					n.allow(by(k))
				}
			}
			if got := served("stale"); got != float64(5*len(warm)) {
				t.Errorf("%v stale answers, want %d", got, 5*len(warm))
			}
			n.Invalidate(quotad.ResourceKey, revoked.ID)
			hurried, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			if d, err := n.Check(hurried, by(revoked)); !errors.Is(err, quotad.ErrStoreUnavailable) {
				t.Errorf("a key revoked meanwhile: %+v, %v", d, err)
			}
			if got := ended.Load(); got != 0 {
				t.Errorf("%d loads had ended by then", got)
			}

			server.Resume()
			for _, k := range warm {
				testenv.Eventually(t, "the key is loaded again", func() bool {
					before := served("stale")
					n.allow(by(k))
					return served("stale") == before
				})
			}
			if !n.guard.closed() {
				t.Error("the guard is not closed")
			}
		})
	}
}

func TestRouteGroupsOutliveTheDatabase(t *testing.T) {
	t.Parallel()
	server, n, db := ownPostgres(t)
	n.mustGroup(quotad.RouteGroupSpec{Name: "open", Auth: quotad.AuthNone})
	call := Call{RouteGroup: "open", Address: address("192.0.2.1")}
	n.allow(call)
	server.Stop()
	n.Advance(24 * time.Hour)
	n.allow(call)
	n.Invalidate(quotad.ResourceRouteGroup, "open")
	n.allow(call)
	n.Resync()
	n.allow(call)
	newNode(t, db, n.Clock, nil).fail(call, quotad.CodeStoreUnavailable) // knows nothing yet
}

func TestFailurePolicies(t *testing.T) {
	t.Parallel()
	server := testenv.OwnRedis(t)
	client, err := ratelimit.Connect(server.URL(), ratelimit.ConnectOptions{Timeout: testenv.Patience})
	must(t, 0, err)
	t.Cleanup(func() { client.Close() })
	clock := testenv.NewClock()
	local := ratelimit.NewMemory(ratelimit.MemoryOptions{Now: clock.Now})
	store := ratelimit.NewRedis(client, ratelimit.RedisOptions{Prefix: "quotad:", Timeout: testenv.Patience})
	n := newNode(t, databasetest.SQLite(t), clock, ratelimit.NewFailover(store, local, ratelimit.FailoverOptions{Budget: testenv.Patience}))
	n.furnish()
	keys := map[quotad.FailurePolicy]quotad.Key{}
	for _, policy := range quotad.FailurePolicies {
		n.mustTier(quotad.TierSpec{Name: "tier-" + string(policy), RateLimit: quotad.Units(3), RateWindow: quotad.MaxWindow, OnStoreFailure: &policy})
		n.mustTenant(string(policy), "tier-"+string(policy))
		keys[policy] = n.mustKey(string(policy))
		spent := n.mustKey(string(policy))
		if d := n.allow(costing(by(spent), 3)); d.Degraded || d.Limits[0].Remaining != 0 {
			t.Errorf("%s with the store there: %+v", policy, d)
		}
		if d := n.deny(by(spent)); d.Degraded { // a refusal is no failure
			t.Errorf("%s with the store there: %+v", policy, d)
		}
	}
	server.Stop()
	silent := n.mustKey("acme") // of a tier that says nothing

	allowed := map[quotad.FailurePolicy]int{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for policy, key := range keys {
		for range 50 {
			wg.Go(func() {
				d, err := n.Check(t.Context(), by(key))
				mu.Lock()
				defer mu.Unlock()
				switch {
				case policy == quotad.FailClosed:
					var e *quotad.Error
					if !errors.As(err, &e) || e.Code != quotad.CodeLimiterUnavailable || e.RetryAfter <= 0 {
						t.Errorf("closed: %+v, %v", d, err)
					}
					if d.Tenant != string(policy) || d.KeyID != key.ID || d.RouteGroup != "exports" {
						t.Errorf("closed: the decision does not name the caller: %+v", d)
					}
				case err != nil || d.DegradedBy != policy || !d.Degraded:
					t.Errorf("%s: %+v, %v", policy, d, err)
				case d.Allowed:
					allowed[policy]++
				}
			})
		}
	}
	wg.Wait()
	if got, want := fmt.Sprint(allowed), "map[local:3 open:50]"; got != want {
		t.Errorf("allowed by policy: %s, want %s", got, want)
	}
	if d := n.allow(by(silent)); d.DegradedBy != quotad.FailLocal {
		t.Errorf("a tier that says nothing: %+v", d)
	}
	for _, policy := range quotad.FailurePolicies { // what can never pass is no matter of policy
		if policy != quotad.FailClosed {
			n.fail(costing(by(keys[policy]), 4), quotad.CodeCostExceedsLimit)
		}
	}
}

// overRedis is a node whose counters are in a Redis that is well, and its failover.
func overRedis(t *testing.T) (*node, *ratelimit.Failover) {
	t.Helper()
	url, prefix := testenv.Redis(t)
	client, err := ratelimit.Connect(url, ratelimit.ConnectOptions{Timeout: testenv.Patience})
	must(t, 0, err)
	t.Cleanup(func() { client.Close() })
	clock := testenv.NewClock()
	failover := ratelimit.NewFailover(
		ratelimit.NewRedis(client, ratelimit.RedisOptions{Prefix: prefix, Timeout: testenv.Patience}),
		ratelimit.NewMemory(ratelimit.MemoryOptions{Now: clock.Now}), ratelimit.FailoverOptions{Budget: testenv.Patience})
	n := newNode(t, databasetest.SQLite(t), clock, failover)
	n.furnish()
	// By the clock of Redis no window is to end during the test.
	n.editTier("pro", func(s *quotad.TierSpec) { s.RateWindow = quotad.MaxWindow })
	return n, failover
}

func TestManyWhoHangUpAreNoFailureOfTheStore(t *testing.T) {
	t.Parallel()
	n, failover := overRedis(t)
	n.editTier("pro", func(s *quotad.TierSpec) { s.RateLimit = quotad.Units(1_000_000) })
	key := n.mustKey("acme")
	n.allow(by(key))
	var wg sync.WaitGroup
	for range 1000 {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Millisecond)
			defer cancel()
			if d, err := n.Check(ctx, by(key)); err != nil || d.Degraded || !d.Allowed {
				t.Errorf("%+v, %v", d, err)
			}
		})
	}
	wg.Wait()
	if state := failover.State(); state != "closed" {
		t.Errorf("the breaker is %s", state)
	}
	if d := n.allow(costing(by(key), 0)); d.Limits[0].Remaining != 1_000_000-1001 {
		t.Errorf("1001 calls were charged as %d", 1_000_000-d.Limits[0].Remaining)
	}
}

func TestAsManyLimitsAsThereCanBe(t *testing.T) {
	t.Parallel()
	n, _ := overRedis(t)
	var tier, group []quotad.Limit
	for i := range quotad.MaxLimits {
		tier = append(tier, rate(fmt.Sprint("limit-", i), "*", quotad.ScopeTenant, int64(100+i), quotad.MaxWindow))
		group = append(group, rate(fmt.Sprint("limit-", i), "exports", quotad.ScopeKey, int64(200+i), quotad.MaxWindow))
	}
	n.editTier("pro", func(s *quotad.TierSpec) { s.Limits = tier })
	n.editGroup("exports", func(g *quotad.RouteGroupSpec) { g.Limits = group })
	key := n.mustKey("acme")
	if d := n.allow(by(key)); len(d.Limits) != 1+2*quotad.MaxLimits || d.Degraded {
		t.Errorf("%d limits, degraded %v", len(d.Limits), d.Degraded)
	}
	decisions, err := n.Limits(t.Context(), Call{APIKey: key.Secret})
	if must(t, 0, err); len(decisions) != 2 || decisions[1].Degraded || decisions[1].Limits[64].Remaining != 230 {
		t.Errorf("%+v", decisions)
	}
}
