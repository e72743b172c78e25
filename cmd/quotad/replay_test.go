package main

import (
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
	replayUnits  = 5
	replayBurst  = 3
	replayWindow = 2 * time.Second
)

// replayed is how many requests are sent, and replaySpan how long that takes at least.
const (
	replayed   = 500
	replaySpan = 6 * time.Second
)

// A stretch of a real log, sent over HTTP to two nodes by turns, one key per client, with its gaps between
// requests (all shortened alike): every 200 and 429 is what a model of the algorithm says.
//
// Nobody outside knows the instant at which Redis decided; it lies between sending and receipt. So the model is asked
// for the most and the least that it could allow in between; where both say the same, that has to be the answer.
func TestRealLogOverTwoNodes(t *testing.T) {
	t.Parallel()
	stores := shared(t)
	nodes := []*testNode{start(t, stores), start(t, stores)}
	requests := stretch(accesslog.Logs(t))
	clients := map[string]bool{}
	for _, r := range requests {
		clients[r.Client] = true
	}
	for _, algorithm := range []quotad.Algorithm{quotad.SlidingWindowCounter, quotad.FixedWindow, quotad.TokenBucket, quotad.SlidingWindowLog} {
		t.Run(string(algorithm), func(t *testing.T) {
			t.Parallel()
			tier := map[string]any{"algorithm": algorithm, "rate_window": int(replayWindow.Seconds())}
			if algorithm == quotad.TokenBucket {
				tier["burst"] = replayBurst
			}
			tenant := "log." + string(algorithm)
			nodes[0].tier(tenant, replayUnits, tier)
			nodes[0].tenant(tenant, tenant)
			keys, models := map[string]string{}, map[string]*model{}
			for _, client := range slices.Sorted(maps.Keys(clients)) {
				_, keys[client] = nodes[0].key(tenant)
				models[client] = &model{algorithm: algorithm}
				nodes[0].metered(http.MethodGet, "/v1/limits", nil, keys[client]) // warm, charging nothing
				nodes[1].metered(http.MethodGet, "/v1/limits", nil, keys[client])
			}

			span := requests[len(requests)-1].Time.Sub(requests[0].Time)
			began := time.Now()
			sure := map[int]int{}
			for i, r := range requests {
				due := float64(r.Time.Sub(requests[0].Time)) / float64(max(span, 1)) * float64(replaySpan)
				time.Sleep(time.Until(began.Add(time.Duration(due))))
				sent := time.Now()
				got := nodes[i%2].ping(keys[r.Client]).status
				most, least := models[r.Client].judge(got == http.StatusOK, sent, time.Now())
				switch {
				case got != http.StatusOK && got != http.StatusTooManyRequests:
					t.Fatalf("line %d: %d", r.Line, got)
				case most == least && most != (got == http.StatusOK):
					t.Fatalf("line %d, client %s: %d, but the model allows it: %v", r.Line, r.Client, got, most)
				case most == least:
					sure[got]++
				}
			}
			if sure[http.StatusOK] < replayed/25 || sure[http.StatusTooManyRequests] < replayed/25 {
				t.Errorf("the model was sure of %v answers of %d: too few to show anything", sure, replayed)
			}
		})
	}
}

// stretch are consecutive requests of a log, in order: those of all that come nearest to being half allowed, half refused.
func stretch(logs []accesslog.Log) []accesslog.Request {
	const each = replayUnits * int(replaySpan/replayWindow) // what one client is allowed in all
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

// model is a limit of replayUnits per replayWindow as its algorithm is described, for one client whose calls come one
// after the other. Of each call that was allowed it keeps the earliest and the latest instant at which it can have been.
type model struct {
	algorithm     quotad.Algorithm
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
	window := func(t time.Time) int64 { return t.UnixNano() / int64(replayWindow) }
	switch m.algorithm {
	case quotad.TokenBucket:
		level, last := float64(replayBurst), time.Time{}
		refill := func(at time.Time) {
			if !last.IsZero() {
				level = min(replayBurst, level+at.Sub(last).Seconds()*replayUnits/replayWindow.Seconds())
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
			if now.Sub(c) < replayWindow {
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
			elapsed := float64(now.UnixNano()%int64(replayWindow)) / float64(replayWindow)
			current += previous * (1 - elapsed)
		}
		return current+1 <= replayUnits
	}
}
