package ratelimit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/testenv"
	"github.com/redis/go-redis/v9"
)

// ownRedis is a Redis of one test's own, for breaking.
type ownRedis struct {
	server *testenv.Server
	client redis.UniversalClient // for the test's own commands
	store  *Redis                // gives up after hurried
}

// hurried is how long the calls of a test that breaks Redis wait for it: short, as all of them do, and yet enough on a
// busy machine.
const hurried = 2 * time.Second

func newOwnRedis(t testing.TB, args ...string) *ownRedis {
	t.Helper()
	s := testenv.OwnRedis(t, args...)
	store := NewRedis(connect(t, s.URL(), ConnectOptions{Timeout: 2 * hurried}), RedisOptions{Timeout: hurried})
	return &ownRedis{server: s, client: connect(t, s.URL(), ConnectOptions{Timeout: patience}), store: store}
}

// running returns a failover over the store, with its prober at work.
func running(t testing.TB, store Store, o FailoverOptions) (*Failover, *Memory) {
	t.Helper()
	local := NewMemory(MemoryOptions{})
	f := NewFailover(store, local, o)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("prober: %v", err)
		}
	})
	return f, local
}

// eventually waits until the condition holds.
func eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !condition(); {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// fault breaks a Redis in one way, and mends it.
type fault struct {
	name, kind   string
	args         []string
	break_, mend func(t *testing.T, r *ownRedis)
}

func do(args ...any) func(*testing.T, *ownRedis) {
	return func(t *testing.T, r *ownRedis) {
		t.Helper()
		if err := r.client.Do(context.Background(), args...).Err(); err != nil {
			t.Fatalf("%v: %v", args, err)
		}
	}
}

var faults = []fault{
	{name: "killed", kind: "refused",
		break_: func(t *testing.T, r *ownRedis) { r.server.Stop() },
		mend:   func(t *testing.T, r *ownRedis) { r.server.Start() }},
	{name: "frozen", kind: "timeout",
		break_: func(t *testing.T, r *ownRedis) { r.server.Freeze() },
		mend:   func(t *testing.T, r *ownRedis) { r.server.Resume() }},
	{name: "read only", kind: "readonly",
		break_: do("REPLICAOF", "127.0.0.1", "1"),
		mend:   do("REPLICAOF", "NO", "ONE")},
	{name: "out of memory", kind: "oom",
		break_: do("CONFIG", "SET", "maxmemory", "1"),
		mend:   do("CONFIG", "SET", "maxmemory", "0")},
	{name: "too few replicas", kind: "noreplicas",
		break_: do("CONFIG", "SET", "min-replicas-to-write", "3"),
		mend:   do("CONFIG", "SET", "min-replicas-to-write", "0")},
	{name: "no right to the keys", kind: "noauth",
		break_: do("ACL", "SETUSER", "default", "resetkeys", "~other:*"),
		mend:   do("ACL", "SETUSER", "default", "allkeys")},
	{name: "no right to scripts", kind: "noauth",
		break_: do("ACL", "SETUSER", "default", "-eval", "-evalsha"),
		mend:   do("ACL", "SETUSER", "default", "+@all")},
	{name: "cluster down", kind: "clusterdown", args: []string{"--cluster-enabled", "yes"}},
	{name: "busy", kind: "busy", args: []string{"--lua-time-limit", "5"},
		break_: func(t *testing.T, r *ownRedis) {
			other, err := Connect(r.server.URL(), ConnectOptions{Timeout: 2 * patience})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = other.Close() })
			go other.Eval(context.Background(), "while true do end", nil)
			eventually(t, "busy", func() bool {
				return redis.HasErrorPrefix(r.client.Ping(context.Background()).Err(), "BUSY")
			})
		},
		mend: do("SCRIPT", "KILL")},
}

