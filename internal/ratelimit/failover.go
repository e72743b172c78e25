package ratelimit

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sony/gobreaker/v2"
	"golang.org/x/sync/errgroup"

	"github.com/quotad/quotad"
)

// FailoverOptions tune a Failover. The zero value is ready to use.
type FailoverOptions struct {
	// Budget is the most time that a call may spend on the store before a policy
	// answers; default 100 ms.
	Budget time.Duration
	// Retry is how long the breaker stays open before the store is probed again,
	// and the time between probes; default 500 ms.
	Retry time.Duration
	// LogInterval is the least time between two log lines about failing calls; default 10 s.
	LogInterval time.Duration
	Logger      *slog.Logger          // default: none
	Registerer  prometheus.Registerer // default: none
	Now         func() time.Time      // for LogInterval and open answers; default time.Now
}

// Failover puts a time budget, a breaker and a failure policy before a store.
//
// Whatever the failure (refused, frozen, late, read-only, out of memory, loading,
// unauthorised, a script error) the call's policy answers. After a few failures in
// a row the breaker opens, and the policy answers at once until a probe by Run,
// never a caller's call, has found the store well. A refusal by a limit and a
// cost that can never fit are answers, not failures.
//
// A Cluster fails in parts: it has a breaker for each hash tag, so that a master that
// is away takes nothing but its own counters with it.
type Failover struct {
	store    Store
	local    *Memory
	breakers []*gobreaker.CircuitBreaker[Outcome]
	away     atomic.Int64 // breakers that are not closed
	turning  sync.Mutex   // held while away changes, until that is said
	budget   budget
	retry    time.Duration
	now      func() time.Time
	metrics  *failoverMetrics
	log      *failureLog
}

// The breaker opens after so many failures in a row, or when of at least
// tripSample calls in the last tripPeriod half failed. A list of calls that fails is
// one failure: one stalled connection does not open the breaker, however many waited
// for it.
const (
	tripInARow = 5
	tripSample = 20
	tripPeriod = 5 * time.Second // or as long as twice that many calls of one caller who waits for the whole budget
)

