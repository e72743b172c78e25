package quota

import (
	"context"
	"fmt"
	"time"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/ratelimit"
)

// Limits tells where the caller's limits stand, charging nothing: one Decision
// of cost 0 for each route group that asks for a key and that the caller may
// use, in the order of their names, or only for call.RouteGroup. Groups that ask
// for no key have limits of an address, not of a caller, and are told only when
// named.
//
// The limits of different groups are not all read at the same instant.
//
// The call is counted by its address as any other. One that is kept out by it gets
// a single Decision, which is not Allowed and has no route group.
func (c *Checker) Limits(ctx context.Context, call Call) ([]quotad.Decision, error) {
	begun := time.Now()
	call.Cost = quotad.Units(0)
	var d quotad.Decision // what all have in common
	decisions, err := c.limits(ctx, call, &d)
	if err == nil && decisions == nil { // kept out by its address
		decisions = []quotad.Decision{d}
	} else {
		d.Allowed = err == nil
	}
	c.record(ctx, call, &d, err, time.Since(begun))
	return decisions, err
}

// Peek tells where the limits of one call stand, charging nothing. It is counted and
// logged nowhere: it is for a door that says more of a call which it has asked about.
func (c *Checker) Peek(ctx context.Context, call Call) (quotad.Decision, error) {
	call.Cost = quotad.Units(0)
	var d quotad.Decision
	now := c.opts.Now()
	q, err := c.resolve(ctx, call, now, &d)
	if err == nil {
		err = c.take(ctx, q, now, &d)
	}
	return d, err
}

func (c *Checker) limits(ctx context.Context, call Call, d *quotad.Decision) ([]quotad.Decision, error) {
	now := c.opts.Now()
	if stop, err := c.enter(ctx, call, now, d); stop {
		return nil, err
	}
	decisions, err := c.standings(ctx, call, now, d)
	return decisions, c.leave(call, err, d)
}

func (c *Checker) standings(ctx context.Context, call Call, now time.Time, d *quotad.Decision) ([]quotad.Decision, error) {
	groups, err := c.groups.Get(ctx, allGroups, now)
	if err != nil {
		return nil, fmt.Errorf("look up the route groups: %w", err)
	}
	asked, wrong := groups.list, error(nil)
	if call.RouteGroup != "" {
		one, err := groups.named(call.RouteGroup)
		if err == nil && one.open != nil {
			return c.openStanding(ctx, call, one, now, d)
		}
		asked, wrong = []*group{one}, err
	}
	caller, err := c.identify(ctx, call, groups, now)
	if err != nil {
		return nil, err
	}
	caller.describe(d)
	if err := call.wrong(); err != nil {
		return nil, err
	}
	if wrong != nil {
		return nil, wrong
	}
	if call.RouteGroup != "" && !caller.mayCall(asked[0]) {
		d.RouteGroup = call.RouteGroup
		return nil, quotad.NewError(quotad.CodeRouteNotAllowed, "")
	}
	who := identities{subject: call.Subject, address: endUser(call), bits: c.opts.IPv6Prefix}
	at := c.counterTime(now)
	for times := 1; ; times++ {
		decisions, out, err := c.peek(ctx, caller, asked, who, *d, at)
		if times < maxAsked && c.inOtherPeriod(err, out) {
			at = out.Now
			continue
		}
		if err != nil {
			return nil, notTaken(err, 0, nil)
		}
		return decisions, nil
	}
}

// openStanding is where the limits of a group that asks for no key stand for a call.
func (c *Checker) openStanding(ctx context.Context, call Call, group *group, now time.Time, d *quotad.Decision) ([]quotad.Decision, error) {
	q, err := c.resolveOpen(ctx, call, group, now, d)
	if err == nil {
		err = c.take(ctx, q, now, d)
	}
	if err != nil {
		return nil, err
	}
	return []quotad.Decision{*d}, nil
}

// peek reads the limits of many groups at an instant. What they share, such as a
// limit of the whole tenant, is read once.
func (c *Checker) peek(ctx context.Context, caller *standing, asked []*group, who identities, common quotad.Decision, at time.Time) ([]quotad.Decision, ratelimit.Outcome, error) {
	decisions := make([]quotad.Decision, 0, len(asked))
	counters := make([][]int, 0, len(asked)) // of each decision's limits, in all
	known := map[ratelimit.Counter]int{}     // in all
	var all []ratelimit.Charge
	var shard ratelimit.Shard
	policy := c.opts.OnStoreFailure
	for _, group := range asked {
		if group.open != nil || !caller.mayCall(group) {
			continue
		}
		p := caller.plan(group, c.opts.OnStoreFailure, at)
		policy = p.policy
		d := common
		d.RouteGroup = group.spec.Name
		var charges []ratelimit.Charge
		shard, charges, d.Limits = p.bind(who)
		at := make([]int, len(charges))
		for i, charge := range charges {
			n, ok := known[charge.Counter]
			if !ok {
				n = len(all)
				known[charge.Counter] = n
				all = append(all, charge)
			}
			at[i] = n
		}
		decisions, counters = append(decisions, d), append(counters, at)
	}

	status := make([]ratelimit.Status, len(all))
	var out ratelimit.Outcome
	for from := 0; from < len(all); from += ratelimit.MaxCharges {
		to := min(from+ratelimit.MaxCharges, len(all))
		var err error
		question := ratelimit.Call{Shard: shard, Charges: all[from:to]}
		out, err = c.limiter.TakeOr(context.WithoutCancel(ctx), question, status[from:to], policy)
		if err != nil {
			return nil, out, err
		}
	}
	for i := range decisions {
		reportPart(&decisions[i], out, status, counters[i])
	}
	return decisions, out, nil
}
