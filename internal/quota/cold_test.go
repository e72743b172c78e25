package quota

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/secret"
	"github.com/quotad/quotad/internal/testenv"
)

func TestManyCallersOfOneColdKeyAreOneQueryEach(t *testing.T) {
	world(t, func(t *testing.T, n *node) {
		key := n.mustKey("acme")
		n.editTier("pro", func(s *quotad.TierSpec) { s.RateLimit = quotad.Units(10_000) })
		for _, round := range []string{"cold", "at the second that the entries expire"} {
			n.tap.slow(20 * time.Millisecond)
			before := [4]int64{n.tap.found.Load(), n.tap.tenants.Load(), n.tap.tiers.Load(), n.tap.groups.Load()}
			var wg sync.WaitGroup
			for range 500 {
				wg.Go(func() {
					if d, err := n.Check(t.Context(), by(key)); err != nil || !d.Allowed {
						t.Errorf("%s: %+v, %v", round, d, err)
					}
				})
			}
			wg.Wait()
			after := [4]int64{n.tap.found.Load(), n.tap.tenants.Load(), n.tap.tiers.Load(), n.tap.groups.Load()}
			for i := range after {
				if after[i]-before[i] != 1 {
					t.Errorf("%s: queries of keys, tenants, tiers, groups: %v, then %v", round, before, after)
					break
				}
			}
			n.Advance(time.Minute)
		}
	})
}

func TestFirstOfManyHangsUpOnASlowDatabase(t *testing.T) {
	world(t, func(t *testing.T, n *node) {
		key := n.mustKey("acme")
		n.editTier("pro", func(s *quotad.TierSpec) { s.RateLimit = quotad.Units(10_000) })
		n.decide(Call{APIKey: key.Secret, RouteGroup: "default"})
		release := make(chan struct{})
		hold := func(string) { <-release }
		n.tap.after.Store(&hold)
		n.Invalidate(quotad.ResourceTier, "pro")
		queries := n.tap.tiers.Load()

		first, hangUp := context.WithCancel(t.Context())
		gone := make(chan error, 1)
		go func() {
			_, err := n.Check(first, by(key))
			gone <- err
		}()
		testenv.Eventually(t, "the first caller's query", func() bool { return n.tap.tiers.Load() == queries+1 })
		var wg sync.WaitGroup
		for range 99 {
			wg.Go(func() {
				if d, err := n.Check(t.Context(), by(key)); err != nil || !d.Allowed {
					t.Errorf("%+v, %v", d, err)
				}
			})
		}
		hangUp()
		if err := <-gone; !errors.Is(err, context.Canceled) {
			t.Errorf("the first: %v", err)
		}
		close(release)
		wg.Wait()
		if got := n.tap.tiers.Load() - queries; got != 1 {
			t.Errorf("%d queries", got)
		}
	})
}

// The load has read the key, the revoke commits, and only then does the load
// come back with what it read.
func TestRevokeIsNotUndoneByALoadInFlight(t *testing.T) {
	world(t, func(t *testing.T, n *node) {
		key := n.mustKey("acme")
		n.allow(Call{APIKey: n.mustKey("acme").Secret, RouteGroup: "exports"})
		read, revoked := make(chan bool), make(chan bool)
		var once sync.Once
		hold := func(what string) {
			once.Do(func() { read <- true; <-revoked })
		}
		n.tap.after.Store(&hold)
		var wg sync.WaitGroup
		wg.Go(func() { n.Check(t.Context(), by(key)) }) // overlaps the revoke: either answer is right
		<-read
		n.revoke(key.ID)
		wg.Go(func() {
			if d, err := n.Check(t.Context(), by(key)); !errors.Is(err, quotad.ErrInvalidAPIKey) {
				t.Errorf("a call after the revoke, while the load was on its way: %+v, %v", d, err)
			}
		})
		time.Sleep(10 * time.Millisecond) // so that it waits for that load
		close(revoked)
		wg.Wait()
		n.fail(by(key), quotad.CodeInvalidAPIKey)
	})
}

