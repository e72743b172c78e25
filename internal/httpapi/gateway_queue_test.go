package httpapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/quota"
)

// wantPlaces waits until no place is taken, and so many are free: a call may have its answer before it gives up its own.
func (g *gate) wantPlaces(free int) {
	g.t.Helper()
	taken, left := 0, 0
	for began := time.Now(); time.Since(began) < patience; time.Sleep(time.Millisecond) {
		g.queue.mu.Lock()
		taken, left = len(g.queue.taken), g.queue.free
		g.queue.mu.Unlock()
		if taken == 0 && left == free {
			return
		}
	}
	g.t.Errorf("places of %d tenants are taken, %d are free, want %d", taken, left, free)
}

// bucket is a Checker with a leaky bucket that lets a call out each interval, and lets
// them wait without end; those in a hurry it refuses.
type bucket struct {
	interval time.Duration

	mu      sync.Mutex
	next    time.Time
	count   int
	delayed int // of them
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
	hurried := call.Queue != nil && !call.Queue.Enter(d.Tenant)
	wait := max(0, time.Until(b.next))
	if wait > 0 && hurried {
		return refused(), nil
	}
	b.count++
	if wait > 0 {
		b.delayed++
	}
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

// Calls wait as long as the bucket says, so that none reaches the upstream before its moment.
func TestLeakyBucketsShapeCalls(t *testing.T) {
	t.Parallel()
	const interval = 250 * time.Millisecond
	var mu sync.Mutex
	at := map[string]time.Time{}
	b := &bucket{interval: interval}
	g := gateTo(t, b, Options{}, GatewayOptions{}, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		body, _ := io.ReadAll(r.Body)
		at[r.URL.Path+string(body)] = time.Now()
	})
	var all sync.WaitGroup
	begun := time.Now()
	for i := range 5 {
		path := fmt.Sprintf("/%d", i)
		all.Go(func() {
			if status, header, _ := g.ask("POST "+path, "Content-Length: 3", "", "abc"); status != http.StatusOK || header.Get("X-Quotad-Delay-Ms") != "" {
				t.Errorf("%s: got %d %v", path, status, header)
			}
		})
		for began := time.Now(); b.admitted() < i+1; time.Sleep(time.Millisecond) { // the one after the other
			if time.Since(began) > patience {
				t.Fatalf("the bucket got %d calls", b.admitted())
			}
		}
	}
	all.Wait()
	for i := range 5 {
		if after := at[fmt.Sprintf("/%dabc", i)].Sub(begun); after < time.Duration(i)*interval {
			t.Errorf("call %d reached the upstream after %s, before its moment", i, after)
		}
	}
	g.wantCount("quotad_gateway_waiting", "", 0)
	g.wantCount("quotad_gateway_waits_total", `{outcome="passed"}`, float64(b.delayed))
}

// As many of a tenant wait as are then free for others; the rest is refused, and charges nothing.
func TestTheQueueIsBounded(t *testing.T) {
	t.Parallel()
	b := &bucket{interval: time.Hour}
	g := gateTo(t, b, Options{}, GatewayOptions{MaxWaiting: 4}, func(http.ResponseWriter, *http.Request) {})
	if status, _, _ := g.ask("GET /"); status != http.StatusOK {
		t.Fatalf("the first: %d", status)
	}
	var waiting []net.Conn
	for range 2 {
		conn := dial(t, g.address)
		_, _ = io.WriteString(conn, head("GET /waits"))
		waiting = append(waiting, conn)
	}
	g.wantCount("quotad_gateway_waiting", "", 2)
	for range 5 {
		if status, header, _ := g.ask("GET /"); status != http.StatusTooManyRequests || header.Get("Retry-After") == "" {
			t.Errorf("with the queue full: %d %v", status, header)
		}
	}
	if n := b.admitted(); n != 3 {
		t.Errorf("the bucket was charged for %d calls, want 3", n)
	}
	for _, conn := range waiting {
		_ = conn.Close()
	}
	g.wantCount("quotad_gateway_waits_total", `{outcome="full"}`, 5)
	g.wantCount("quotad_gateway_waits_total", `{outcome="hung_up"}`, 2)
	g.wantPlaces(4)
	if g.reached.Load() != 1 {
		t.Errorf("the upstream got %d calls", g.reached.Load())
	}
}

// delays is a Checker that delays the calls of each tenant, which their path names.
type delays struct {
	bucket
	of map[string]time.Duration
}

func (b *delays) Check(_ context.Context, call quota.Call) (quotad.Decision, error) {
	d := admitted()
	d.Tenant = call.Path[1:]
	if !call.Queue.Enter(d.Tenant) {
		return refused(), nil
	}
	d.DelayMS = b.of[d.Tenant].Milliseconds()
	return d, nil
}

func TestATenantThatFillsItsShareKeepsNobodyOut(t *testing.T) {
	t.Parallel()
	b := &delays{of: map[string]time.Duration{"greedy": time.Hour, "other": time.Millisecond}}
	g := gateTo(t, b, Options{}, GatewayOptions{MaxWaiting: 4}, func(http.ResponseWriter, *http.Request) {})
	var conns []net.Conn
	for range 2 {
		conn := dial(t, g.address)
		conns = append(conns, conn)
		if _, err := io.WriteString(conn, head("GET /greedy")); err != nil {
			t.Fatal(err)
		}
	}
	g.wantCount("quotad_gateway_waiting", "", 2)
	for range 3 {
		if status, _, _ := g.ask("GET /greedy"); status != http.StatusTooManyRequests {
			t.Errorf("beyond its share: %d", status)
		}
		if status, _, _ := g.ask("GET /other"); status != http.StatusOK {
			t.Errorf("another tenant: %d", status)
		}
	}
	for _, conn := range conns {
		_ = conn.Close()
	}
	g.wantCount("quotad_gateway_waiting", "", 0)
	g.wantCount("quotad_gateway_waits_total", `{outcome="full"}`, 3)
	g.wantPlaces(4)
}

func TestPlacesAreShared(t *testing.T) {
	t.Parallel()
	q := newQueue(100)
	fill := func(tenant string) (places int) {
		for q.enter(tenant) {
			places++
		}
		return places
	}
	for i, want := range []int{50, 25, 13, 6, 3, 2, 1} { // half of what is free
		if got := fill(string(rune('a' + i))); got != want {
			t.Errorf("tenant %d got %d places, want %d", i+1, got, want)
		}
	}
	if q.enter("late") {
		t.Error("a queue without room has a place")
	}
	q.leave("a")
	if q.enter("a") || !q.enter("late") {
		t.Error("the place that got free is for who has none")
	}
}

// Whatever becomes of a call, its place in the queue is free again.
func TestPlacesAreGivenBack(t *testing.T) {
	t.Parallel()
	for _, a := range map[string]*answers{
		"admitted": {decision: admitted()}, "refused": {decision: refused()}, "failed": {err: quotad.ErrInvalidAPIKey},
		"panicked": {before: func() { panic("on purpose") }},
	} {
		g := gateTo(t, a, Options{}, GatewayOptions{MaxWaiting: 1}, func(http.ResponseWriter, *http.Request) {})
		for range 3 {
			g.ask("GET /")
		}
		g.wantPlaces(1)
	}
}
