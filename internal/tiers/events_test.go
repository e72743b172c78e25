package tiers

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quotad/quotad"
)

// hand is one who writes.
type hand struct {
	testing.TB
	*Store
	by quotad.Actor
}

// kind is one of the three resources, with two fields that are edited apart.
type kind struct {
	resource quotad.Resource
	// create makes one that nothing else needs; again makes it from what it is.
	create func(h hand, id string) error
	// one and two set the two fields to n.
	one, two func(h hand, id string, n int64, ifMatch *Revision) error
	remove   func(h hand, id string, ifMatch *Revision) error
	read     func(h hand, id string) (stored, error)
}

// at is a version of the one that is there now.
func (k kind) at(h hand, id string, version int64) *Revision {
	r := &Revision{Version: version}
	if now, err := k.read(h, id); err == nil {
		var made struct {
			At time.Time `json:"created_at"`
		}
		h.must(json.Unmarshal([]byte(now.JSON), &made))
		r.CreatedAt = made.At
	}
	return r
}

// stored is what a kind has in the database.
type stored struct {
	One, Two, Version int64
	JSON              string
}

var kinds = []kind{{
	resource: quotad.ResourceTier,
	create: func(h hand, id string) error {
		_, err := h.CreateTier(h.Context(), h.by, quotad.TierSpec{Name: id, RateLimit: quotad.Units(1), RateWindow: 1})
		return err
	},
	one: func(h hand, id string, n int64, ifMatch *Revision) error {
		_, err := h.UpdateTier(h.Context(), h.by, id, ifMatch, func(t *quotad.TierSpec) error { t.RateLimit = &n; return nil })
		return err
	},
	two: func(h hand, id string, n int64, ifMatch *Revision) error {
		_, err := h.UpdateTier(h.Context(), h.by, id, ifMatch, func(t *quotad.TierSpec) error {
			t.RateWindow, t.Limits = n, []quotad.Limit{{Name: "l", RateWindow: n}}
			return nil
		})
		return err
	},
	remove: func(h hand, id string, ifMatch *Revision) error {
		return h.DeleteTier(h.Context(), h.by, id, ifMatch)
	},
	read: func(h hand, id string) (stored, error) {
		tier, err := h.Tier(h.Context(), id)
		if err != nil {
			return stored{}, err
		}
		return stored{*tier.RateLimit, tier.RateWindow, tier.Version, text(h, tier)}, nil
	},
}, {
	resource: quotad.ResourceTenant,
	create: func(h hand, id string) error {
		_, err := h.CreateTenant(h.Context(), h.by, quotad.TenantSpec{ID: id, Name: id, Tier: "ground", Metadata: map[string]any{"n": 1}})
		return err
	},
	one: func(h hand, id string, n int64, ifMatch *Revision) error {
		_, err := h.UpdateTenant(h.Context(), h.by, id, ifMatch, func(t *quotad.TenantSpec) error { t.BillingAnchorDay = int(n); return nil })
		return err
	},
	two: func(h hand, id string, n int64, ifMatch *Revision) error {
		_, err := h.UpdateTenant(h.Context(), h.by, id, ifMatch, func(t *quotad.TenantSpec) error { t.Metadata["n"] = n; return nil })
		return err
	},
	remove: func(h hand, id string, ifMatch *Revision) error {
		return h.DeleteTenant(h.Context(), h.by, id, ifMatch)
	},
	read: func(h hand, id string) (stored, error) {
		tenant, err := h.Tenant(h.Context(), id)
		if err != nil {
			return stored{}, err
		}
		n, err := tenant.Metadata["n"].(interface{ Int64() (int64, error) }).Int64()
		return stored{int64(tenant.BillingAnchorDay), n, tenant.Version, text(h, tenant)}, err
	},
}, {
	resource: quotad.ResourceRouteGroup,
	create: func(h hand, id string) error {
		_, err := h.CreateRouteGroup(h.Context(), h.by, quotad.RouteGroupSpec{Name: id, Limits: []quotad.Limit{{Name: "l", RouteGroup: id, RateWindow: 1}}})
		return err
	},
	one: func(h hand, id string, n int64, ifMatch *Revision) error {
		_, err := h.UpdateRouteGroup(h.Context(), h.by, id, ifMatch, func(g *quotad.RouteGroupSpec) error { *g.Cost = n; return nil })
		return err
	},
	two: func(h hand, id string, n int64, ifMatch *Revision) error {
		_, err := h.UpdateRouteGroup(h.Context(), h.by, id, ifMatch, func(g *quotad.RouteGroupSpec) error { g.Limits[0].RateWindow = n; return nil })
		return err
	},
	remove: func(h hand, id string, ifMatch *Revision) error {
		return h.DeleteRouteGroup(h.Context(), h.by, id, ifMatch)
	},
	read: func(h hand, id string) (stored, error) {
		group, err := h.RouteGroup(h.Context(), id)
		if err != nil {
			return stored{}, err
		}
		return stored{*group.Cost, group.Limits[0].RateWindow, group.Version, text(h, group)}, nil
	},
}}

