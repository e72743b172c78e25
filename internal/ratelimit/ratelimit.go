package ratelimit

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"time"

	"github.com/quotad/quotad"
)

// Limit is what a counter is judged against: at most Units per Window.
type Limit struct {
	Algorithm quotad.Algorithm
	// Units is 0 to quotad.MaxUnits; 0 admits nothing.
	Units int64
	// Window is whole seconds, 1 s to quotad.MaxWindow.
	Window time.Duration
	// Burst is the capacity of a bucket in units; 0 means Units.
	Burst int64
	// MaxDelay is how long a leaky bucket lets a call wait, in whole milliseconds.
	MaxDelay time.Duration
	// From and Until are the period of a calendar quota, in ms since the epoch:
	// From is its first millisecond, Until that of the next period.
	From, Until int64
}

// Size is the most units that one call can ever take.
func (l Limit) Size() int64 {
	if (l.Algorithm == quotad.TokenBucket || l.Algorithm == quotad.LeakyBucket) && l.Burst > 0 && l.Units > 0 {
		return l.Burst
	}
	return l.Units
}

// Counter names one counter: 128 bits of a SHA-256 over the parts of its name.
type Counter [16]byte

// CounterOf returns the counter named by the parts. Each part is hashed behind
// its length, so that no two lists of parts name the same counter.
func CounterOf(parts ...string) Counter {
	h := sha256.New()
	var n [8]byte
	for _, p := range parts {
		binary.BigEndian.PutUint64(n[:], uint64(len(p)))
		h.Write(n[:])
		h.Write([]byte(p))
	}
	var sum [sha256.Size]byte
	return Counter(h.Sum(sum[:0])[:16])
}

// String is the counter as 22 characters of the URL-safe base64 alphabet.
func (c Counter) String() string { return string(appendCounter(nil, c)) }

func appendCounter(b []byte, c Counter) []byte { return base64.RawURLEncoding.AppendEncode(b, c[:]) }

// Shards is the number of shards that counters are spread over. All counters of
// one call live in one shard, which is one hash tag in Redis.
const Shards = 256

// Shard is where all counters of an owner (a tenant, or an address where no
// tenant is known) live.
type Shard uint8

// ShardOf returns the shard of an owner.
func ShardOf(owner string) Shard { return Shard(sha256.Sum256([]byte(owner))[0]) }

// Charge is one limit of a call and the counter it is charged to. The counters
// of one call are distinct.
type Charge struct {
	Counter Counter
	Limit   Limit
	// Shadow limits are judged and charged as if enforced, and never refuse.
	Shadow bool
}

// Call is one question to a store: may Cost units be charged to every counter?
type Call struct {
	Shard Shard
	// Cost is in units; 0 peeks: it changes nothing.
	Cost    int64
	Charges []Charge
	// Costs are those of the charges, in their order, where they differ; then Cost is
	// the greatest. A charge that costs 0 is judged as a peek is.
	Costs []int64
}

// cost is that of one charge.
func (c *Call) cost(charge int) int64 {
	if c.Costs == nil {
		return c.Cost
	}
	return c.Costs[charge]
}

// Status is where one limit stands after a call.
type Status struct {
	// Allowed is whether this limit by itself allows the call.
	Allowed bool
	// Remaining is the units left, never negative.
	Remaining int64
	// Reset is the time until more is left: on a refusal the same as Retry.
	Reset time.Duration
	// Retry is the time after which this limit allows the same call if nothing
	// else is charged meanwhile; 0 when it allows it, or never will (Units 0).
	Retry time.Duration
	// Delay is how long a call that this limit allows is to wait, by a leaky bucket.
	Delay time.Duration
}

// Outcome is a store's answer to a call.
type Outcome struct {
	// Allowed is true when every limit that is not a shadow allows the call; all
	// are charged then (a shadow only if it allows too), and none otherwise.
	Allowed bool
	// Now is the store's clock at the decision.
	Now time.Time
	// Delay is how long an allowed call is to wait: the longest of its enforced limits.
	Delay time.Duration
	// Degraded is the failure policy that answered in place of the store, else "".
	Degraded quotad.FailurePolicy
}

// wait takes the delay of one charge of an allowed call into account.
func (o *Outcome) wait(c *Charge, s *Status) {
	if o.Allowed && !c.Shadow {
		o.Delay = max(o.Delay, s.Delay)
	}
}

// ErrPeriod means that a quota's period is not that of the store's clock: the
// caller's clock is ahead or behind. The call can be asked again with the right one.
var ErrPeriod = errors.New("the store's time is outside the quota's period")

// Store judges calls, such as Memory and Redis.
type Store interface {
	// Take judges all charges of the call in one atomic step and writes the
	// status of each into status, which must be as long as call.Charges.
	// A cost above the size of an enforced limit is quotad.ErrCostExceedsLimit; a
	// calendar quota whose period does not hold the store's time is ErrPeriod, with
	// that time in the outcome. Neither charges anything.
	Take(ctx context.Context, call Call, status []Status) (Outcome, error)
	// TakeAll judges a list of calls as if each was given to Take in turn, and writes
	// their answers into the questions. It is no one step: others' calls may be
	// judged in between.
	TakeAll(ctx context.Context, list []*Question)
}

// fits returns quotad.ErrCostExceedsLimit if the cost can never pass an enforced
// limit. A limit of 0 is not meant: it refuses, whatever the cost.
func (c Call) fits() error {
	for i := range c.Charges {
		if l := &c.Charges[i]; !l.Shadow && l.Limit.Units > 0 && c.cost(i) > l.Limit.Size() {
			return quotad.ErrCostExceedsLimit
		}
	}
	return nil
}

// speaksOf reports whether every charge can be judged at the time now, in ms.
func (c Call) speaksOf(now int64) bool {
	for i := range c.Charges {
		if !c.Charges[i].Limit.speaksOf(now) {
			return false
		}
	}
	return true
}
