package quota

import (
	"context"
	"fmt"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/tiers"
)

// groups are all route groups as they were at one moment. They never change.
type groups struct {
	matcher *tiers.Matcher
	byName  map[string]*group
	list    []*group // in the order that they came in; group.at is the index
}

// group is one route group.
type group struct {
	spec quotad.RouteGroupSpec
	at   int
	cost int64 // of a call that names none
	open *plan // of a group that asks for no key, else nil
}

func (c *Checker) loadGroups(ctx context.Context, _ string) (*groups, error) {
	all, err := guarded(c.guard, func() ([]quotad.RouteGroup, error) { return c.sources.RouteGroups.AllRouteGroups(ctx) })
	if err != nil {
		return nil, fmt.Errorf("load the route groups: %w", err)
	}
	made, err := newGroups(all, c.opts.OnStoreFailure)
	if err != nil {
		return nil, fmt.Errorf("load the route groups: %w", err)
	}
	return made, nil
}

func newGroups(all []quotad.RouteGroup, policy quotad.FailurePolicy) (*groups, error) {
	matcher, err := tiers.NewMatcher(all)
	if err != nil {
		return nil, err
	}
	g := &groups{matcher: matcher, byName: make(map[string]*group, len(all)+1)}
	for _, one := range all {
		g.add(one.RouteGroupSpec, policy)
	}
	// Every database has a group default. A call that matches nothing is counted
	// even where somebody has removed it.
	if g.byName[quotad.DefaultGroup] == nil {
		spec := quotad.RouteGroupSpec{Name: quotad.DefaultGroup}
		spec.SetDefaults()
		g.add(spec, policy)
	}
	return g, nil
}

func (g *groups) add(spec quotad.RouteGroupSpec, policy quotad.FailurePolicy) {
	one := &group{spec: spec, at: len(g.list), cost: 1}
	if spec.Cost != nil {
		one.cost = *spec.Cost
	}
	if spec.Auth == quotad.AuthNone {
		one.open = newOpenPlan(spec.Limits, policy)
	}
	g.list = append(g.list, one)
	g.byName[spec.Name] = one
}

// of finds the group of a call: the one that it names, else the one that its
// method and path belong to.
func (g *groups) of(call Call) (*group, error) {
	if call.RouteGroup != "" {
		return g.named(call.RouteGroup)
	}
	name, err := g.matcher.Match(call.Method, call.Path)
	if err != nil {
		return nil, err
	}
	return g.byName[name], nil
}

func (g *groups) named(name string) (*group, error) {
	if one, ok := g.byName[name]; ok {
		return one, nil
	}
	if !quotad.ValidName(name) { // it could be anything: it is not repeated
		return nil, quotad.NewError(quotad.CodeInvalidRequest, "route_group does not exist")
	}
	return nil, quotad.NewError(quotad.CodeInvalidRequest, fmt.Sprintf("route_group %q does not exist", name))
}

// RouteGroup finds the group of a call that nobody asks a decision for, such as a
// preflight. It charges nothing. The error is CodeInvalidPath where servers would
// not agree on what the path names.
func (c *Checker) RouteGroup(ctx context.Context, method, path string) (string, error) {
	groups, err := c.groups.Get(ctx, allGroups, c.opts.Now())
	if err != nil {
		return "", fmt.Errorf("look up the route groups: %w", err)
	}
	return groups.matcher.Match(method, path)
}
