package quota

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"time"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/ratelimit"
)

// Result is what one of several calls came to.
type Result struct {
	Decision quotad.Decision
	Err      error
}

// CheckTogether decides the calls that make up one request: all are charged, or none is.
// The results stand in the order of the calls. Where the request does not pass, a call
// that could have is not charged: its decision has cost 0 and says where it stands.
//
// Calls of one tenant are one atomic step, in which a counter that several of them share
// is charged once, the most that one of them costs: they are one request. What differs in
// tenant is first looked at, and then charged one after the other, the most doubtful
// first; what comes in between from elsewhere, or a store that fails half-way, can
// leave earlier ones charged where a later one refuses.
func (c *Checker) CheckTogether(ctx context.Context, calls []Call) []Result {
	begun, now := time.Now(), c.opts.Now()
	t := &together{Checker: c, now: now, results: make([]Result, len(calls)), counted: make([]bool, len(calls))}
	resolved, valid := t.resolve(ctx, calls)
	ctx = context.WithoutCancel(ctx)
	strokes := t.strokes(resolved)
	switch {
	case !valid:
		for _, s := range strokes {
			t.take(ctx, s, s.peek())
		}
	case len(strokes) == 1:
		t.charge(ctx, strokes[0])
	default:
		t.chargeAll(ctx, strokes)
	}
	took := time.Since(begun)
	for i := range resolved {
		if r := &t.results[i]; t.counted[i] || r.Err != nil || !r.Decision.Allowed {
			c.record(ctx, calls[i], &r.Decision, r.Err, took)
		}
	}
	return t.results
}

// together is a request on its way.
type together struct {
	*Checker
	now     time.Time
	results []Result
	// counted are the calls that were charged.
	counted []bool
}

// resolve finds out what the calls ask, up to the first that its address keeps out:
// that ends the request. valid is false where a call can't pass. A request counts once
// by each address, however many of its calls come from there, and so does a failed key.
func (t *together) resolve(ctx context.Context, calls []Call) (resolved []question, valid bool) {
	var seen []netip.Addr
	resolved, valid = make([]question, 0, len(calls)), true
	for i, call := range calls {
		r, byAddress := &t.results[i], call
		if slices.Contains(seen, call.Address) {
			byAddress.Address = netip.Addr{}
		}
		seen = append(seen, call.Address)
		var q question
		stop, err := t.enter(ctx, byAddress, t.now, &r.Decision)
		if !stop {
			if q, err = t.Checker.resolve(ctx, call, t.now, &r.Decision); err != nil {
				stop, err = true, t.leave(byAddress, err, &r.Decision)
			}
		}
		r.Err, resolved = err, append(resolved, q)
		if stop && err == nil {
			return resolved, false
		}
		valid = valid && !stop
	}
	return resolved, valid
}

// stroke is what can be charged at once.
type stroke struct {
	shard  ratelimit.Shard
	policy quotad.FailurePolicy
	// calls are their indexes, questions what they ask, and costs what each costs.
	calls     []int
	questions []question
	costs     []int64
	charges   int // at most
}

// strokes sorts the calls that could be resolved into as few strokes as can be.
func (t *together) strokes(resolved []question) []*stroke {
	var strokes []*stroke
	at := t.counterTime(t.now)
	for i, q := range resolved {
		if q.group == nil {
			continue
		}
		p := q.plan(t.opts.OnStoreFailure, at)
		like := stroke{shard: p.shardOf(q.who), policy: p.policy, charges: len(p.charges)}
		at := slices.IndexFunc(strokes, func(s *stroke) bool {
			return s.shard == like.shard && s.policy == like.policy && s.charges+like.charges <= ratelimit.MaxCharges
		})
		if at < 0 {
			at = len(strokes)
			strokes = append(strokes, &stroke{shard: like.shard, policy: like.policy})
		}
		s := strokes[at]
		s.calls, s.questions, s.charges = append(s.calls, i), append(s.questions, q), s.charges+like.charges
		s.costs = append(s.costs, t.results[i].Decision.Cost)
	}
	return strokes
}

