package main

import (
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/testenv/accesslog"
)

// slice is the number of calls of a log that are sent over HTTP for each algorithm.
const slice = 1500

// TestRealLogOverHTTP sends a slice of a real log, its clients each with a key, by turns to two nodes on one Postgres and
// Redis, and wants every answer to be what a count by hand says. The window is a year, so that no time passes in it.
func TestRealLogOverHTTP(t *testing.T) {
	t.Parallel()
	stores := shared(t)
	one, two := start(t, stores), start(t, stores)
	requests := busiest(t)
	const limit, year = 30, 365 * 24 * 60 * 60

	var all sync.WaitGroup
	for _, algorithm := range quotad.Algorithms {
		name := strings.ReplaceAll(string(algorithm), "_", "-")
		one.must(http.MethodPost, "/tiers", map[string]any{"name": name, "rate_limit": limit, "rate_window": year, "algorithm": algorithm})
		one.must(http.MethodPost, "/tenants", map[string]any{"id": name, "name": name, "tier": name})
		keys := map[string]string{}
		for _, r := range requests {
			if keys[r.Client] == "" {
				keys[r.Client] = one.must(http.MethodPost, "/tenants/"+name+"/keys", map[string]any{"name": "client"})["secret"].(string)
			}
		}
		all.Go(func() {
			used := map[string]int{}
			refused := 0
			for i, r := range requests {
				n := []*testNode{one, two}[i%2]
				want := http.StatusOK
				if used[r.Client] >= limit {
					want = http.StatusTooManyRequests
					refused++
				} else {
					used[r.Client]++
				}
				if got := n.ping(keys[r.Client]); got.status != want {
					t.Errorf("%s: line %d, call %d of its client: %d %s, want %d", name, r.Line, used[r.Client], got.status, got.body, want)
					return
				}
			}
			if refused == 0 {
				t.Errorf("%s: nothing was refused: the slice shows nothing", name)
			}
		})
	}
	all.Wait()
}

// busiest is the slice, of all logs, in which one client makes the most calls.
func busiest(t *testing.T) (found []accesslog.Request) {
	t.Helper()
	most := 0
	for _, log := range accesslog.Logs(t) {
		requests := log.Ordered("sorted")
		for from := 0; from+slice <= len(requests); from += slice {
			calls := map[string]int{}
			top := 0
			for _, r := range requests[from : from+slice] {
				calls[r.Client]++
				top = max(top, calls[r.Client])
			}
			if top > most && len(calls) > 10 {
				most, found = top, requests[from:from+slice]
			}
		}
	}
	if found == nil {
		t.Fatal("no log has a slice of so many calls")
	}
	return found
}
