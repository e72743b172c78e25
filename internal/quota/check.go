package quota

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/ratelimit"
)

// Check decides a call and charges it. A refusal by a limit is a Decision that
// is not Allowed; an error is a *quotad.Error, with which the Decision still
// names the tenant, key, tier and route group where they are known.
func (c *Checker) Check(ctx context.Context, call Call) (quotad.Decision, error) {
	begun := time.Now()
	var d quotad.Decision
	err := c.check(ctx, call, &d)
	c.record(ctx, call, &d, err, time.Since(begun))
	return d, err
}

func (c *Checker) check(ctx context.Context, call Call, d *quotad.Decision) error {
	now := c.opts.Now()
	if stop, err := c.enter(ctx, call, now, d); stop {
		return err
	}
	q, err := c.resolve(ctx, call, now, d)
	if err != nil {
		return c.leave(call, err, d)
	}
	return c.take(ctx, q, now, d)
}

// question is a call of which all is known but where its limits stand.
type question struct {
	caller *standing // nil in a group that asks for no key
	group  *group
	who    identities
}

// plan is the question's at an instant.
func (q *question) plan(policy quotad.FailurePolicy, at time.Time) *plan {
	if q.caller == nil {
		return q.group.open
	}
	return q.caller.plan(q.group, policy, at)
}

// resolve finds out, for a call that its address does not keep out, who calls, where
// and at what cost.
func (c *Checker) resolve(ctx context.Context, call Call, now time.Time, d *quotad.Decision) (question, error) {
	groups, err := c.groups.Get(ctx, allGroups, now)
	if err != nil {
		return question{}, fmt.Errorf("look up the route groups: %w", err)
	}
	// Who does not say who he is learns nothing: what is wrong with the call, or with
	// its group, is told after authentication.
	group, wrong := groups.of(call)
	if wrong == nil && group.open != nil {
		return c.resolveOpen(ctx, call, group, now, d)
	}
	caller, err := c.identify(ctx, call, groups, now)
	if err != nil {
		return question{}, err
	}
	return c.entitle(caller, group, wrong, call, d)
}

// entitle tells what a caller's call asks, where the caller may make it. wrong is what
// is wrong with its group, if anything.
func (c *Checker) entitle(caller *standing, group *group, wrong error, call Call, d *quotad.Decision) (question, error) {
	caller.describe(d)
	if wrong == nil {
		d.RouteGroup = group.spec.Name
	}
	if err := call.wrong(); err != nil {
		return question{}, err
	}
	if wrong != nil {
		return question{}, wrong
	}
	if !caller.mayCall(group) {
		return question{}, quotad.NewError(quotad.CodeRouteNotAllowed, "")
	}
	d.Cost = call.units(group)
	who := identities{subject: call.Subject, address: endUser(call), tenant: d.Tenant, queue: call.Queue, bits: c.opts.IPv6Prefix}
	return question{caller: caller, group: group, who: who}, nil
}

// resolveOpen finds out about a call in a group that asks for no key. A key that comes
// along is not looked at.
func (c *Checker) resolveOpen(ctx context.Context, call Call, group *group, now time.Time, d *quotad.Decision) (question, error) {
	d.RouteGroup = group.spec.Name
	if call.ServiceToken != "" {
		if err := c.checkToken(ctx, call.ServiceToken, now); err != nil {
			return question{}, err
		}
	}
	return c.entitleOpen(group, call, d)
}

// entitleOpen tells what a call in a group that asks for no key asks. Counters there
// are shared by all tenants, so the address must not be anybody's claim: it is where the
// call came from, or what a service that has proven who it is says.
func (c *Checker) entitleOpen(group *group, call Call, d *quotad.Decision) (question, error) {
	d.RouteGroup = group.spec.Name
	if err := call.wrong(); err != nil {
		return question{}, err
	}
	address := call.Address
	switch {
	case call.ServiceToken != "", call.Vouched:
		address = call.IP
	case call.IP.IsValid():
		return question{}, quotad.NewError(quotad.CodeInvalidRequest, "ip needs a service token in a route group that asks for no key")
	}
	if !address.IsValid() {
		return question{}, quotad.NewError(quotad.CodeInvalidRequest, "ip is required in a route group that asks for no key")
	}
	d.Cost = call.units(group)
	who := identities{address: address, queue: call.Queue, bits: c.opts.IPv6Prefix}
	return question{group: group, who: who}, nil
}

// take charges a call and reports where its limits stand.
func (c *Checker) take(ctx context.Context, q question, now time.Time, d *quotad.Decision) error {
	ctx = context.WithoutCancel(ctx)
	at := c.counterTime(now)
	for asked := 1; ; asked++ {
		p := q.plan(c.opts.OnStoreFailure, at)
		call := ratelimit.Call{Cost: d.Cost}
		var limits []quotad.LimitStatus
		call.Shard, call.Charges, limits = p.bind(q.who)
		if len(limits) == 0 {
			d.Allowed, d.Limits = true, limits
			return nil
		}
		status := make([]ratelimit.Status, len(limits))
		out, err := c.limiter.TakeOr(ctx, call, status, p.policy)
		if asked < maxAsked && c.inOtherPeriod(err, out) {
			at = out.Now
			continue
		}
		if err != nil {
			return notTaken(err, d.Cost, limits)
		}
		d.Limits = limits
		report(d, out, status)
		return nil
	}
}

// maxAsked is how many times a call is asked whose quotas' periods are not those
// of the counters' clock: once more for the time that it tells, and once for a
// period that ends just then.
const maxAsked = 3

// counterTime is what the counters' clock is taken to show at now. It only says
// which period is asked about first; the counters know.
func (c *Checker) counterTime(now time.Time) time.Time { return now.Add(time.Duration(c.ahead.Load())) }

// inOtherPeriod reports whether the counters have charged nothing because it is
// another period by their clock, which is then remembered: a clock that is wrong
// by hours shall not cost each call a second question.
func (c *Checker) inOtherPeriod(err error, out ratelimit.Outcome) bool {
	if !errors.Is(err, ratelimit.ErrPeriod) {
		return false
	}
	c.ahead.Store(int64(out.Now.Sub(c.opts.Now())))
	return true
}

// notTaken is the error of a call that no store and no policy decided.
func notTaken(err error, cost int64, limits []quotad.LimitStatus) error {
	if errors.Is(err, quotad.ErrCostExceedsLimit) {
		return tooMuch(cost, limits)
	}
	e := &quotad.Error{Code: quotad.CodeLimiterUnavailable, RetryAfter: time.Second, Cause: err}
	var given *quotad.Error
	if errors.As(err, &given) && given.Code == quotad.CodeLimiterUnavailable {
		e.Cause, e.RetryAfter = given.Cause, max(given.RetryAfter, e.RetryAfter)
	}
	return e
}
