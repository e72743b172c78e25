package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/testenv"
)

// wireFaults are the ways in which a network and a server behind it can fail.
var wireFaults = []struct {
	name   string
	break_ func(w *wire, r *testenv.Server)
	mend   func(w *wire, r *testenv.Server)
}{
	{"refused", func(w *wire, _ *testenv.Server) { w.cut() }, func(w *wire, _ *testenv.Server) { w.splice() }},
	{"killed", func(_ *wire, r *testenv.Server) { r.Stop() }, func(_ *wire, r *testenv.Server) { r.Start() }},
	{"frozen", func(_ *wire, r *testenv.Server) { r.Freeze() }, func(_ *wire, r *testenv.Server) { r.Resume() }},
	{"packets lost", poison("timeout", "upstream", `{"timeout":0}`), mend},
	{"replies lost", poison("timeout", "downstream", `{"timeout":0}`), mend},
	{"slow, 4 s", poison("latency", "downstream", `{"latency":4000}`), mend}, // twice what is waited for
	{stalls, poison("stall", "downstream", `{"every":20,"ms":60000}`), mend},
	{"reset", poison("reset_peer", "downstream", `{"timeout":0}`), mend},
	{"trickle, 10 B/s", poison("slicer", "upstream", `{"average_size":10,"delay":1000000}`), mend},
}

func poison(kind, stream, attributes string) func(*wire, *testenv.Server) {
	return func(w *wire, _ *testenv.Server) { w.poison(kind, stream, attributes) }
}

func mend(w *wire, _ *testenv.Server) { w.mend() }

// stalls is the fault that most calls do not notice.
const stalls = "5 % stall"

// view is what callers of a failover got, by the policy of the call.
type view struct {
	calls    [3]atomic.Int64
	degraded [3]atomic.Int64 // answered by the policy
	sent     atomic.Int64    // units
	admitted atomic.Int64    // units admitted by the store
}

func (v *view) sum(of *[3]atomic.Int64) (n int64) {
	for i := range of {
		n += of[i].Load()
	}
	return n
}

// callThrough has callers ask, each with one policy and mixed costs, at about 500 calls
// a second, and holds every answer against what the policy is to say.
func callThrough(t *testing.T, f *Failover) (v *view, stop func()) {
	v = &view{}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for w := range 15 {
		which := w % 3
		policy := quotad.FailurePolicies[which]
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(w), 3))
			for ctx.Err() == nil {
				c := loadCall(r.IntN(50), endless, 1+r.Int64N(3))
				v.calls[which].Add(1)
				v.sent.Add(c.Cost)
				out, err := f.TakeOr(context.Background(), c, make([]Status, 1), policy)
				switch {
				case err == nil && out.Allowed && out.Degraded == "":
					v.admitted.Add(c.Cost)
				case policy == quotad.FailClosed && errors.Is(err, quotad.ErrLimiterUnavailable),
					policy != quotad.FailClosed && err == nil && out.Allowed && out.Degraded == policy:
					v.degraded[which].Add(1)
				default:
					t.Errorf("%s: %+v %v", policy, out, err)
				}
				time.Sleep(time.Duration(r.IntN(60)) * time.Millisecond) // a rate, not a wait
			}
		})
	}
	return v, func() { cancel(); wg.Wait() }
}

// TestFaultsOnTheWire breaks Redis and the network before it under load. The policies
// answer every call that the store does not; the store charges each call once at most,
// and each that it answered; once the fault is over it answers all; and nothing is left:
// no goroutine, and no more connections than a few.
func TestFaultsOnTheWire(t *testing.T) {
	before := goroutines()
	t.Run("faults", func(t *testing.T) {
		for _, fault := range wireFaults {
			t.Run(fault.name, func(t *testing.T) {
				t.Parallel()
				server := testenv.OwnRedis(t)
				w := newWire(t, hostPort(t, server.URL()))
				client := connect(t, "redis://"+w.address(), ConnectOptions{Timeout: 2 * hurried})
				f, _ := running(t, NewRedis(client, RedisOptions{Timeout: hurried}), FailoverOptions{Budget: hurried, Retry: 50 * time.Millisecond})
				v, stop := callThrough(t, f)
				more := func(of *[3]atomic.Int64, n int64) {
					t.Helper()
					least := [3]int64{}
					for i := range of {
						least[i] = of[i].Load() + n
					}
					eventually(t, "further calls", func() bool {
						return of[0].Load() >= least[0] && of[1].Load() >= least[1] && of[2].Load() >= least[2]
					})
				}
				more(&v.calls, 20)
				fault.break_(w, server)
				more(&v.degraded, 1)
				if fault.name != stalls {
					eventually(t, "the breaker is open", func() bool { return f.State() == "open" })
					more(&v.degraded, 20)
				}
				more(&v.calls, 20)
				if n := client.PoolStats().TotalConns; n > 2*mostAway {
					t.Errorf("%d connections", n)
				}
				fault.mend(w, server)
				eventually(t, "the store answers again", func() bool { return f.State() == "closed" })
				admitted := v.admitted.Load()
				eventually(t, "it admits calls", func() bool { return v.admitted.Load() > admitted+20 })
				stop()
				direct := NewRedis(connect(t, server.URL(), ConnectOptions{Timeout: patience}), RedisOptions{})
				if sum := charged(t, direct, 50, endless); sum < v.admitted.Load() || sum > v.sent.Load() {
					t.Errorf("%d units charged, of %d sent, and %d admitted by the store", sum, v.sent.Load(), v.admitted.Load())
				}
				if v.sum(&v.degraded) == 0 || v.admitted.Load() == 0 {
					t.Errorf("%d degraded, %d units admitted", v.sum(&v.degraded), v.admitted.Load())
				}
			})
		}
	})
	eventually(t, fmt.Sprintf("no more than the %d goroutines from before", before), func() bool { return goroutines() <= before })
}

