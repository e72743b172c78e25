package ratelimit

import (
	"context"
	"sync"
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
// What makes a call one step is the lock of its shard, which all its counters
// share. Where a counter is kept goes by the counter itself: a tenant with very
// many has as much room as all others together.
type Memory struct {
	now    func() int64
	perMax int
	steps  [Shards]step
	shards [Shards]shard
}

// step is held from the look at a call's counters to their charge.
type step struct {
	sync.Mutex
	_ [56]byte
}

// shard is where some of the counters are kept. Its lock is the innermost.
type shard struct {
	mu    sync.Mutex
	index map[Counter]int32 // into cells
	cells []cell
	free  []int32
	hand  int // where the sweep goes on
	_     [40]byte
}

type cell struct {
	counter Counter
	state   state
	idleAt  int64 // ms
	used    bool
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
const maxInline = 16

// Take implements Store. It fails only with quotad.ErrCostExceedsLimit and ErrPeriod.
func (m *Memory) Take(_ context.Context, call Call, status []Status) (Outcome, error) {
	if err := call.fits(); err != nil {
		return Outcome{}, err
	}
	var inline [maxInline]state
	states := inline[:]
	if len(call.Charges) > maxInline {
		states = make([]state, len(call.Charges))
	}
	step := &m.steps[call.Shard]
	step.Lock()
	now := m.now()
	if !call.speaksOf(now) {
		step.Unlock()
		return Outcome{Now: time.UnixMilli(now).UTC()}, ErrPeriod
	}
	allowed := true
	for i := range call.Charges {
		c := &call.Charges[i]
		states[i] = c.Limit.roll(m.shard(c.Counter).get(c.Counter), now)
		status[i].Allowed = c.Limit.admits(states[i], now, call.Cost)
		if !status[i].Allowed && c.Limit.Algorithm == quotad.SlidingWindowLog {
			states[i].b = fitsAt(states[i], call.Cost, c.Limit.Units, c.Limit.windowMS())
		}
		allowed = allowed && (status[i].Allowed || c.Shadow)
	}
	if allowed && call.Cost > 0 {
		for i := range call.Charges {
			if c := &call.Charges[i]; status[i].Allowed {
				states[i] = c.Limit.charge(states[i], now, call.Cost)
				m.shard(c.Counter).put(c.Counter, states[i], c.Limit.idleAt(states[i]), now, m.perMax)
			}
		}
	}
	step.Unlock()
	out := Outcome{Allowed: allowed, Now: time.UnixMilli(now).UTC()}
	for i := range call.Charges {
		status[i] = call.Charges[i].Limit.status(states[i], now, call.Cost, status[i].Allowed)
		out.wait(&call.Charges[i], &status[i])
	}
	return out, nil
}

// TakeOr is Take: memory never fails, so no policy ever answers in its place.
func (m *Memory) TakeOr(ctx context.Context, call Call, status []Status, _ quotad.FailurePolicy) (Outcome, error) {
	return m.Take(ctx, call, status)
}

// Len is the number of counters kept.
func (m *Memory) Len() int {
	n := 0
	for i := range m.shards {
		sh := &m.shards[i]
		sh.mu.Lock()
		n += len(sh.index)
		sh.mu.Unlock()
	}
	return n
}

// shard is where a counter is kept. Counters are hashes, so that each byte is as
// good as chance.
func (m *Memory) shard(c Counter) *shard { return &m.shards[c[0]] }

func (sh *shard) get(c Counter) state {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if i, ok := sh.index[c]; ok {
		return sh.cells[i].state
	}
	return state{}
}

func (sh *shard) put(c Counter, s state, idleAt, now int64, most int) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	i, ok := sh.index[c]
	if !ok {
		i = sh.room(now, most)
		if sh.index == nil {
			sh.index = map[Counter]int32{}
		}
		sh.index[c] = i
	}
	sh.cells[i] = cell{counter: c, state: s, idleAt: idleAt, used: true}
}

const (
	sweepFrom = 64 // counters in a shard below which no sweep is worth its while
	sweepStep = 4  // cells looked at for each new counter
)

// room returns the place of a new cell, after a step of the sweep.
func (sh *shard) room(now int64, most int) int32 {
	if len(sh.cells) >= sweepFrom || len(sh.cells) >= most {
		soonest := -1
		for range min(sweepStep, len(sh.cells)) {
			sh.hand = (sh.hand + 1) % len(sh.cells)
			c := &sh.cells[sh.hand]
			switch {
			case !c.used:
			case c.idleAt <= now:
				sh.drop(sh.hand)
			case soonest < 0 || c.idleAt < sh.cells[soonest].idleAt:
				soonest = sh.hand
			}
		}
		if len(sh.free) == 0 && len(sh.cells) >= most && soonest >= 0 {
			sh.drop(soonest)
		}
	}
	if n := len(sh.free); n > 0 {
		i := sh.free[n-1]
		sh.free = sh.free[:n-1]
		return i
	}
	sh.cells = append(sh.cells, cell{})
	return int32(len(sh.cells) - 1)
}

func (sh *shard) drop(i int) {
	delete(sh.index, sh.cells[i].counter)
	sh.cells[i] = cell{}
	sh.free = append(sh.free, int32(i))
}