// chargeAll charges the strokes one after the other until one is refused.
func (t *together) chargeAll(ctx context.Context, strokes []*stroke) {
	doubtful := map[*stroke]bool{}
	for _, s := range strokes {
		doubtful[s] = !t.take(ctx, s, s.peek()) || t.short(s)
	}
	slices.SortStableFunc(strokes, func(a, b *stroke) int {
		switch {
		case doubtful[a] == doubtful[b]:
			return 0
		case doubtful[a]:
			return -1
		default:
			return 1
		}
	})
	for _, s := range strokes {
		if !t.charge(ctx, s) {
			return
		}
	}
}

// short reports whether a stroke that was looked at seems to ask for more than is left.
func (t *together) short(s *stroke) bool {
	for n, i := range s.calls {
		for _, l := range t.results[i].Decision.Limits {
			if !l.Shadow && l.Remaining < s.costs[n] {
				return true
			}
		}
	}
	return false
}

// charge charges a stroke, and reports whether it passed.
func (t *together) charge(ctx context.Context, s *stroke) bool {
	passed := t.take(ctx, s, s.costs)
	for _, i := range s.calls {
		t.counted[i] = passed
		if d := &t.results[i].Decision; !passed && d.Allowed {
			d.Cost, d.DelayMS = 0, 0
		}
	}
	return passed
}

// peek are costs that charge nothing.
func (s *stroke) peek() []int64 { return make([]int64, len(s.calls)) }

// take asks for a stroke at a cost for each call, and writes where its calls stand.
func (t *together) take(ctx context.Context, s *stroke, costs []int64) (passed bool) {
	at := t.counterTime(t.now)
	for asked := 1; ; asked++ {
		call := ratelimit.Call{Shard: s.shard, Cost: slices.Max(costs)}
		known := map[ratelimit.Counter]int{} // in call.Charges
		counters := make([][]int, len(s.calls))
		for n, i := range s.calls {
			_, charges, limits := s.questions[n].plan(t.opts.OnStoreFailure, at).bind(s.questions[n].who)
			d := &t.results[i].Decision
			d.Limits, d.Cost = limits, costs[n]
			for _, charge := range charges {
				k, ok := known[charge.Counter]
				if !ok {
					k = len(call.Charges)
					known[charge.Counter], call.Charges = k, append(call.Charges, charge)
					call.Costs = append(call.Costs, 0)
				}
				call.Costs[k] = max(call.Costs[k], costs[n])
				counters[n] = append(counters[n], k)
			}
		}
		if len(call.Charges) == 0 {
			for _, i := range s.calls {
				t.results[i].Decision.Allowed = true
			}
			return true
		}
		if slices.Min(call.Costs) == call.Cost {
			call.Costs = nil
		}
		status := make([]ratelimit.Status, len(call.Charges))
		out, err := t.limiter.TakeOr(ctx, call, status, s.policy)
		if asked < maxAsked && t.inOtherPeriod(err, out) {
			at = out.Now
			continue
		}
		if err != nil {
			t.notTaken(ctx, s, costs, err)
			return false
		}
		for n, i := range s.calls {
			reportPart(&t.results[i].Decision, out, status, counters[n])
		}
		return out.Allowed
	}
}

// notTaken writes the error of a stroke into its calls: where the cost can never pass,
// into those whose limits it is above.
func (t *together) notTaken(ctx context.Context, s *stroke, costs []int64, err error) {
	tooMuch := errors.Is(err, quotad.ErrCostExceedsLimit)
	if tooMuch {
		t.take(ctx, s, s.peek())
	}
	for n, i := range s.calls {
		r := &t.results[i]
		if !tooMuch || above(costs[n], r.Decision.Limits) {
			r.Err = notTaken(err, costs[n], r.Decision.Limits)
		}
	}
}

// above reports whether a cost is more than one of the enforced limits can ever hold.
func above(cost int64, limits []quotad.LimitStatus) bool {
	return slices.ContainsFunc(limits, func(l quotad.LimitStatus) bool { return !l.Shadow && l.Limit > 0 && cost > l.Limit })
}

// reportPart writes the store's answer into a decision that some of the statuses are of.
func reportPart(d *quotad.Decision, out ratelimit.Outcome, status []ratelimit.Status, of []int) {
	own := make([]ratelimit.Status, len(of))
	out.Allowed, out.Delay = true, 0
	for i, n := range of {
		own[i] = status[n]
		if !d.Limits[i].Shadow {
			out.Allowed = out.Allowed && own[i].Allowed
			out.Delay = max(out.Delay, own[i].Delay)
		}
	}
	d.RetryAfter = 0
	report(d, out, own)
}
