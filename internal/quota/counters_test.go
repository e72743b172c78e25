package quota

import (
	"testing"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/ratelimit"
)

// Ids that, joined by any separator, would read alike.
func TestNoTwoNamesShareACounter(t *testing.T) {
	texts := []string{"a", "b", "c", "b:c", "a:b", "a|b", "a/b", "b|c", "a__1", "b%3Ac", "{a}", "a}", "a b", "a\nb", "", "tenant", "key"}
	seen := map[ratelimit.Counter]counterName{}
	add := func(n counterName) {
		c := n.counter()
		if other, ok := seen[c]; ok && other != n {
			t.Fatalf("%#v and %#v share a counter", n, other)
		}
		seen[c] = n
	}
	for _, one := range texts {
		for _, two := range texts {
			for _, kind := range []identity{ofTenant, ofKey, ofSubject, ofAddress} {
				base := counterName{Kind: kind, Tenant: one, ID: two, Declared: inTier, RouteGroup: "*", Policy: "p", Algorithm: quotad.FixedWindow, Window: 60}
				add(base)
				for _, change := range []func(*counterName){
					func(n *counterName) { n.Declared = inGroup },
					func(n *counterName) { n.RouteGroup = "default" },
					func(n *counterName) { n.Policy = "q" },
					func(n *counterName) { n.Algorithm = quotad.TokenBucket },
					func(n *counterName) { n.Window = 61 },
				} {
					n := base
					change(&n)
					add(n)
				}
			}
			add(counterName{Tenant: "t", RouteGroup: one, Policy: two})
		}
	}
}

// What was used is found under the counter's name. A change to the name forgets
// all of it, so it is to be seen when it happens.
func TestCounterNamesStayWhatTheyAre(t *testing.T) {
	n := counterName{
		Kind: ofKey, Tenant: "acme", ID: "0000000000000000", Declared: inTier, RouteGroup: "exports",
		Policy: "base", Algorithm: quotad.SlidingWindowCounter, Window: 60,
	}
	if got, want := n.counter().String(), "BtsuB5M9HTF2sHVF8uxNWw"; got != want {
		t.Errorf("counter %s, want %s", got, want)
	}
}
