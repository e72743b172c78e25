package httpapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/quota"
)

// wantPlaces holds the gateway to having so many places free, and none taken.
func (g *gate) wantPlaces(free int) {
	g.t.Helper()
	g.queue.mu.Lock()
	defer g.queue.mu.Unlock()
	if len(g.queue.taken) != 0 || g.queue.free != free {
		g.t.Errorf("%v places are taken, %d are free, want %d", g.queue.taken, g.queue.free, free)
	}
}

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
	hurried := call.Queue != nil && !call.Queue.Enter(d.Tenant)
	wait := max(0, time.Until(b.next))
	if wait > 0 && hurried {
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

// As many of a tenant wait as are then free for others; the rest is refused, and charges nothing.
func TestTheQueueIsBounded(t *testing.T) {
	t.Parallel()
	b := &bucket{interval: 300 * time.Millisecond}
	g := gateTo(t, b, Options{}, GatewayOptions{MaxWaiting: 4}, func(http.ResponseWriter, *http.Request) {})
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
	g.wantPlaces(4)
	if g.reached.Load() != 3 {
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
