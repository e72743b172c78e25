package httpapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/quota"
)

// bucket is a Checker with a leaky bucket that lets a call out each interval, and lets
// them wait without end; those in a hurry it refuses.
type bucket struct {
	interval time.Duration

	mu    sync.Mutex
	next  time.Time
	count int
}

func (b *bucket) admitted() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.count
}

func (b *bucket) Check(_ context.Context, call quota.Call) (quotad.Decision, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	d := admitted()
	wait := max(0, time.Until(b.next))
	if wait > 0 && call.Hurried {
		return refused(), nil
	}
	b.count++
	b.next = time.Now().Add(wait + b.interval)
	d.DelayMS = (wait + time.Millisecond - 1).Milliseconds()
	return d, nil
}

func (b *bucket) CheckAll(context.Context, []quota.Call) ([]quota.Result, quotad.Decision, error) {
	return nil, quotad.Decision{}, errors.New("nobody asks")
}

func (b *bucket) Limits(context.Context, quota.Call) ([]quotad.Decision, error) {
	return nil, errors.New("nobody asks")
}

// Calls wait as long as the bucket says, and reach the upstream in the order in which
// they were admitted.
func TestLeakyBucketsShapeCalls(t *testing.T) {
	t.Parallel()
	const interval = 250 * time.Millisecond
	var mu sync.Mutex
	var order []string
	var at []time.Time
	b := &bucket{interval: interval}
	g := gateTo(t, b, Options{}, GatewayOptions{}, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		body, _ := io.ReadAll(r.Body)
		order, at = append(order, r.URL.Path+string(body)), append(at, time.Now())
	})
	var all sync.WaitGroup
	var want []string
	begun := time.Now()
	for i := range 5 {
		path := fmt.Sprintf("/%d", i)
		want = append(want, path+"abc")
		all.Go(func() {
			if status, header, _ := g.ask("POST "+path, "Content-Length: 3", "", "abc"); status != http.StatusOK || header.Get("X-Quotad-Delay-Ms") != "" {
				t.Errorf("%s: got %d %v", path, status, header)
			}
		})
		for began := time.Now(); b.admitted() < i+1; time.Sleep(time.Millisecond) { // the one after the other
			if time.Since(began) > 5*time.Second {
				t.Fatalf("the bucket got %d calls", b.admitted())
			}
		}
	}
	all.Wait()
	if !slices.Equal(order, want) {
		t.Errorf("they reached the upstream as %v", order)
	}
	for i, arrived := range at {
		if after := arrived.Sub(begun); after < time.Duration(i)*interval {
			t.Errorf("call %d reached the upstream after %s, before its moment", i, after)
		}
	}
	g.wantCount("quotad_gateway_waiting", "", 0)
}

// As many wait as there is room for; the others are refused, and charge nothing.
func TestTheQueueIsBounded(t *testing.T) {
	t.Parallel()
	b := &bucket{interval: 300 * time.Millisecond}
	g := gateTo(t, b, Options{}, GatewayOptions{MaxWaiting: 2}, func(http.ResponseWriter, *http.Request) {})
	if status, _, _ := g.ask("GET /"); status != http.StatusOK {
		t.Fatalf("the first: %d", status)
	}
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			if status, _, _ := g.ask("GET /waits"); status != http.StatusOK {
				t.Errorf("one that waits: %d", status)
			}
		})
	}
	g.wantCount("quotad_gateway_waiting", "", 2)
	for range 5 {
		if status, header, _ := g.ask("GET /"); status != http.StatusTooManyRequests || header.Get("Retry-After") == "" {
			t.Errorf("with the queue full: %d %v", status, header)
		}
	}
	b.mu.Lock()
	pending := time.Until(b.next)
	b.mu.Unlock()
	if pending > 3*b.interval {
		t.Errorf("refused calls were charged: the bucket is busy for %s", pending)
	}
	all.Wait()
	g.wantCount("quotad_gateway_waits_total", `{outcome="full"}`, 5)
	g.wantCount("quotad_gateway_waits_total", `{outcome="passed"}`, 2)
	if g.reached.Load() != 3 || g.queue.places.Load() != 0 {
		t.Errorf("the upstream got %d calls, %d places are taken", g.reached.Load(), g.queue.places.Load())
	}
}

// Whatever becomes of a call, its place in the queue is free again.
func TestPlacesAreGivenBack(t *testing.T) {
	t.Parallel()
	for name, a := range map[string]*answers{
		"admitted": {decision: admitted()}, "refused": {decision: refused()}, "failed": {err: quotad.ErrInvalidAPIKey},
		"panicked": {before: func() { panic("on purpose") }},
	} {
		g := gateTo(t, a, Options{}, GatewayOptions{MaxWaiting: 1}, func(http.ResponseWriter, *http.Request) {})
		for range 3 {
			g.ask("GET /")
		}
		if places := g.queue.places.Load(); places != 0 {
			t.Errorf("%s: %d places are taken", name, places)
		}
	}
}
