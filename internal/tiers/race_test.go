package tiers

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/quotad/quotad"
)

// trials is how often a race is run, and beside how many others of its kind.
const (
	trials = 50
	beside = 5
)

// trial is what is done at once, all trials beside each other, and what must
// hold of the errors afterwards.
type trial struct {
	race  []func() error
	check func(errs []error)
}

// eachTrial runs trials, each with an id of its own: it prepares some of them,
// runs all that they race at once, and then checks them.
func eachTrial(prepare func(id string) trial) {
	for first := 0; first < trials; first += beside {
		var list [beside]trial
		var errs [beside][]error
		var ready, done sync.WaitGroup
		for i := range list {
			list[i] = prepare(fmt.Sprintf("x%d", first+i))
			errs[i] = make([]error, len(list[i].race))
			ready.Add(len(list[i].race))
		}
		for i := range list {
			for j, f := range list[i].race {
				done.Go(func() {
					ready.Done()
					ready.Wait()
					errs[i][j] = f()
				})
			}
		}
		done.Wait()
		for i := range list {
			list[i].check(errs[i])
		}
	}
}

// wantOneOf wants all errors but one to be of the kind, and that one nil. It
// returns the index of that one.
func wantOneOf(t testing.TB, errs []error, kind *quotad.Error) (winner int) {
	t.Helper()
	winner = -1
	for i, err := range errs {
		switch {
		case err == nil && winner < 0:
			winner = i
		case err == nil:
			t.Errorf("more than one was successful")
		case !errors.Is(err, kind):
			t.Errorf("error is %v, want %s", err, kind.Code)
		}
	}
	if winner < 0 {
		t.Errorf("none was successful: %v", errs)
	}
	return winner
}

// wantHistory fails unless the events of a resource tell its history without a gap.
func (h hand) wantHistory(id string, resource quotad.Resource, verbs ...string) {
	h.Helper()
	var got []string
	last := ""
	for _, e := range h.mustEvents(h, id) {
		if e.Resource != resource {
			continue
		}
		if e.Before != last {
			h.Errorf("%s of %q follows\n%s\nand says it was\n%s", e.Action, id, last, e.Before)
		}
		last = e.After
		got = append(got, strings.TrimPrefix(e.Action, string(resource)+"."))
	}
	if strings.Join(got, " ") != strings.Join(verbs, " ") {
		h.Errorf("events of %q are %v, want %v", id, got, verbs)
	}
}

func (h hand) must(err error) {
	h.Helper()
	if err != nil {
		h.Fatal(err)
	}
}

func TestEditsOfDifferentFieldsBothSurvive(t *testing.T) {
	eachKind(t, func(t *testing.T, h hand, k kind) {
		eachTrial(func(id string) trial {
			h.must(k.create(h, id))
			return trial{[]func() error{
				func() error { return k.one(h, id, 21, nil) },
				func() error { return k.two(h, id, 30, nil) },
			}, func(errs []error) {
				h.must(errors.Join(errs...))
				if now, err := k.read(h, id); err != nil || now.One != 21 || now.Two != 30 || now.Version != 3 {
					t.Errorf("stored %+v, %v; want both edits", now, err)
				}
				h.wantHistory(id, k.resource, "created", "updated", "updated")
			}}
		})
	})
}

func TestOneOfTwoConditionalEditsWins(t *testing.T) {
	eachKind(t, func(t *testing.T, h hand, k kind) {
		eachTrial(func(id string) trial {
			h.must(k.create(h, id))
			first := k.at(h, id, 1)
			return trial{[]func() error{
				func() error { return k.one(h, id, 21, first) },
				func() error { return k.two(h, id, 30, first) },
			}, func(errs []error) {
				winner := wantOneOf(t, errs, quotad.ErrPreconditionFailed)
				now, err := k.read(h, id)
				if err != nil || now.Version != 2 || (now.One == 21) != (winner == 0) || (now.Two == 30) != (winner == 1) {
					t.Errorf("stored %+v, %v; want the edit of number %d alone", now, err, winner)
				}
				h.wantHistory(id, k.resource, "created", "updated")
			}}
		})
	})
}

func TestAnEditBesideADeletion(t *testing.T) {
	eachKind(t, func(t *testing.T, h hand, k kind) {
		eachTrial(func(id string) trial {
			h.must(k.create(h, id))
			return trial{[]func() error{
				func() error { return k.one(h, id, 21, nil) },
				func() error { return k.remove(h, id, nil) },
			}, func(errs []error) {
				h.must(errs[1])
				_, err := k.read(h, id)
				wantKind(t, err, quotad.ErrNotFound)
				if errs[0] == nil {
					h.wantHistory(id, k.resource, "created", "updated", "deleted")
				} else {
					wantKind(t, errs[0], quotad.ErrNotFound)
					h.wantHistory(id, k.resource, "created", "deleted")
				}
			}}
		})
	})
}

func TestAConditionalEditBesideAConditionalDeletion(t *testing.T) {
	eachKind(t, func(t *testing.T, h hand, k kind) {
		eachTrial(func(id string) trial {
			h.must(k.create(h, id))
			first := k.at(h, id, 1)
			return trial{[]func() error{
				func() error { return k.one(h, id, 21, first) },
				func() error { return k.remove(h, id, first) },
			}, func(errs []error) {
				if errs[0] == nil {
					wantKind(t, errs[1], quotad.ErrPreconditionFailed)
					h.wantHistory(id, k.resource, "created", "updated")
				} else {
					h.must(errs[1])
					wantKind(t, errs[0], quotad.ErrNotFound)
					h.wantHistory(id, k.resource, "created", "deleted")
				}
			}}
		})
	})
}