// TestStallsOfAFew: when one reply in twenty stalls, the breaker stays closed, and the
// calls that do not stall are answered by the store.
func TestStallsOfAFew(t *testing.T) {
	t.Parallel()
	server := testenv.OwnRedis(t)
	w := newWire(t, hostPort(t, server.URL()))
	const budget = 10 * time.Second // many times what a call takes that does not stall
	client := connect(t, "redis://"+w.address(), ConnectOptions{Timeout: 2 * budget})
	var opened atomic.Bool
	f, _ := running(t, NewRedis(client, RedisOptions{Timeout: budget}), FailoverOptions{Budget: budget})
	w.poison("stall", "downstream", `{"every":20,"ms":60000}`)
	var degraded atomic.Int64
	const calls = 2000
	inParallel(100, func(i int) bool {
		for n := range calls / 100 {
			out, err := f.TakeOr(context.Background(), loadCall(n, endless, 1), make([]Status, 1), quotad.FailOpen)
			if err != nil || !out.Allowed {
				t.Errorf("%+v %v", out, err)
			}
			if out.Degraded != "" {
				degraded.Add(1)
			}
			if f.State() != "closed" {
				opened.Store(true)
			}
		}
		return true
	})
	if opened.Load() || degraded.Load() == 0 || degraded.Load() > calls/5 {
		t.Errorf("the breaker opened: %v; %d of %d calls answered by the policy", opened.Load(), degraded.Load(), calls)
	}
}

// TestABlackHole: an address that swallows packets, or connections, costs no more than
// the budget of a few calls, and no goroutine or connection is left behind.
func TestABlackHole(t *testing.T) {
	for _, accepts := range []bool{false, true} {
		t.Run(fmt.Sprintf("accepts %v", accepts), func(t *testing.T) {
			before := goroutines()
			client, err := Connect("redis://"+deafListener(t, accepts), ConnectOptions{})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(context.Background())
			f := NewFailover(NewRedis(client, RedisOptions{}), NewMemory(MemoryOptions{}), FailoverOptions{Retry: 20 * time.Millisecond})
			done := make(chan error, 1)
			go func() { done <- f.Run(ctx) }()
			v, stop := callThrough(t, f)
			eventually(t, "the breaker is open", func() bool { return f.State() == "open" })
			n := v.sum(&v.degraded)
			eventually(t, "the policies answer", func() bool { return v.sum(&v.degraded) > n+200 })
			if n := client.PoolStats().TotalConns; n > 2*mostAway {
				t.Errorf("%d connections", n)
			}
			stop()
			cancel()
			<-done
			if v.admitted.Load() != 0 {
				t.Errorf("a store that is not there admitted %d units", v.admitted.Load())
			}
			if err := client.Close(); err != nil {
				t.Error(err)
			}
			eventually(t, fmt.Sprintf("no more than the %d goroutines from before", before), func() bool { return goroutines() <= before })
		})
	}
}

// TestASentinelThatIsABlackHole: the first of four never answers, or cannot even be
// reached; the others are asked all the same, and calls are judged.
func TestASentinelThatIsABlackHole(t *testing.T) {
	t.Parallel()
	s := testenv.OwnRedisSentinels(t)
	for _, accepts := range []bool{false, true} {
		addrs := append([]string{deafListener(t, accepts)}, s.Addrs()...)
		client := connect(t, clusterURL(addrs)+"&master_name="+testenv.SentinelMaster, ConnectOptions{Mode: Sentinel, Timeout: hurried})
		f, _ := running(t, NewRedis(client, RedisOptions{Timeout: hurried}), FailoverOptions{Budget: hurried, Retry: 100 * time.Millisecond})
		v, stop := callThrough(t, f)
		wellAgain := func() {
			eventually(t, "the breaker is closed", func() bool { return f.State() == "closed" })
			admitted := v.admitted.Load()
			eventually(t, "the store answers", func() bool { return v.admitted.Load() > admitted+300 })
		}
		wellAgain()
		if accepts { // when the connections break, and all sentinels are silent until one is not
			for _, sentinel := range s.Sentinels {
				sentinel.Freeze()
			}
			master := connect(t, s.Master.URL(), ConnectOptions{Timeout: patience})
			if err := master.Do(t.Context(), "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes").Err(); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the breaker is open", func() bool { return f.State() == "open" })
			s.Sentinels[2].Resume()
			wellAgain()
		}
		if n := client.PoolStats().TotalConns; n > 2*mostAway {
			t.Errorf("%d connections", n)
		}
		stop()
		if sum := charged(t, NewRedis(connect(t, s.Master.URL(), ConnectOptions{Timeout: patience}), RedisOptions{}), 50, endless); sum < v.admitted.Load() {
			t.Errorf("%d units charged, %d admitted", sum, v.admitted.Load())
		}
	}
}
