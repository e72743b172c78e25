package ratelimit

import (
	"encoding/binary"
	"sync"
)

// table keeps counters in one array without pointers between them, found by linear
// probing, so that a look at a counter touches one line of the processor's cache.
// Counters are hashes: their own bits say where to begin. It grows by doubling, up
// to a bound, and never shrinks. Its lock is held by who looks at it.
type table struct {
	sync.Mutex
	cells []cell // a power of two, or none
	used  int
	hand  int   // where the sweep goes on
	gone  int64 // counters that gave way at the bound before they were idle
	_     [8]byte
}

// cell is a counter and its state, 64 bytes; an unused one has no idleAt.
type cell struct {
	counter     Counter
	epoch, a, b int64
	idleAt      int64         // ms
	log         *[]entryOfLog // of a log
}

const (
	firstCells = 8  // of a table that keeps anything
	sweepFrom  = 64 // counters below which no sweep is worth its while
	sweepStep  = 4  // cells looked at for each new counter
)

// home is where the search for a counter begins. The first byte chose the table.
func (t *table) home(c *Counter) int {
	return int(binary.LittleEndian.Uint64(c[1:9])) & (len(t.cells) - 1)
}

// find returns the place of a counter, or else the free place where it belongs.
// There must be cells, and one of them free.
func (t *table) find(c *Counter) (at int, known bool) {
	for at = t.home(c); t.cells[at].idleAt != 0; at = (at + 1) & (len(t.cells) - 1) {
		if t.cells[at].counter == *c {
			return at, true
		}
	}
	return at, false
}

// get is what is kept of a counter.
func (t *table) get(c *Counter) state {
	if t.used == 0 {
		return state{}
	}
	at, known := t.find(c)
	if !known {
		return state{}
	}
	kept := &t.cells[at]
	s := state{epoch: kept.epoch, a: kept.a, b: kept.b, present: true}
	if kept.log != nil {
		s.log = *kept.log
	}
	return s
}

// put keeps a state until idleAt and makes room for it among most counters.
func (t *table) put(c *Counter, s *state, idleAt, now int64, most int) {
	if len(t.cells) == 0 {
		t.cells = make([]cell, firstCells)
	}
	at, known := t.find(c)
	if !known {
		t.makeRoom(now, most)
		at, _ = t.find(c)
		t.used++
	}
	kept := &t.cells[at]
	kept.counter, kept.epoch, kept.a, kept.b, kept.idleAt = *c, s.epoch, s.a, s.b, max(1, idleAt)
	switch {
	case s.log == nil:
		kept.log = nil
	case kept.log == nil:
		log := s.log
		kept.log = &log
	default:
		*kept.log = s.log
	}
}

// makeRoom sweeps a few cells of what is idle, and then makes sure that there is
// room: for one more of most counters the one of those few that is idle soonest
// gives way.
func (t *table) makeRoom(now int64, most int) {
	if t.used >= sweepFrom || t.used >= most {
		t.sweep(now, most)
	}
	if t.used+1 > len(t.cells)/4*3 {
		t.grow()
	}
}

func (t *table) sweep(now int64, most int) {
	soonest := -1
	for seen := 0; seen < sweepStep || t.used >= most && soonest < 0; seen++ {
		t.hand = (t.hand + 1) & (len(t.cells) - 1)
		// What is dropped lets another cell take its place, which is looked at as well.
		for c := &t.cells[t.hand]; c.idleAt != 0 && c.idleAt <= now; {
			t.drop(t.hand)
			soonest = -1
		}
		if idleAt := t.cells[t.hand].idleAt; idleAt != 0 && (soonest < 0 || idleAt < t.cells[soonest].idleAt) {
			soonest = t.hand
		}
		if t.used == 0 {
			return
		}
	}
	if t.used >= most {
		t.drop(soonest)
		t.gone++
	}
}

// drop frees a cell and moves those behind it that would no longer be found.
func (t *table) drop(at int) {
	mask := len(t.cells) - 1
	t.used--
	for next := (at + 1) & mask; t.cells[next].idleAt != 0; next = (next + 1) & mask {
		// The one at next may move if its home is not between the gap and itself.
		if (next-t.home(&t.cells[next].counter))&mask >= (next-at)&mask {
			t.cells[at] = t.cells[next]
			at = next
		}
	}
	t.cells[at] = cell{}
}

func (t *table) grow() {
	old := t.cells
	t.cells = make([]cell, 2*len(old))
	for i := range old {
		if old[i].idleAt != 0 {
			at, _ := t.find(&old[i].counter)
			t.cells[at] = old[i]
		}
	}
}