// eachKind runs f for every resource on a fresh store over each engine; a
// tenant's tier is there.
func eachKind(t *testing.T, f func(t *testing.T, h hand, k kind)) {
	each(t, func(t *testing.T, s *Store) {
		s.mustTier(t, quotad.TierSpec{Name: "ground"})
		for _, k := range kinds {
			t.Run(string(k.resource), func(t *testing.T) { f(t, hand{t, s, operator}, k) })
		}
	})
}

func TestEverySuccessfulWriteLeavesOneEvent(t *testing.T) {
	eachKind(t, func(t *testing.T, h hand, k kind) {
		var states []string // of the resource, by version
		note := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
			now, err := k.read(h, "x")
			if err != nil {
				t.Fatal(err)
			}
			if states = append(states, now.JSON); now.Version != int64(len(states)) {
				t.Fatalf("version %d after %d writes", now.Version, len(states))
			}
		}
		note(k.create(h, "x"))
		note(k.one(h, "x", 5, nil))
		note(k.two(h, "x", 7, k.at(h, "x", 2)))

		// What changes nothing, and what is refused, leaves nothing.
		for range 2 {
			if err := k.one(h, "x", 5, k.at(h, "x", 3)); err != nil {
				t.Error(err)
			}
		}
		wantKind(t, k.create(h, "x"), quotad.ErrExists)
		wantKind(t, k.one(h, "x", -5, nil), quotad.ErrInvalidFields)
		wantKind(t, k.one(h, "x", 6, k.at(h, "x", 2)), quotad.ErrPreconditionFailed)
		wantKind(t, k.one(h, "nobody", 6, nil), quotad.ErrNotFound)
		wantKind(t, k.one(h, "nobody", 6, k.at(h, "nobody", 1)), quotad.ErrNotFound)
		wantKind(t, k.remove(h, "x", k.at(h, "x", 4)), quotad.ErrPreconditionFailed)
		wantKind(t, k.remove(h, "nobody", nil), quotad.ErrNotFound)
		if now, err := k.read(h, "x"); err != nil || now.JSON != states[2] {
			t.Errorf("read %+v, %v; want %s", now, err, states[2])
		}
		if err := k.remove(h, "x", k.at(h, "x", 3)); err != nil {
			t.Fatal(err)
		}
		_, err := k.read(h, "x")
		wantKind(t, err, quotad.ErrNotFound)

		row := event{Target: "x", Actor: operator, Resource: k.resource}
		if k.resource == quotad.ResourceTenant {
			row.Tenant = "x"
		}
		want := make([]event, 4)
		for i, verb := range []string{"created", "updated", "updated", "deleted"} {
			want[i] = row
			want[i].Action, want[i].Version = string(k.resource)+"."+verb, int64(i+1)
			if i > 0 {
				want[i].Before = states[i-1]
			}
			if i < 3 {
				want[i].After = states[i]
			}
		}
		var got []event
		for _, e := range h.mustEvents(t, "x") {
			if e.Resource == k.resource {
				got = append(got, e)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
		if n := len(h.mustEvents(t, "nobody")); n != 0 {
			t.Errorf("%d events of what was never there", n)
		}
	})
}

// Versions begin anew with a resource that is made anew, and a write that was meant for
// the one before is not one of it: however soon, as where both fall between a client's
// look at the tag and its write.
func TestAWriteToOneThatIsGoneIsNoneToItsSuccessor(t *testing.T) {
	eachKind(t, func(t *testing.T, h hand, k kind) {
		h.must(k.create(h, "x"))
		first := k.at(h, "x", 1)
		h.must(k.remove(h, "x", first))
		h.must(k.create(h, "x"))
		wantKind(t, k.one(h, "x", 5, first), quotad.ErrPreconditionFailed)
		wantKind(t, k.remove(h, "x", first), quotad.ErrPreconditionFailed)
		h.must(k.one(h, "x", 5, k.at(h, "x", 1)))
	})
}

// TestAWriteWithoutItsEventIsNone makes the event impossible and looks at the write.
func TestAWriteWithoutItsEventIsNone(t *testing.T) {
	eachKind(t, func(t *testing.T, h hand, k kind) {
		if err := k.create(h, "x"); err != nil {
			t.Fatal(err)
		}
		before, err := k.read(h, "x")
		if err != nil {
			t.Fatal(err)
		}
		unknown := h
		unknown.by.Type = "nobody"
		if err := k.create(unknown, "y"); err == nil {
			t.Error("created without an event")
		}
		if err := k.two(unknown, "x", 9, nil); err == nil {
			t.Error("updated without an event")
		}
		if err := k.remove(unknown, "x", nil); err == nil {
			t.Error("deleted without an event")
		}
		_, err = k.read(h, "y")
		wantKind(t, err, quotad.ErrNotFound)
		if after, err := k.read(h, "x"); err != nil || after != before {
			t.Errorf("read %+v, %v; want %+v", after, err, before)
		}
	})
}