// TestEveryFaultIsAnsweredByThePolicy: whatever the failure, open admits, closed
// refuses, local holds the limit; once it is over, the store answers again.
func TestEveryFaultIsAnsweredByThePolicy(t *testing.T) {
	for _, broken := range faults {
		t.Run(broken.name, func(t *testing.T) {
			t.Parallel()
			r := newOwnRedis(t, broken.args...)
			registry := prometheus.NewRegistry()
			f, _ := running(t, r.store, FailoverOptions{Budget: hurried, Retry: 50 * time.Millisecond, Registerer: registry})
			l := limit(quotad.SlidingWindowCounter, 3, long)
			status := make([]Status, 1)
			works := func() {
				eventually(t, "the store answers", func() bool {
					out, err := f.TakeOr(t.Context(), call("works", limit(quotad.FixedWindow, 1_000_000, time.Hour), 1), status, quotad.FailClosed)
					return err == nil && out.Allowed && out.Degraded == ""
				})
			}
			if broken.break_ != nil {
				works() // on a machine that starts nine servers at once the first call may be late
				broken.break_(t, r)
			}
			for _, policy := range quotad.FailurePolicies {
				admitted := inParallel(100, func(int) bool {
					status := make([]Status, 1)
					out, err := f.TakeOr(t.Context(), call("fault/"+string(policy), l, 1), status, policy)
					switch {
					case policy == quotad.FailClosed && !errors.Is(err, quotad.ErrLimiterUnavailable):
						t.Errorf("closed: %+v %v", out, err)
					case policy != quotad.FailClosed && (err != nil || out.Degraded != policy):
						t.Errorf("%s: %+v %v", policy, out, err)
					}
					return out.Allowed
				})
				want := map[quotad.FailurePolicy]int64{quotad.FailOpen: 100, quotad.FailClosed: 0, quotad.FailLocal: 3}[policy]
				if admitted != want {
					t.Errorf("%s admitted %d of 100, want %d", policy, admitted, want)
				}
			}
			if f.State() == "closed" {
				t.Errorf("the breaker is closed")
			}
			eventually(t, "a failure of kind "+broken.kind+" is counted", func() bool { // all may have been late till now, and the probes go on
				return counted(t, registry, "quotad_store_failures_total", "kind", broken.kind) > 0
			})
			if broken.mend == nil {
				return
			}
			broken.mend(t, r)
			works()
		})
	}
}

// TestARefusalIsNoFailure: the generous local store is never asked.
func TestARefusalIsNoFailure(t *testing.T) {
	t.Parallel()
	client, prefix := dial(t)
	f, local := running(t, NewRedis(client, RedisOptions{Prefix: prefix, Timeout: patience}), FailoverOptions{Budget: patience})
	status := make([]Status, 1)
	l := limit(quotad.FixedWindow, 2, long)
	for i := range 50 {
		out, err := f.TakeOr(t.Context(), call("api", l, 1), status, quotad.FailLocal)
		if err != nil || out.Allowed != (i < 2) || out.Degraded != "" {
			t.Fatalf("call %d: %+v %v", i, out, err)
		}
		if _, err := f.TakeOr(t.Context(), call("api", l, 3), status, quotad.FailOpen); !errors.Is(err, quotad.ErrCostExceedsLimit) {
			t.Fatalf("a cost that can never fit: %v", err)
		}
	}
	if f.State() != "closed" || local.Len() != 0 {
		t.Errorf("breaker %s, %d local counters", f.State(), local.Len())
	}
}

// TestACallerWhoHangsUpIsNoFailure: a cancelled call is charged and judged all the
// same, and the breaker does not hear of it.
func TestACallerWhoHangsUpIsNoFailure(t *testing.T) {
	t.Parallel()
	client, prefix := dial(t)
	f, local := running(t, NewRedis(client, RedisOptions{Prefix: prefix, Timeout: patience}), FailoverOptions{Budget: patience})
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	l := limit(quotad.FixedWindow, 2000, long)
	admitted := inParallel(1000, func(int) bool {
		status := make([]Status, 1)
		out, err := f.TakeOr(ctx, call("api", l, 1), status, quotad.FailOpen)
		return err == nil && out.Allowed && out.Degraded == ""
	})
	if admitted != 1000 || f.State() != "closed" || local.Len() != 0 {
		t.Errorf("admitted %d, breaker %s, %d local counters", admitted, f.State(), local.Len())
	}
	status := make([]Status, 1)
	if _, err := f.TakeOr(context.Background(), call("api", l, 0), status, quotad.FailOpen); err != nil || status[0].Remaining != 1000 {
		t.Errorf("%+v %v", status, err)
	}
}

