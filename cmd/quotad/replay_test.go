package main

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/testenv/accesslog"
)

// The limit of the replay: units per window, and a bucket of its own size.
const (
	replayUnits = 5
	replayBurst = 3
)

// replayed is how many requests are sent, over so many windows.
const (
	replayed      = 500
	replayWindows = 3
)

// A stretch of a real log, sent over HTTP to two nodes by turns, one key per client, with its gaps between
// requests (all shortened alike): every 200 and 429 is what a model of the algorithm says.
//
// Nobody outside knows the instant at which Redis decided; it lies between sending and receipt. So the model is asked
// for the most and the least that it could allow in between; where both say the same, that has to be the answer. On a
// machine so slow that this is seldom so, or that the requests take more windows than they should, the windows are made
// longer until the model is sure often enough.
func TestRealLogOverTwoNodes(t *testing.T) {
	t.Parallel()
	stores := shared(t)
	nodes := []*testNode{start(t, stores), start(t, stores)}
	requests := stretch(accesslog.Logs(t))
	clients := map[string]bool{}
	for _, r := range requests {
		clients[r.Client] = true
	}
	window := 2 * time.Second // what was long enough for one algorithm is where the next one begins
	for _, algorithm := range []quotad.Algorithm{quotad.SlidingWindowCounter, quotad.FixedWindow, quotad.TokenBucket, quotad.SlidingWindowLog} {
		t.Run(string(algorithm), func(t *testing.T) {
			for try := 1; ; try++ {
				tier := map[string]any{"algorithm": algorithm, "rate_window": int(window.Seconds())}
				if algorithm == quotad.TokenBucket {
					tier["burst"] = replayBurst
				}
				tenant := fmt.Sprintf("log.%s.%d", algorithm, try)
				nodes[0].tier(tenant, replayUnits, tier)
				nodes[0].tenant(tenant, tenant)
				keys, models := map[string]string{}, map[string]*model{}
				for _, client := range slices.Sorted(maps.Keys(clients)) {
					_, keys[client] = nodes[0].key(tenant)
					models[client] = &model{algorithm: algorithm, window: window}
					for _, n := range nodes {
						soon(t, "the key is known", status(http.StatusOK, func() answer { return n.metered(http.MethodGet, "/v1/limits", nil, keys[client]) }))
					}
				}
				began := time.Now()
				sure := replay(t, nodes, requests, keys, models, replayWindows*window)
				took := time.Since(began)
				if min(sure[http.StatusOK], sure[http.StatusTooManyRequests]) >= replayed/25 {
					return
				}
				t.Logf("with a window of %s the model was sure of %v answers of %d, in %s", window, sure, replayed, took)
				if try == 5 {
					t.Fatal("too few to show anything")
				}
				window = 2 * max(window, took/replayWindows).Truncate(time.Second)
			}
		})
	}
}

// replay sends the requests over a span of time, or more if they take longer, and returns of how many answers, by their
// status, the models were sure.
func replay(t *testing.T, nodes []*testNode, requests []accesslog.Request, keys map[string]string, models map[string]*model, span time.Duration) (sure map[int]int) {
	t.Helper()
	logged := requests[len(requests)-1].Time.Sub(requests[0].Time)
	began := time.Now()
	sure = map[int]int{}
	for i, r := range requests {
		due := float64(r.Time.Sub(requests[0].Time)) / float64(max(logged, 1)) * float64(span)
		time.Sleep(time.Until(began.Add(time.Duration(due))))
		sent := time.Now()
		a := nodes[i%2].ping(keys[r.Client])
		most, least := models[r.Client].judge(a.status == http.StatusOK, sent, time.Now())
		switch {
		case a.status != http.StatusOK && a.status != http.StatusTooManyRequests:
			t.Fatalf("line %d: %d %s", r.Line, a.status, a.body)
		case a.header.Get("X-Quotad-Degraded") != "":
			t.Logf("line %d: Redis did not answer within the budget", r.Line)
			return nil
		case most == least && most != (a.status == http.StatusOK):
			t.Fatalf("line %d, client %s: %d, but the model allows it: %v", r.Line, r.Client, a.status, most)
		case most == least:
			sure[a.status]++
		}
	}
	return sure
}

// stretch are consecutive requests of a log, in order: those of all that come nearest to being half allowed, half refused.
func stretch(logs []accesslog.Log) []accesslog.Request {
	const each = replayUnits * replayWindows // what one client is allowed in all
	var found []accesslog.Request
	nearest := replayed
	for _, log := range logs {
		requests := log.Ordered("sorted")
		for from := 0; from+replayed <= len(requests); from += replayed / 5 {
			counts := map[string]int{}
			for _, r := range requests[from : from+replayed] {
				counts[r.Client]++
			}
			allowed := 0
			for _, n := range counts {
				allowed += min(n, each)
			}
			if off := max(allowed-replayed/2, replayed/2-allowed); off < nearest {
				nearest, found = off, requests[from:from+replayed]
			}
		}
	}
	return found
}

// model is a limit of replayUnits per window as its algorithm is described, for one client whose calls come one
// after the other. Of each call that was allowed it keeps the earliest and the latest instant at which it can have been.
type model struct {
	algorithm     quotad.Algorithm
	window        time.Duration
	early, latest []time.Time
}

// judge returns whether the call can have been allowed, and whether it must have been, somewhere between the two instants;
// then it takes down what came of it. A clock of milliseconds, and one that is read a moment later, are allowed for.
func (m *model) judge(allowed bool, sent, received time.Time) (most, least bool) {
	const slack = 2 * time.Millisecond
	sent, received = sent.Add(-slack), received.Add(slack)
	most = m.allows(m.early, received)
	least = m.allows(m.latest, sent)
	if allowed {
		m.early, m.latest = append(m.early, sent), append(m.latest, received)
	}
	return most, least
}

// allows says whether a call at now is allowed after the charges. All four allow more the longer ago the charges were.
func (m *model) allows(charges []time.Time, now time.Time) bool {
	window := func(t time.Time) int64 { return t.UnixNano() / int64(m.window) }
	switch m.algorithm {
	case quotad.TokenBucket:
		level, last := float64(replayBurst), time.Time{}
		refill := func(at time.Time) {
			if !last.IsZero() {
				level = min(replayBurst, level+at.Sub(last).Seconds()*replayUnits/m.window.Seconds())
			}
			last = at
		}
		for _, c := range charges {
			refill(c)
			level--
		}
		refill(now)
		return level >= 1
	case quotad.SlidingWindowLog:
		n := 0
		for _, c := range charges {
			if now.Sub(c) < m.window {
				n++
			}
		}
		return n+1 <= replayUnits
	default:
		var previous, current float64
		for _, c := range charges {
			switch window(now) - window(c) {
			case 0:
				current++
			case 1:
				previous++
			}
		}
		if m.algorithm == quotad.SlidingWindowCounter {
			elapsed := float64(now.UnixNano()%int64(m.window)) / float64(m.window)
			current += previous * (1 - elapsed)
		}
		return current+1 <= replayUnits
	}
}
