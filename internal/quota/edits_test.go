package quota

import (
	"testing"
	"time"

	"github.com/quotad/quotad"
)

func TestEditsKeepWhatWasUsed(t *testing.T) {
	for _, algorithm := range quotad.Algorithms {
		t.Run(string(algorithm), func(t *testing.T) {
			world(t, func(t *testing.T, n *node) {
				n.mustTier(quotad.TierSpec{Name: "edited", RateLimit: quotad.Units(10), RateWindow: 3600, Algorithm: algorithm})
				n.mustTenant("e", "edited")
				key := n.mustKey("e")
				admitted := func(calls int) (allowed int) {
					for range calls {
						if n.decide(by(key)).Allowed {
							allowed++
						}
					}
					return allowed
				}
				if got := admitted(50); got != 10 {
					t.Fatalf("%d of 50 calls passed 10/3600", got)
				}
				size := func(units int64) {
					n.editTier("edited", func(s *quotad.TierSpec) { s.RateLimit = quotad.Units(units) })
				}
				size(20) // refused calls were not counted
				want := 10
				if algorithm == quotad.TokenBucket || algorithm == quotad.LeakyBucket {
					want = 0 // a bucket that is empty stays so, and fills faster
				}
				if got := admitted(11); got != want {
					t.Errorf("%d of 11 calls passed after a raise to 20, want %d", got, want)
				}
				size(5)
				d := n.deny(by(key))
				if l := d.Limits[0]; l.Limit != 5 || l.Remaining != 0 {
					t.Errorf("after a cut below what was used: %+v", l)
				}
				n.Advance(time.Duration(d.RetryAfter) * time.Second)
				n.allow(by(key))
			})
		})
	}
}

func TestChangeOfTierKeepsWhatWasUsed(t *testing.T) {
	world(t, func(t *testing.T, n *node) {
		n.mustTier(quotad.TierSpec{Name: "big", RateLimit: quotad.Units(100)})
		key := n.mustKey("acme")
		n.allow(costing(by(key), 8))
		n.editTenant("acme", func(s *quotad.TenantSpec) { s.Tier = "big" })
		if d := n.allow(by(key)); d.Tier != "big" || d.Limits[0].Limit != 100 || d.Limits[0].Remaining != 91 {
			t.Errorf("on the bigger tier: %+v", d)
		}
		n.editKey(key.ID, func(k *quotad.KeySpec) { k.RateLimit, k.RateWindow = quotad.Units(12), quotad.Units(60) })
		if d := n.allow(by(key)); d.Limits[0].Limit != 12 || d.Limits[0].Remaining != 2 {
			t.Errorf("with a rate of its own: %+v", d)
		}
		n.editTenant("acme", func(s *quotad.TenantSpec) { s.Tier = "pro" })
		n.editKey(key.ID, func(k *quotad.KeySpec) { k.RateLimit, k.RateWindow = nil, nil })
		if d := n.deny(by(key)); d.Limits[0].Limit != 10 || d.Limits[0].Remaining != 0 {
			t.Errorf("back where it was: %+v", d)
		}
	})
}

func TestShadowLimitsOnlyTell(t *testing.T) {
	world(t, func(t *testing.T, n *node) {
		n.mustTier(quotad.TierSpec{Name: "dark", RateLimit: quotad.Units(2), Shadow: true})
		n.mustTenant("shade", "dark")
		key := n.mustKey("shade")
		for i := range 5 {
			d := n.allow(by(key))
			if l := d.Limits[0]; !l.Shadow || l.Allowed != (i < 2) || l.Remaining != int64(max(0, 1-i)) || d.RetryAfter != 0 {
				t.Errorf("call %d: %+v", i, d)
			}
		}
	})
}