func TestFloodOfUnknownKeys(t *testing.T) {
	world(t, func(t *testing.T, n *node) {
		n.editTier("pro", func(s *quotad.TierSpec) { s.RateLimit = quotad.Units(10_000_000) })
		warm := n.mustKey("acme")
		n.allow(by(warm))
		others := [3]int64{n.tap.tenants.Load(), n.tap.tiers.Load(), n.tap.groups.Load()}
		found := n.tap.found.Load()
		begun := time.Now()

		var left, slowest atomic.Int64
		left.Store(20_000)
		var wg sync.WaitGroup
		for range 64 {
			wg.Go(func() {
				for left.Add(-1) >= 0 {
					text, _ := secret.Mint(secret.APIKey, n.Now())
					if _, err := n.Check(t.Context(), Call{APIKey: text.Reveal(), RouteGroup: "exports"}); !errors.Is(err, quotad.ErrInvalidAPIKey) {
						t.Errorf("an unknown key: %v", err)
					}
				}
			})
		}
		for left.Load() > 0 {
			at := time.Now()
			n.allow(by(warm))
			slowest.Store(max(slowest.Load(), int64(time.Since(at))))
			runtime.Gosched()
		}
		wg.Wait()
		took := time.Since(begun)
		queries := n.tap.found.Load() - found
		if most := int64(took/batchGap) + 2; queries > most {
			t.Errorf("%d queries in %v, at most %d are to be made", queries, took, most)
		}
		if now := [3]int64{n.tap.tenants.Load(), n.tap.tiers.Load(), n.tap.groups.Load()}; now != others {
			t.Errorf("the warm key was looked up again: %v, then %v", others, now)
		}
		if entries, unknown := n.keys.Len(); entries != 1 || unknown > 10_000 {
			t.Errorf("%d entries, %d unknown ids", entries, unknown)
		}
		t.Logf("20000 unknown keys in %v: %d queries; slowest warm call %v", took, queries, time.Duration(slowest.Load()))
	})
}

// Whoever can reach the metered API can make up service tokens, whose checksums
// are right: that must not be a way to keep the database busy.
func TestFloodOfUnknownServiceTokens(t *testing.T) {
	world(t, func(t *testing.T, n *node) {
		token := n.mustToken(quotad.RoleService, nil)
		warm := Call{ServiceToken: token.Secret, Tenant: "acme", RouteGroup: "exports"}
		n.allow(warm)
		queries, begun := n.tap.tokens.Load(), time.Now()
		var left atomic.Int64
		left.Store(2_000)
		var wg sync.WaitGroup
		for range 64 {
			wg.Go(func() {
				for left.Add(-1) >= 0 {
					text, _ := secret.Mint(secret.AdminToken, n.Now())
					stranger := Call{ServiceToken: text.Reveal(), Tenant: "acme", RouteGroup: "exports"}
					if _, err := n.Check(t.Context(), stranger); !errors.Is(err, quotad.ErrInvalidAPIKey) {
						t.Errorf("an unknown token: %v", err)
					}
				}
			})
		}
		wg.Wait()
		took := time.Since(begun)
		if asked, most := n.tap.tokens.Load()-queries, int64(took/batchGap)+2; asked > most {
			t.Errorf("%d queries in %v, at most %d are to be made", asked, took, most)
		}
		// The token that works was among those asked for together with strangers.
		n.Invalidate(quotad.ResourceAdminToken, token.ID)
		wg = sync.WaitGroup{}
		for i := range 50 {
			wg.Go(func() {
				call := costing(warm, 0)
				if i%2 == 0 {
					text, _ := secret.Mint(secret.AdminToken, n.Now())
					call.ServiceToken = text.Reveal()
				}
				d, err := n.Check(t.Context(), call)
				if i%2 == 0 && !errors.Is(err, quotad.ErrInvalidAPIKey) || i%2 == 1 && (err != nil || !d.Allowed) {
					t.Errorf("call %d: %+v, %v", i, d, err)
				}
			})
		}
		wg.Wait()
	})
}

func TestNothingIsLeftBehind(t *testing.T) {
	c, key := newStill(t, nil)
	before := runtime.NumGoroutine()
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			text, _ := secret.Mint(secret.APIKey, time.Now())
			ctx, cancel := context.WithCancel(context.Background())
			if i%2 == 0 {
				cancel()
			}
			c.Check(ctx, Call{APIKey: text.Reveal(), RouteGroup: "exports"})
			c.Check(ctx, Call{APIKey: key, RouteGroup: "exports"})
			cancel()
		})
	}
	wg.Wait()
	testenv.Eventually(t, fmt.Sprintf("no more than %d goroutines", before), func() bool { return runtime.NumGoroutine() <= before })
}
