package ratelimit

import (
	_ "embed"
	"slices"
	"sync"

	"github.com/quotad/quotad"
)

//go:embed take.lua
var takeLua string

// The bounds of one run of take.lua, so that it blocks Redis for well under a
// millisecond: a call carries at most MaxCharges (a tier's own limit, and as many
// limits as a tier and a route group and quotas as a tier can list), and a batch that
// holds maxBatch charges takes no further call.
const (
	MaxCharges = 1 + 3*quotad.MaxLimits
	maxBatch   = 128
	// Calls that are alike cost the script next to nothing; this bounds the wait for them.
	maxCalls = 1024
)

// entry is calls of a batch that are alike, judged together in their order.
type entry struct {
	calls   int64
	cost    int64   // mixedCosts where costs has one for each charge
	costs   []int64 // of the one call
	from, n int32   // its charges in encoder.charges
}

// mixedCosts stands for a cost in what take.lua reads: those of the charges follow.
const mixedCosts = -1

// encoder turns a batch into the arguments of take.lua. It is reused, and its
// arguments point into its slices, so that nothing is allocated but the keys.
type encoder struct {
	counters map[Counter]int32 // index into keys, from 1
	keys     []string
	last     []int32 // by key: the last entry that charges it
	limits   []Limit
	charges  []int64 // as take.lua reads them, entry after entry
	entries  []entry
	numbers  []int64
	args     []any
}

var encoders = sync.Pool{New: func() any { return &encoder{counters: map[Counter]int32{}} }}

// encode writes the calls of the batch, but for those whose callers have gone, and
// notes with each where its answer will stand. command is the words before the keys.
func (e *encoder) encode(b *batch, prefix string, now, slack int64, command ...any) []any {
	clear(e.counters)
	e.keys, e.last, e.limits = e.keys[:0], e.last[:0], e.limits[:0]
	e.charges, e.entries, e.numbers, e.args = e.charges[:0], e.entries[:0], e.numbers[:0], e.args[:0]
	var last *pending
	for i := range b.calls {
		c := &b.calls[i]
		switch {
		case c.gone:
		case last != nil && last.like(c):
			e.join(c, last.entry)
			last = c
		default:
			e.add(b, i, prefix)
			last = c
		}
	}
	e.numbers = append(e.numbers, int64(len(e.keys)), now, slack, int64(len(e.limits)))
	for _, l := range e.limits {
		if l.Algorithm == quotad.CalendarQuota {
			e.numbers = append(e.numbers, number(l.Algorithm), l.Units, l.Until, l.Units, l.From)
			continue
		}
		e.numbers = append(e.numbers, number(l.Algorithm), l.Units, l.windowMS(), l.Size(), l.delayMS())
	}
	for i := 0; i < len(e.entries); {
		n, run := &e.entries[i], e.run(i)
		e.numbers = append(e.numbers, (int64(run)*2048+n.calls)*128+int64(n.n), n.cost)
		e.numbers = append(e.numbers, n.costs...)
		e.numbers = append(e.numbers, e.charges[n.from:n.from+n.n]...)
		i += run
	}
	e.args = append(e.args, command...)
	e.args = append(e.args, &e.numbers[0])
	for i := range e.keys {
		e.args = append(e.args, &e.keys[i])
	}
	for i := range e.numbers[1:] {
		e.args = append(e.args, &e.numbers[1+i])
	}
	return e.args
}

// run is the number of entries from the one at first on that differ only in their
// counters, each as many places on as an entry has charges.
func (e *encoder) run(first int) int {
	n := &e.entries[first]
	if n.cost == mixedCosts {
		return 1
	}
	for i := first + 1; i < len(e.entries); i++ {
		next := &e.entries[i]
		if next.calls != n.calls || next.cost != n.cost || next.n != n.n {
			return i - first
		}
		shift := int64(i-first) * int64(n.n) * 512
		for k := range n.n {
			if e.charges[next.from+k] != e.charges[n.from+k]+shift {
				return i - first
			}
		}
	}
	return len(e.entries) - first
}

// add lets a call join the last entry that charges its counters if it is alike,
// else makes an entry of it. Nothing in between was charged to any of those
// counters, so that the order of calls is kept.
func (e *encoder) add(b *batch, call int, prefix string) {
	c := &b.calls[call]
	from := int32(len(e.charges))
	alike := int32(-1)
	for i, charge := range b.charges[c.first : c.first+c.n] {
		index, known := e.counters[charge.Counter]
		if !known {
			e.keys, e.last = append(e.keys, key(prefix, c.shard, charge.Counter)), append(e.last, -1)
			index = int32(len(e.keys))
			e.counters[charge.Counter] = index
		}
		if last := e.last[index-1]; i == 0 {
			alike = last
		} else if last != alike {
			alike = -1
		}
		bits := int64(index)*512 + e.limit(charge.Limit)*2
		if charge.Shadow {
			bits++
		}
		e.charges = append(e.charges, bits)
	}
	if alike >= 0 && !c.mixed {
		n := &e.entries[alike]
		if n.cost == c.cost && slices.Equal(e.charges[n.from:n.from+n.n], e.charges[from:]) {
			e.charges = e.charges[:from]
			e.join(c, alike)
			return
		}
	}
	c.entry, c.position = int32(len(e.entries)), 0
	n := entry{calls: 1, cost: c.cost, from: from, n: c.n}
	if c.mixed {
		n.cost, n.costs = mixedCosts, b.costs[call]
	}
	e.entries = append(e.entries, n)
	for _, bits := range e.charges[from:] {
		e.last[bits/512-1] = c.entry
	}
}

// join makes a call the next of an entry.
func (e *encoder) join(c *pending, entry int32) {
	c.entry, c.position = entry, e.entries[entry].calls
	e.entries[entry].calls++
}

// limit returns the index, from 1, of a limit. There are few different ones.
func (e *encoder) limit(l Limit) int64 {
	i := slices.Index(e.limits, l)
	if i < 0 {
		i = len(e.limits)
		e.limits = append(e.limits, l)
	}
	return int64(i) + 1
}

// number is an algorithm's in take.lua.
func number(a quotad.Algorithm) int64 {
	switch a {
	case quotad.FixedWindow:
		return 2
	case quotad.TokenBucket, quotad.LeakyBucket:
		return 3
	case quotad.SlidingWindowLog:
		return 4
	case quotad.CalendarQuota:
		return 5
	default:
		return 1
	}
}

// tags is the number of hash tags. Few, so that many tenants' calls travel together
// in a Cluster; enough to spread evenly over its masters.
const tags = 64

// tagOf is the number of the hash tag under which the counters of a shard are.
func tagOf(s Shard) uint8 { return uint8(s) % tags }

// key names a counter in Redis: prefix, hash tag, counter. With the default prefix
// it is 28 bytes, the most that Redis keeps in 32.
func key(prefix string, s Shard, c Counter) string {
	const hex = "0123456789abcdef"
	tag := tagOf(s)
	b := make([]byte, 0, 64)
	b = append(b, prefix...)
	b = append(b, '{', hex[tag>>4], hex[tag&15], '}')
	return string(appendCounter(b, c))
}