// NewFailover returns a store whose failures are answered by policies; FailLocal
// by local. Run must be running for the breaker to close again.
func NewFailover(store Store, local *Memory, o FailoverOptions) *Failover {
	if o.Budget <= 0 {
		o.Budget = 100 * time.Millisecond
	}
	if o.Retry <= 0 {
		o.Retry = 500 * time.Millisecond
	}
	if o.LogInterval <= 0 {
		o.LogInterval = 10 * time.Second
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	f := &Failover{
		store: store, local: local, budget: budget{most: o.Budget}, retry: o.Retry, now: o.Now,
		metrics: newFailoverMetrics(o.Registerer),
		log:     &failureLog{logger: o.Logger, interval: o.LogInterval, now: o.Now},
	}
	parts := 1
	if p, ok := store.(interface{ parts() int }); ok {
		parts = p.parts()
	}
	for range parts {
		f.breakers = append(f.breakers, f.newBreaker(o.Logger))
	}
	return f
}

func (f *Failover) newBreaker(logger *slog.Logger) *gobreaker.CircuitBreaker[Outcome] {
	period := max(tripPeriod, 2*tripInARow*f.budget.most)
	return gobreaker.NewCircuitBreaker[Outcome](gobreaker.Settings{
		MaxRequests:  1,
		Interval:     period,
		BucketPeriod: period / 10,
		Timeout:      f.retry,
		ReadyToTrip: func(c gobreaker.Counts) bool {
			answered := c.TotalSuccesses + c.TotalFailures
			return c.ConsecutiveFailures >= tripInARow ||
				answered >= tripSample && c.TotalFailures*2 >= answered
		},
		IsSuccessful: isAnswer,
		IsExcluded:   isCounted,
		OnStateChange: func(_ string, from, to gobreaker.State) {
			// Many breakers turn at a time: what is said last is to be what is.
			f.turning.Lock()
			defer f.turning.Unlock()
			switch {
			case from == gobreaker.StateClosed:
				if f.away.Add(1) == 1 {
					logger.Warn("counter store is away")
				}
			case to == gobreaker.StateClosed:
				if f.away.Add(-1) == 0 {
					logger.Info("counter store is back")
				}
			}
			f.metrics.breakers.Set(float64(f.away.Load()))
		},
	})
}

// breaker is the one before the part of the store where a shard's counters are.
func (f *Failover) breaker(s Shard) *gobreaker.CircuitBreaker[Outcome] {
	return f.breakers[int(tagOf(s))%len(f.breakers)]
}

// closed reports whether the breaker lets a caller's call through. While all are closed,
// that costs no lock.
func (f *Failover) closed(breaker *gobreaker.CircuitBreaker[Outcome]) bool {
	return f.away.Load() == 0 || breaker.State() == gobreaker.StateClosed
}

// isAnswer reports whether the store did its work.
func isAnswer(err error) bool {
	return err == nil || errors.Is(err, quotad.ErrCostExceedsLimit) || errors.Is(err, ErrPeriod)
}

// TakeOr judges the call as Store.Take does, within the budget; where the store
// fails, the policy answers, and FailClosed is quotad.ErrLimiterUnavailable; a cost
// that can never fit is quotad.ErrCostExceedsLimit whoever answers. The
// caller's own cancellation is not passed on: a charge is made whole or not at
// all, and a caller who hangs up is no failure of the store.
func (f *Failover) TakeOr(ctx context.Context, call Call, status []Status, policy quotad.FailurePolicy) (Outcome, error) {
	if breaker := f.breaker(call.Shard); f.closed(breaker) {
		out, err := breaker.Execute(func() (Outcome, error) { return f.take(call, status) })
		if isAnswer(err) {
			return out, err
		}
		f.log.failed(err)
	}
	return f.instead(ctx, call, status, policy)
}

// TakeAllOr judges a list of calls as Store.TakeAll does, all of it within one budget.
// Where the store fails to answer a call, that call's policy does. To a breaker the
// calls behind it are one.
func (f *Failover) TakeAllOr(ctx context.Context, list []*Question) {
	within := f.budget.begin(time.Now())
	eachPart(list, len(f.breakers), func(part int, list []*Question) {
		missed := list
		if breaker := f.breakers[part]; f.closed(breaker) {
			_, _ = breaker.Execute(func() (_ Outcome, err error) {
				missed, err = f.takeAll(within, list)
				return Outcome{}, err
			})
		}
		for _, q := range missed {
			q.Outcome, q.Err = f.instead(ctx, q.Call, q.Status, q.Policy)
		}
	})
}

// instead is the policy's answer.
func (f *Failover) instead(ctx context.Context, call Call, status []Status, policy quotad.FailurePolicy) (Outcome, error) {
	f.metrics.degraded(policy)
	switch policy {
	case quotad.FailClosed:
		if err := call.fits(); err != nil {
			return Outcome{}, err // no store will ever admit it
		}
		return Outcome{}, quotad.ErrLimiterUnavailable
	case quotad.FailOpen:
		return f.open(call, status)
	default:
		out, err := f.local.Take(ctx, call, status)
		out.Degraded = quotad.FailLocal
		return out, err
	}
}

func (f *Failover) take(call Call, status []Status) (Outcome, error) {
	start := time.Now()
	out, err := f.store.Take(f.budget.begin(start), call, status)
	f.metrics.took(time.Since(start), err)
	return out, err
}

// takeAll returns what the store failed to answer, and its first failure.
func (f *Failover) takeAll(ctx context.Context, list []*Question) (missed []*Question, failure error) {
	start := time.Now()
	f.store.TakeAll(ctx, list)
	took := time.Since(start)
	for _, q := range list {
		f.metrics.took(took, q.Err)
		if isAnswer(q.Err) {
			continue
		}
		f.log.failed(q.Err)
		if missed = append(missed, q); failure == nil {
			failure = q.Err
		}
	}
	return missed, failure
}

// open admits whatever does not need a counter to be refused.
func (f *Failover) open(call Call, status []Status) (Outcome, error) {
	if err := call.fits(); err != nil {
		return Outcome{}, err
	}
	allowed, now := true, f.now().UTC()
	for i := range call.Charges {
		l := call.Charges[i].Limit
		status[i] = Status{Allowed: l.Units > 0, Remaining: l.Size(), Reset: l.length(now.UnixMilli())}
		allowed = allowed && (l.Units > 0 || call.Charges[i].Shadow)
	}
	return Outcome{Allowed: allowed, Now: now, Degraded: quotad.FailOpen}, nil
}

// State is "closed" while the store answers, "open" while all of it is away, and
// "partly open" while parts of a Cluster are.
func (f *Failover) State() string {
	switch f.away.Load() {
	case 0:
		return "closed"
	case int64(len(f.breakers)):
		return "open"
	default:
		return "partly open"
	}
}

// probesAtOnce bounds the probes that are under way.
const probesAtOnce = 16

// Run probes the store once when it starts, so that one that is away is known
// before a call meets it, and then while a breaker is open, until ctx ends. A probe
// is a charge to a counter of its own, so that a store that reads but does not write
// stays out.
func (f *Failover) Run(ctx context.Context) error {
	f.probeFirst(ctx)
	ticker := time.NewTicker(f.retry / 2)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if f.away.Load() == 0 {
			continue
		}
		var probes errgroup.Group
		probes.SetLimit(probesAtOnce)
		for part, breaker := range f.breakers {
			if breaker.State() == gobreaker.StateHalfOpen {
				probes.Go(func() error { f.probe(breaker, Shard(part)); return nil })
			}
		}
		_ = probes.Wait()
	}
}

// probeFirst probes every part, those that fail until their breakers open.
func (f *Failover) probeFirst(ctx context.Context) {
	var probes errgroup.Group
	probes.SetLimit(probesAtOnce)
	for part, breaker := range f.breakers {
		probes.Go(func() error {
			for range tripInARow {
				if breaker.State() != gobreaker.StateClosed || ctx.Err() != nil || f.probe(breaker, Shard(part)) {
					break
				}
			}
			return nil
		})
	}
	_ = probes.Wait()
}

// probe reports whether the store did its work.
func (f *Failover) probe(breaker *gobreaker.CircuitBreaker[Outcome], s Shard) bool {
	call := Call{Shard: s, Cost: 1, Charges: []Charge{{
		Counter: CounterOf("probe"),
		Limit:   Limit{Algorithm: quotad.FixedWindow, Units: quotad.MaxUnits, Window: time.Second},
	}}}
	status := make([]Status, 1)
	_, err := breaker.Execute(func() (Outcome, error) { return f.take(call, status) })
	if err != nil {
		f.log.failed(err)
	}
	return err == nil
}

// failureLog writes at most one line per interval, with the number of failures
// that it stands for.
type failureLog struct {
	logger   *slog.Logger
	interval time.Duration
	now      func() time.Time

	mu    sync.Mutex
	last  time.Time
	count int
}

func (l *failureLog) failed(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.count++
	now := l.now()
	if !l.last.IsZero() && now.Sub(l.last) < l.interval {
		return
	}
	l.logger.Error("counter store failed", "kind", failureKind(err), "failures", l.count, "error", err)
	l.last, l.count = now, 0
}
