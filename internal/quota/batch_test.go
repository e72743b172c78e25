package quota

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotad/quotad"
)

// query is one call of a batch's find.
type query struct {
	at  time.Duration
	ids []string
}

// queries records what a batch asks; ids that begin with "x" do not exist.
type queries struct {
	mu    sync.Mutex
	begun time.Time
	delay time.Duration
	err   error
	list  []query
}

func (q *queries) find(ctx context.Context, ids []string) (map[string]string, error) {
	q.mu.Lock()
	q.list = append(q.list, query{at: time.Since(q.begun), ids: ids})
	delay, err := q.delay, q.err
	q.mu.Unlock()
	select {
	case <-time.After(delay):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	values := map[string]string{}
	for _, id := range ids {
		if id[0] != 'x' {
			values[id] = "value of " + id
		}
	}
	return values, err
}

func newQueries() (*queries, *batch[string]) {
	q := &queries{begun: time.Now()}
	return q, &batch[string]{find: q.find, budget: testBudget}
}

func TestLoneLookupIsNotHeldBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, b := newQueries()
		for i := range 3 {
			begun := time.Now()
			if v, err := b.Find(t.Context(), "a"); err != nil || v != "value of a" {
				t.Fatalf("Find = %q, %v", v, err)
			}
			if waited := time.Since(begun); waited != 0 {
				t.Fatalf("look-up %d waited %v", i, waited)
			}
			time.Sleep(batchGap)
		}
		if _, err := b.Find(t.Context(), "x"); !errors.Is(err, quotad.ErrNotFound) {
			t.Fatalf("unknown: %v", err)
		}
		if len(q.list) != 4 {
			t.Fatalf("%d queries", len(q.list))
		}
	})
}

func TestLookupsThatComeTogetherTravelTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, b := newQueries()
		var wg sync.WaitGroup
		for i := range 150 {
			wg.Go(func() {
				id := fmt.Sprintf("%03d", i)
				if i%3 == 0 {
					id = "x" + id
				}
				v, err := b.Find(t.Context(), id)
				if i%3 == 0 && !errors.Is(err, quotad.ErrNotFound) || i%3 != 0 && v != "value of "+id {
					t.Errorf("Find(%s) = %q, %v", id, v, err)
				}
			})
		}
		wg.Wait()
		sizes := []int{}
		for _, query := range q.list {
			sizes = append(sizes, len(query.ids))
		}
		if fmt.Sprint(sizes) != "[1 64 64 21]" {
			t.Fatalf("queries of %v ids", sizes)
		}
	})
}

// Two thousand made-up ids a second for ten seconds are two hundred queries a second.
func TestFloodOfLookupsIsAFewQueries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, b := newQueries()
		q.delay = time.Millisecond
		var wg sync.WaitGroup
		for i := range 20000 {
			wg.Go(func() {
				if _, err := b.Find(t.Context(), fmt.Sprint("x", i)); !errors.Is(err, quotad.ErrNotFound) {
					t.Errorf("Find = %v", err)
				}
			})
			time.Sleep(500 * time.Microsecond)
		}
		wg.Wait()
		if len(q.list) > 2001 {
			t.Fatalf("%d queries in ten seconds", len(q.list))
		}
		for i, query := range q.list[1:] {
			if gap := query.at - q.list[i].at; gap < batchGap {
				t.Fatalf("query %d left %v after the one before", i+1, gap)
			}
		}
	})
}

func TestSlowDatabaseIsAskedAFewThingsAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, b := newQueries()
		q.delay = time.Second
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		var wg sync.WaitGroup
		for i := range maxQueued + maxBatches*maxBatch {
			wg.Go(func() { b.Find(ctx, fmt.Sprint(i)) })
			if i < maxBatches*maxBatch {
				time.Sleep(batchGap / maxBatch)
			}
		}
		synctest.Wait()
		if len(q.list) != maxBatches {
			t.Errorf("%d queries under way", len(q.list))
		}
		var e *quotad.Error
		var refused int
		for range 2 * maxBatches * maxBatch {
			if _, err := b.Find(ctx, "late"); errors.As(err, &e) && e.Code == quotad.CodeStoreUnavailable {
				refused++
				break
			}
		}
		if refused == 0 {
			t.Error("the queue is not bounded")
		}
		wg.Wait()
		time.Sleep(time.Minute)
	})
}

func TestFailedQueryFailsThoseInIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, b := newQueries()
		q.err = errAway
		if _, err := b.Find(t.Context(), "a"); !errors.Is(err, quotad.ErrStoreUnavailable) {
			t.Fatalf("Find = %v", err)
		}
		q.err = nil
		if _, err := b.Find(t.Context(), "a"); err != nil {
			t.Fatalf("Find = %v", err)
		}
	})
}