// TestALimitOfZeroHoldsWhileOpen: no policy admits what no counter could.
func TestALimitOfZeroHoldsWhileOpen(t *testing.T) {
	t.Parallel()
	f, _ := running(t, failing{}, FailoverOptions{})
	status := make([]Status, 1)
	for _, policy := range []quotad.FailurePolicy{quotad.FailOpen, quotad.FailLocal} {
		for _, a := range everyAlgorithm {
			if out, err := f.TakeOr(t.Context(), call("none", limit(a, 0, time.Minute), 1), status, policy); err != nil || out.Allowed {
				t.Errorf("%s %s: %+v %v", policy, a, out, err)
			}
		}
	}
}

// TestACostThatCanNeverFitIsToldWhileOpen: whoever is told to come back in a second
// comes back for good.
func TestACostThatCanNeverFitIsToldWhileOpen(t *testing.T) {
	t.Parallel()
	f, _ := running(t, failing{}, FailoverOptions{Retry: time.Hour})
	status := make([]Status, 1)
	ten := limit(quotad.FixedWindow, 10, time.Minute)
	for i := range 2 * tripInARow { // with the breaker closed, and open
		for _, policy := range []quotad.FailurePolicy{quotad.FailOpen, quotad.FailLocal, quotad.FailClosed} {
			if _, err := f.TakeOr(t.Context(), call("ten", ten, 11), status, policy); !errors.Is(err, quotad.ErrCostExceedsLimit) {
				t.Errorf("call %d, %s, breaker %s: %v", i, policy, f.State(), err)
			}
		}
		if _, err := f.TakeOr(t.Context(), call("ten", ten, 1), status, quotad.FailClosed); !errors.Is(err, quotad.ErrLimiterUnavailable) {
			t.Errorf("call %d, a cost that fits: %v", i, err)
		}
	}
}

// TestALoneCallerOpensTheBreaker: whatever the budget, one caller after another waits
// for a store that hangs a few times only.
func TestALoneCallerOpensTheBreaker(t *testing.T) {
	for _, budget := range []time.Duration{time.Millisecond, 100 * time.Millisecond, time.Second, 5 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			f := NewFailover(hanging{}, NewMemory(MemoryOptions{}), FailoverOptions{Budget: budget, Retry: time.Hour})
			began := time.Now()
			for range 3 * tripInARow {
				_, err := f.TakeOr(t.Context(), call("api", endless, 1), make([]Status, 1), quotad.FailClosed)
				if !errors.Is(err, quotad.ErrLimiterUnavailable) {
					t.Errorf("got %v", err)
				}
			}
			if waited := time.Since(began); f.State() != "open" || waited != tripInARow*budget {
				t.Errorf("with a budget of %v the breaker is %s, and the callers waited for %v", budget, f.State(), waited)
			}
		})
	}
}

// hanging is a store that never answers.
type hanging struct{}

func (hanging) Take(ctx context.Context, _ Call, _ []Status) (Outcome, error) {
	<-ctx.Done()
	return Outcome{}, ctx.Err()
}

func (h hanging) TakeAll(ctx context.Context, list []*Question) { takeEach(ctx, h, list) }

// failing is a store that always fails.
type failing struct{}

func (failing) Take(context.Context, Call, []Status) (Outcome, error) {
	return Outcome{}, errors.New("no such store")
}

func (f failing) TakeAll(ctx context.Context, list []*Question) { takeEach(ctx, f, list) }