func TestOneOfSeveralCreationsWins(t *testing.T) {
	eachKind(t, func(t *testing.T, h hand, k kind) {
		eachTrial(func(id string) trial {
			create := func() error { return k.create(h, id) }
			return trial{[]func() error{create, create, create}, func(errs []error) {
				wantOneOf(t, errs, quotad.ErrExists)
				h.wantHistory(id, k.resource, "created")
			}}
		})
	})
}

// wantNoOrphan takes the outcome of a deletion, and of those who began to refer
// to the deleted thing by the field.
func wantNoOrphan(t testing.TB, field string, deleted error, referring ...error) {
	t.Helper()
	refer := 0
	for _, err := range referring {
		var e *quotad.Error
		switch {
		case err == nil:
			refer++
		case !errors.As(err, &e) || !e.Fields.Has(field):
			t.Errorf("referring: %v, want a fault of %s", err, field)
		}
	}
	if (deleted == nil) != (refer == 0) || deleted != nil && !errors.Is(deleted, quotad.ErrInUse) {
		t.Errorf("deletion: %v, while %d refer to it", deleted, refer)
	}
}

func TestNoTenantIsLeftWithoutATier(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		s.mustTier(t, quotad.TierSpec{Name: "ground"})
		eachTrial(func(id string) trial {
			s.mustTier(t, quotad.TierSpec{Name: id})
			s.mustTenant(t, "moves-"+id, "ground")
			return trial{[]func() error{
				func() error { return s.DeleteTier(ctx, operator, id, nil) },
				func() error {
					_, err := s.CreateTenant(ctx, operator, quotad.TenantSpec{ID: "new-" + id, Name: "n", Tier: id})
					return err
				},
				func() error {
					_, err := s.UpdateTenant(ctx, operator, "moves-"+id, nil, func(t *quotad.TenantSpec) error { t.Tier = id; return nil })
					return err
				},
			}, func(errs []error) { wantNoOrphan(t, "tier", errs[0], errs[1:]...) }}
		})
	})
}

func TestNoLimitIsLeftWithoutItsRouteGroup(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		eachTrial(func(id string) trial {
			s.mustGroup(t, id)
			s.mustTier(t, quotad.TierSpec{Name: "old-" + id})
			limits := []quotad.Limit{{Name: "l", RouteGroup: id, RateWindow: 1}}
			return trial{[]func() error{
				func() error { return s.DeleteRouteGroup(ctx, operator, id, nil) },
				func() error {
					_, err := s.CreateTier(ctx, operator, quotad.TierSpec{Name: "new-" + id, RateWindow: 1, Limits: limits})
					return err
				},
				func() error {
					_, err := s.UpdateTier(ctx, operator, "old-"+id, nil, func(t *quotad.TierSpec) error { t.Limits = limits; return nil })
					return err
				},
			}, func(errs []error) { wantNoOrphan(t, "limits[0].route_group", errs[0], errs[1:]...) }}
		})
	})
}

func TestNoQuotaIsLeftWithoutItsRouteGroup(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		eachTrial(func(id string) trial {
			s.mustGroup(t, id)
			s.mustTier(t, quotad.TierSpec{Name: "old-" + id})
			quotas := []quotad.Quota{{Name: "q", RouteGroup: id, Period: quotad.Day}}
			return trial{[]func() error{
				func() error { return s.DeleteRouteGroup(ctx, operator, id, nil) },
				func() error {
					_, err := s.CreateTier(ctx, operator, quotad.TierSpec{Name: "new-" + id, RateWindow: 1, Quotas: quotas})
					return err
				},
				func() error {
					_, err := s.UpdateTier(ctx, operator, "old-"+id, nil, func(t *quotad.TierSpec) error { t.Quotas = quotas; return nil })
					return err
				},
			}, func(errs []error) { wantNoOrphan(t, "quotas[0].route_group", errs[0], errs[1:]...) }}
		})
	})
}

func TestOneOfSeveralConflictingPatternsWins(t *testing.T) {
	each(t, func(t *testing.T, s *Store) {
		ctx := t.Context()
		create := func(name, match string) func() error {
			return func() error {
				_, err := s.CreateRouteGroup(ctx, operator, quotad.RouteGroupSpec{Name: name, Match: []string{match}})
				return err
			}
		}
		eachTrial(func(id string) trial {
			s.mustGroup(t, "old-"+id)
			return trial{[]func() error{
				create("a-"+id, "/"+id+"/{what}/end"),
				create("b-"+id, "/"+id+"/start/{what}"),
				func() error {
					_, err := s.UpdateRouteGroup(ctx, operator, "old-"+id, nil, func(g *quotad.RouteGroupSpec) error {
						g.Match = []string{"/" + strings.ToUpper(id) + "/{x}/End"}
						return nil
					})
					return err
				},
			}, func(errs []error) { wantOneOf(t, errs, quotad.ErrInvalidFields) }}
		})
		groups, err := s.AllRouteGroups(ctx)
		if err != nil {
			t.Fatal(err)
		}
		newMatcher(t, groups...)
	})
}
