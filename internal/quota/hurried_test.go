package quota

import (
	"slices"
	"testing"

	"github.com/quotad/quotad"
)

// full is a queue without a place.
type full struct{ asked []string }

func (f *full) Enter(tenant string) bool {
	f.asked = append(f.asked, tenant)
	return false
}

// A call that can't be held back is refused where another would be delayed, and
// takes nothing from those that can wait.
func TestHurriedCallsAreRefusedRatherThanDelayed(t *testing.T) {
	world(t, func(t *testing.T, n *node) {
		n.mustTier(quotad.TierSpec{
			Name: "queue", RateLimit: quotad.Units(60), Algorithm: quotad.LeakyBucket, Burst: quotad.Units(1), MaxDelayMS: 2000,
		})
		n.mustTenant("slow", "queue")
		key := n.mustKey("slow")
		hurried, patient := by(key), by(key)
		queue := &full{}
		hurried.Queue = queue
		n.allow(hurried)
		for range 3 {
			if d := n.deny(hurried); d.RetryAfter != 1 {
				t.Errorf("a hurried call may come back after %d s, want 1", d.RetryAfter)
			}
		}
		for _, want := range []int64{1000, 2000} {
			if d := n.allow(patient); d.DelayMS != want {
				t.Errorf("a patient call is delayed by %d ms, want %d", d.DelayMS, want)
			}
			n.deny(hurried)
		}
		n.deny(patient)
		if len(queue.asked) == 0 || slices.ContainsFunc(queue.asked, func(tenant string) bool { return tenant != "slow" }) {
			t.Errorf("the queue was asked for places of %q", queue.asked)
		}
		// What nothing can delay needs no place.
		queue.asked = nil
		other := by(n.mustKey("acme"))
		other.Queue = queue
		if n.allow(other); queue.asked != nil {
			t.Errorf("a call that can't be delayed asked for a place of %q", queue.asked)
		}
	})
}

func TestRouteGroupOfACallThatIsNotDecided(t *testing.T) {
	world(t, func(t *testing.T, n *node) {
		for path, want := range map[string]string{"/V1//exports/7": "exports", "/elsewhere": "default"} {
			if got, err := n.RouteGroup(t.Context(), "GET", path); err != nil || got != want {
				t.Errorf("%s: got %q, %v, want %q", path, got, err, want)
			}
		}
		if _, err := n.RouteGroup(t.Context(), "GET", "/v1/x/../exports"); codeOf(err) != quotad.CodeInvalidPath {
			t.Errorf("an ambiguous path: got %v", err)
		}
	})
}