// TestFailuresAreLoggedOncePerInterval and never with what is being judged.
func TestFailuresAreLoggedOncePerInterval(t *testing.T) {
	var out lockedBuffer
	clock := newClock(epoch)
	f, _ := running(t, failing{}, FailoverOptions{
		Logger: slog.New(slog.NewJSONHandler(&out, nil)), Now: clock.Now, Retry: time.Hour,
	})
	status := make([]Status, 1)
	for range 100 {
		_, _ = f.TakeOr(t.Context(), call("api", limit(quotad.FixedWindow, 1, time.Minute), 1), status, quotad.FailOpen)
	}
	if n := strings.Count(out.String(), `"counter store failed"`); n != 1 {
		t.Errorf("%d lines for 100 failing calls:\n%s", n, out.String())
	}
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// TestWhatIsSaidLastOfTheStoreIsSo: while one breaker's closing is being logged, another
// opens. That is said after it.
func TestWhatIsSaidLastOfTheStoreIsSo(t *testing.T) {
	var f *Failover
	use := func(part int, err error) error {
		_, failed := f.breakers[part].Execute(func() (Outcome, error) { return Outcome{}, err })
		return failed
	}
	open := func(part int) {
		for range tripInARow {
			_ = use(part, errors.New("broken"))
		}
	}
	var other sync.WaitGroup
	var last atomic.Value
	f = NewFailover(inParts{}, NewMemory(MemoryOptions{}), FailoverOptions{Retry: time.Millisecond, Logger: slog.New(lines(func(line string) {
		if line == "counter store is back" {
			other.Go(func() { open(1) })
			time.Sleep(20 * time.Millisecond) // enough to show the fault; too little shows nothing wrong
		}
		last.Store(line)
	}))})
	open(0)
	eventually(t, "the first closes", func() bool { return use(0, nil) == nil })
	other.Wait()
	if f.State() != "partly open" || last.Load() != "counter store is away" {
		t.Errorf("it is %s, and what was said last is %q", f.State(), last.Load())
	}
}

// inParts is a store of two parts.
type inParts struct{ failing }

func (inParts) parts() int { return 2 }

// lines is a slog.Handler that sees messages only.
type lines func(line string)

func (l lines) Enabled(context.Context, slog.Level) bool { return true }
func (l lines) Handle(_ context.Context, r slog.Record) error {
	l(r.Message)
	return nil
}
func (l lines) WithAttrs([]slog.Attr) slog.Handler { return l }
func (l lines) WithGroup(string) slog.Handler      { return l }

// TestFailureKinds names the errors that no test here can make a server give.
func TestFailureKinds(t *testing.T) {
	for text, want := range map[string]string{
		"LOADING Redis is loading the dataset in memory":                        "loading",
		"MISCONF Redis is configured to save RDB snapshots, but it's currently": "misconf",
		"NOAUTH Authentication required.":                                       "noauth",
		"WRONGTYPE Operation against a key holding the wrong kind of value":     "wrongtype",
		"ERR user_script:1: attempt to perform arithmetic on a nil value":       "script",
	} {
		if got := failureKind(fmt.Errorf("take over redis: %w", replyError(text))); got != want {
			t.Errorf("%q is %s, want %s", text, got, want)
		}
	}
}

type replyError string

func (e replyError) Error() string { return string(e) }
func (replyError) RedisError()     {}

// TestConnectKeepsSecrets: an URL that cannot be read is not printed.
func TestConnectKeepsSecrets(t *testing.T) {
	for _, address := range []string{"redis://:hunter2@%zz:6379", "http://:hunter2@localhost", "redis://:hunter2@localhost:6379/x"} {
		if _, err := Connect(address, ConnectOptions{}); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%v", err)
		}
	}
}

func counted(t *testing.T, g prometheus.Gatherer, name, label, value string) float64 {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if f.GetName() == name && l.GetName() == label && l.GetValue() == value {
					return m.GetCounter().GetValue()
				}
			}
		}
	}
	return 0
}

// A store that is away from the start is known to be before a call meets it.
func TestAStoreThatIsAwayFromTheStart(t *testing.T) {
	t.Parallel()
	for _, break_ := range []func(*testenv.Server){(*testenv.Server).Stop, (*testenv.Server).Freeze} {
		r := newOwnRedis(t)
		break_(r.server)
		f, _ := running(t, r.store, FailoverOptions{})
		eventually(t, "the breaker opens without a call", func() bool { return f.State() == "open" })
	}
}
