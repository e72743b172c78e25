package quota

import (
	"context"
	"fmt"
	"time"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/ratelimit"
)

// CheckAll decides a list of calls and charges them, each on its own and after those
// before it: a later call sees what an earlier one was charged. The results are what
// Check would have returned for each. Only a call whose quota's period ends just then is
// judged after the others.
//
// The credential, Address and Door of the first are those of all: the caller is looked
// up once, and counted once by its address. Where they fail nothing is charged, and
// there are no results: for the error, or, where a limit on the address keeps the
// list out, as the Decision says. A key is not looked at where all groups ask for none.
// A service's tenant that does not exist, or is suspended, is an error of its own calls.
func (c *Checker) CheckAll(ctx context.Context, calls []Call) ([]Result, quotad.Decision, error) {
	var d quotad.Decision
	results := make([]Result, len(calls))
	if len(calls) == 0 {
		return results, d, nil
	}
	begun := time.Now()
	whole := calls[0].with(Call{})
	decided, err := c.checkAll(ctx, whole, calls, results, &d)
	if !decided {
		c.record(ctx, whole, &d, err, time.Since(begun))
		return nil, d, err
	}
	took := time.Since(begun)
	for i := range results {
		c.record(ctx, whole.with(calls[i]), &results[i].Decision, results[i].Err, took)
	}
	return results, d, nil
}

// with is a call by the one who makes the first, from where it came from.
func (first Call) with(call Call) Call {
	call.APIKey, call.ServiceToken, call.Vouched = first.APIKey, first.ServiceToken, first.Vouched
	call.Address, call.Door = first.Address, first.Door
	return call
}

func (c *Checker) checkAll(ctx context.Context, whole Call, calls []Call, results []Result, d *quotad.Decision) (decided bool, err error) {
	now := c.opts.Now()
	if stop, err := c.enter(ctx, whole, now, d); stop {
		return false, err
	}
	asks, err := c.entitleAll(ctx, whole, calls, results, now)
	if err != nil {
		return false, c.leave(whole, err, d)
	}
	c.takeAll(ctx, asks)
	return true, nil
}

// asked is a question of a list on its way to the counters.
type asked struct {
	question
	at     time.Time // what the counters' clock is taken to show
	asks   ratelimit.Question
	limits []quotad.LimitStatus
	result *Result
}

// entitleAll finds out who calls and which of the calls they may make. What is wrong
// with one call is written into its result; an error is that of the credential.
func (c *Checker) entitleAll(ctx context.Context, whole Call, calls []Call, results []Result, now time.Time) ([]asked, error) {
	groups, err := c.groups.Get(ctx, allGroups, now)
	if err != nil {
		return nil, fmt.Errorf("look up the route groups: %w", err)
	}
	roll := roll{Checker: c, whole: whole, groups: groups, now: now}
	asks := make([]asked, 0, len(calls))
	for i := range calls {
		call, r := whole.with(calls[i]), &results[i]
		group, wrong := groups.of(call)
		open := wrong == nil && group.open != nil
		if err := roll.prove(ctx, open); err != nil {
			return nil, err
		}
		var q question
		var caller *standing
		if open {
			q, r.Err = c.entitleOpen(group, call, &r.Decision)
		} else if caller, r.Err = roll.caller(ctx, call); r.Err == nil {
			q, r.Err = c.entitle(caller, group, wrong, call, &r.Decision)
		}
		if r.Err == nil {
			asks = append(asks, asked{question: q, at: c.counterTime(now), result: r})
		}
	}
	return asks, nil
}

// roll knows who makes the calls of a list, once it has looked them up.
type roll struct {
	*Checker
	whole  Call
	groups *groups
	now    time.Time
	proven bool
	last   *standing
}

// prove looks the credential up, if that has not been done and the call needs it: in a
// group that asks for no key only a service token says something.
func (r *roll) prove(ctx context.Context, open bool) (err error) {
	switch {
	case r.proven, open && r.whole.ServiceToken == "":
		return nil
	case r.whole.APIKey == "" && r.whole.ServiceToken != "":
		err = r.checkToken(ctx, r.whole.ServiceToken, r.now)
	case r.whole.APIKey == "" && r.whole.Vouched:
	default:
		r.last, err = r.identify(ctx, r.whole, r.groups, r.now)
	}
	r.proven = err == nil
	return err
}

// caller is who makes a call: the key, or the tenant that the service names.
func (r *roll) caller(ctx context.Context, call Call) (*standing, error) {
	if r.whole.APIKey != "" || r.last != nil && r.last.tenant.tenant.ID == call.Tenant {
		return r.last, nil
	}
	s, err := r.byTenant(ctx, call, r.groups, r.now)
	if err == nil {
		r.last = s
	}
	return s, err
}

// takeAll charges the calls and reports where their limits stand. What is said of one
// call's periods in take holds of each.
func (c *Checker) takeAll(ctx context.Context, asks []asked) {
	ctx = context.WithoutCancel(ctx)
	waiting := make([]*asked, len(asks))
	for i := range asks {
		waiting[i] = &asks[i]
	}
	list := make([]*ratelimit.Question, 0, len(asks))
	for times := 1; len(waiting) > 0; times++ {
		list, charges := list[:0], 0
		for _, a := range waiting {
			if c.ask(a); len(a.limits) > 0 {
				list, charges = append(list, &a.asks), charges+len(a.limits)
			}
		}
		statuses := make([]ratelimit.Status, charges)
		for _, q := range list {
			n := len(q.Call.Charges)
			q.Status, statuses = statuses[:n:n], statuses[n:]
		}
		c.limiter.TakeAllOr(ctx, list)
		again := waiting[:0]
		for _, a := range waiting {
			q, d := &a.asks, &a.result.Decision
			switch {
			case len(a.limits) == 0:
				d.Allowed, d.Limits = true, a.limits
			case times < maxAsked && c.inOtherPeriod(q.Err, q.Outcome):
				a.at = q.Outcome.Now
				again = append(again, a)
			case q.Err != nil:
				a.result.Err = notTaken(q.Err, d.Cost, a.limits)
			default:
				d.Limits = a.limits
				report(d, q.Outcome, q.Status)
			}
		}
		waiting = again
	}
}

// ask writes what the counters are to be asked.
func (c *Checker) ask(a *asked) {
	p := a.plan(c.opts.OnStoreFailure, a.at)
	a.asks = ratelimit.Question{Policy: p.policy, Call: ratelimit.Call{Cost: a.result.Decision.Cost}}
	a.asks.Call.Shard, a.asks.Call.Charges, a.limits = p.bind(a.who)
}
