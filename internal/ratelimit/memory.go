package ratelimit

import (
	"context"
	"math/bits"
	"time"

	"github.com/quotad/quotad"
)

// MemoryOptions tune a Memory. The zero value is ready to use.
type MemoryOptions struct {
	// Now is the clock; by default the wall clock at start carried on by the
	// monotonic clock, so that later steps of the wall clock change nothing.
	Now func() time.Time
	// MaxCounters bounds the counters kept, about 100 bytes each; default 1,000,000,
	// at least Shards. At the bound the counter that is idle soonest among a few
	// gives way to a new one, whoever they are of. Counters are spread by chance, so
	// that the first may give way when a few in a hundred of the bound are free yet.
	MaxCounters int
}

// Memory is a Store in this process. It starts no goroutine: idle counters are
// swept, a few at a time, by the calls that make new ones.
//
// Where a counter is kept goes by the counter itself: a tenant with very many has as
// much room as all others together. What makes a call one step are the locks of all
// tables that its counters are in, taken in their order.
type Memory struct {
	now    func() int64
	perMax int
	tables [Shards]table
}

// NewMemory returns an empty store.
func NewMemory(o MemoryOptions) *Memory {
	if o.MaxCounters <= 0 {
		o.MaxCounters = 1_000_000
	}
	m := &Memory{perMax: max(1, o.MaxCounters/Shards)}
	if o.Now != nil {
		m.now = func() int64 { return o.Now().UnixMilli() }
	} else {
		start := time.Now()
		wall := start.UnixMilli()
		m.now = func() int64 { return wall + time.Since(start).Milliseconds() }
	}
	return m
}

// maxInline is the number of charges judged without an allocation.
const maxInline = 8

// Take implements Store. It fails only with quotad.ErrCostExceedsLimit and ErrPeriod.
func (m *Memory) Take(_ context.Context, call Call, status []Status) (Outcome, error) {
	if err := call.fits(); err != nil {
		return Outcome{}, err
	}
	if len(call.Charges) <= maxInline {
		var states [maxInline]state
		return m.take(&call, states[:len(call.Charges)], status)
	}
	return m.take(&call, make([]state, len(call.Charges)), status)
}

func (m *Memory) take(call *Call, states []state, status []Status) (Outcome, error) {
	m.lock(call.Charges)
	now := m.now()
	if !call.speaksOf(now) {
		m.unlock(call.Charges)
		return Outcome{Now: time.UnixMilli(now).UTC()}, ErrPeriod
	}
	allowed := true
	for i := range call.Charges {
		c := &call.Charges[i]
		states[i] = c.Limit.roll(m.table(&c.Counter).get(&c.Counter), now)
		status[i].Allowed = c.Limit.admits(states[i], now, call.cost(i))
		if !status[i].Allowed && c.Limit.Algorithm == quotad.SlidingWindowLog {
			states[i].b = fitsAt(states[i], call.cost(i), c.Limit.Units, c.Limit.windowMS())
		}
		allowed = allowed && (status[i].Allowed || c.Shadow)
	}
	if allowed && call.Cost > 0 {
		for i := range call.Charges {
			if c, cost := &call.Charges[i], call.cost(i); status[i].Allowed && cost > 0 {
				states[i] = c.Limit.charge(states[i], now, cost)
				m.table(&c.Counter).put(&c.Counter, &states[i], c.Limit.idleAt(states[i]), now, m.perMax)
			}
		}
	}
	m.unlock(call.Charges)
	out := Outcome{Allowed: allowed, Now: time.UnixMilli(now).UTC()}
	for i := range call.Charges {
		status[i] = call.Charges[i].Limit.status(states[i], now, call.cost(i), status[i].Allowed)
		out.wait(&call.Charges[i], &status[i])
	}
	return out, nil
}

// TakeAll implements Store.
func (m *Memory) TakeAll(ctx context.Context, list []*Question) { takeEach(ctx, m, list) }

// TakeAllOr is TakeAll: memory never fails.
func (m *Memory) TakeAllOr(ctx context.Context, list []*Question) { m.TakeAll(ctx, list) }

// TakeOr is Take: memory never fails, so no policy ever answers in its place.
func (m *Memory) TakeOr(ctx context.Context, call Call, status []Status, _ quotad.FailurePolicy) (Outcome, error) {
	return m.Take(ctx, call, status)
}

// Len is the number of counters kept.
func (m *Memory) Len() int {
	return int(m.sum(func(t *table) int64 { return int64(t.used) }))
}

// Evicted is the number of counters that gave way to others, at the bound, while
// they still counted: their callers began anew.
func (m *Memory) Evicted() int64 { return m.sum(func(t *table) int64 { return t.gone }) }

func (m *Memory) sum(of func(*table) int64) (n int64) {
	for i := range m.tables {
		t := &m.tables[i]
		t.Lock()
		n += of(t)
		t.Unlock()
	}
	return n
}

// table is where a counter is kept. Counters are hashes, so that each byte is as
// good as chance.
func (m *Memory) table(c *Counter) *table { return &m.tables[c[0]] }

// lock takes the locks of the tables of all charges, each once.
func (m *Memory) lock(charges []Charge) {
	switch len(charges) {
	case 0:
	case 1:
		m.table(&charges[0].Counter).Lock()
	default:
		for set, i := tablesOf(charges), 0; i < len(set); i++ {
			for left := set[i]; left != 0; left &= left - 1 {
				m.tables[i*64+bits.TrailingZeros64(left)].Lock()
			}
		}
	}
}

func (m *Memory) unlock(charges []Charge) {
	switch len(charges) {
	case 0:
	case 1:
		m.table(&charges[0].Counter).Unlock()
	default:
		for set, i := tablesOf(charges), 0; i < len(set); i++ {
			for left := set[i]; left != 0; left &= left - 1 {
				m.tables[i*64+bits.TrailingZeros64(left)].Unlock()
			}
		}
	}
}

// tablesOf has a bit for each table that the charges' counters are in.
func tablesOf(charges []Charge) (set [Shards / 64]uint64) {
	for i := range charges {
		t := charges[i].Counter[0]
		set[t/64] |= 1 << (t % 64)
	}
	return set
}
