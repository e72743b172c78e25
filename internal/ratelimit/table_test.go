package ratelimit

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"
)

// TestTableFindsWhatItKeeps: whatever is put, dropped and moved, a table answers as a
// map does. Counters share few homes, so that they stand in each other's way.
func TestTableFindsWhatItKeeps(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		kept, want := &table{}, map[Counter]int64{}
		counters := make([]Counter, 1+r.IntN(300))
		for i := range counters {
			binary.LittleEndian.PutUint64(counters[i][1:], uint64(r.IntN(16))<<r.IntN(8))
			binary.LittleEndian.PutUint32(counters[i][12:], uint32(i))
		}
		for step := range 2000 {
			c := counters[r.IntN(len(counters))]
			if at, known := 0, false; len(kept.cells) > 0 && r.IntN(3) == 0 {
				if at, known = kept.find(&c); known {
					kept.drop(at)
				}
				delete(want, c)
			} else {
				kept.put(&c, &state{a: int64(step)}, 1<<40, 0, 1<<20)
				want[c] = int64(step)
			}
			c = counters[r.IntN(len(counters))]
			if a, known := want[c]; kept.get(&c).a != a || kept.get(&c).present != known || kept.used != len(want) {
				t.Fatalf("seed %d, step %d: %+v, want %d %v; %d kept, want %d", seed, step, kept.get(&c), a, known, kept.used, len(want))
			}
		}
	}
}

// TestTableIsBounded: at the bound what is idle goes first, then what is idle soonest
// of a few, and nothing else is lost.
func TestTableIsBounded(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	for _, most := range []int{1, 2, 7, 100} {
		kept := &table{}
		for i := range 5000 {
			var c Counter
			binary.LittleEndian.PutUint64(c[1:], r.Uint64())
			now := int64(i)
			kept.put(&c, &state{a: 1}, now+1+r.Int64N(300), now, most)
			if kept.used > most {
				t.Fatalf("%d counters kept, want at most %d", kept.used, most)
			}
			if !kept.get(&c).present {
				t.Fatal("the counter that was put last is not there")
			}
		}
		if most == 100 && kept.gone == 0 || most == 1 && kept.gone > 5000 {
			t.Errorf("bound %d: %d counters gave way", most, kept.gone)
		}
	}
}
