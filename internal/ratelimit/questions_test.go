package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/testenv"
	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"
)

// questions are a list of the calls, each with the policy.
func questions(policy quotad.FailurePolicy, calls ...Call) (list []*Question) {
	for _, c := range calls {
		list = append(list, &Question{Call: c, Status: make([]Status, len(c.Charges)), Policy: policy})
	}
	return list
}

// oneByOne is what the list would come to as single calls.
func oneByOne(s Store, list []*Question) (answers []*Question) {
	for _, q := range list {
		alone := questions("", q.Call)
		takeEach(context.Background(), s, alone)
		answers = append(answers, alone[0])
	}
	return answers
}

func (q *Question) String() string {
	return fmt.Sprintf("shard %d cost %d of %d: %+v %v %+v", q.Call.Shard, q.Call.Cost, len(q.Call.Charges), q.Outcome, q.Err, q.Status)
}

// TestAListIsWhatItsCallsAreOneByOne: random lists of calls of several tenants, many of
// them alike, some that can never fit, some too long for one batch.
func TestAListIsWhatItsCallsAreOneByOne(t *testing.T) {
	client, prefix := dial(t)
	runs := 0
	rapid.Check(t, func(t *rapid.T) {
		runs++
		clock := newClock(epoch + rapid.Int64Range(0, 200_000).Draw(t, "start"))
		alone := NewMemory(MemoryOptions{Now: clock.Now})
		stores := map[string]Store{
			"memory": NewMemory(MemoryOptions{Now: clock.Now}),
			"redis":  NewRedis(client, RedisOptions{Prefix: fmt.Sprintf("%s%d:", prefix, runs), Now: clock.Now, Timeout: patience}),
		}
		limits := make([]Limit, rapid.IntRange(1, 4).Draw(t, "limits"))
		for i := range limits {
			limits[i] = drawLimit(t)
		}
		for range rapid.IntRange(1, 3).Draw(t, "lists") {
			clock.ms.Add(rapid.Int64Range(0, 5_000).Draw(t, "tick"))
			var calls []Call
			for range rapid.IntRange(0, 60).Draw(t, "calls") {
				c := Call{Shard: Shard(rapid.IntRange(0, 2).Draw(t, "shard")), Cost: rapid.Int64Range(0, 3).Draw(t, "cost")}
				if n := len(calls); n > 0 && rapid.Bool().Draw(t, "alike") {
					c = calls[rapid.IntRange(0, n-1).Draw(t, "as")]
				} else {
					for k, l := range limits {
						if rapid.IntRange(0, 3).Draw(t, "left out") == 0 {
							continue
						}
						c.Charges = append(c.Charges, Charge{
							Counter: CounterOf(fmt.Sprint(c.Shard, k)), Limit: l, Shadow: rapid.IntRange(0, 4).Draw(t, "shadow") == 0,
						})
					}
					drawCosts(t, &c)
				}
				calls = append(calls, c)
			}
			want := oneByOne(alone, questions("", calls...))
			for name, s := range stores {
				list := questions("", calls...)
				s.TakeAll(context.Background(), list)
				for i := range list {
					if got := list[i].String(); got != want[i].String() && len(calls[i].Charges) > 0 {
						t.Fatalf("%s, call %d of %d:\n%s, want\n%s", name, i, len(list), got, want[i])
					}
					if !list[i].Outcome.Allowed && list[i].Err == nil && len(calls[i].Charges) == 0 {
						t.Fatalf("%s: a call without a limit was refused", name)
					}
				}
			}
		}
	})
}

// TestLongListsKeepTheirOrder: each counter has room for half of what is asked of it, and
// the first half is admitted, though the list is sent in many parts beside others.
func TestLongListsKeepTheirOrder(t *testing.T) {
	t.Parallel()
	client, prefix := dial(t)
	store := NewRedis(client, RedisOptions{Prefix: prefix, Timeout: patience})
	inParallel(8, func(w int) bool {
		for round := range 5 {
			var calls []Call
			for i := range 1000 {
				counter := CounterOf(fmt.Sprint(w, round, i%250))
				calls = append(calls, Call{Shard: Shard(w), Cost: 1, Charges: []Charge{{Counter: counter, Limit: limit(everyAlgorithm[i%5], 2, long)}}})
			}
			list := questions("", calls...)
			store.TakeAll(context.Background(), list)
			for i, q := range list {
				if q.Err != nil || q.Outcome.Allowed != (i < 500) {
					t.Errorf("call %d: %v", i, q)
					return false
				}
			}
		}
		return true
	})
}

// TestParallelListsAdmitExactlyTheLimit: two hundred lists at once over several nodes,
// among single calls to the same counters.
func TestParallelListsAdmitExactlyTheLimit(t *testing.T) {
	for _, place := range []string{"memory", "redis"} {
		t.Run(place, func(t *testing.T) {
			t.Parallel()
			var nodes []Store
			if place == "memory" {
				nodes = []Store{NewMemory(MemoryOptions{})}
			} else {
				_, prefix := dial(t)
				for range 3 {
					client, _ := dial(t)
					nodes = append(nodes, NewRedis(client, RedisOptions{Prefix: prefix, Timeout: patience}))
				}
			}
			const tenants, units = 4, 300
			ask := func(tenant, i int) Call {
				l := limit(everyAlgorithm[tenant], units, long)
				c := Call{Shard: Shard(tenant), Cost: int64(1 + i%3), Charges: []Charge{{Counter: CounterOf("tenant", fmt.Sprint(tenant)), Limit: l}}}
				if i%2 == 0 {
					c.Charges = append(c.Charges, Charge{Counter: CounterOf("key", fmt.Sprint(tenant, i%5)), Limit: endless})
				}
				return c
			}
			var admitted [tenants]atomic.Int64
			inParallel(250, func(w int) bool {
				r, store := rand.New(rand.NewPCG(uint64(w), 5)), nodes[w%len(nodes)]
				if w < 50 {
					tenant := w % tenants
					c := ask(tenant, w)
					if ok, _ := take(t, store, c); ok {
						admitted[tenant].Add(c.Cost)
					}
					return true
				}
				var calls []Call
				for range 30 {
					calls = append(calls, ask(r.IntN(tenants), r.IntN(100)))
				}
				list := questions("", calls...)
				store.TakeAll(context.Background(), list)
				for _, q := range list {
					if q.Err != nil {
						t.Errorf("%v", q)
					}
					if q.Outcome.Allowed {
						admitted[q.Call.Shard].Add(q.Call.Cost)
					}
				}
				return true
			})
			for tenant := range tenants {
				if n := admitted[tenant].Load(); n != units {
					t.Errorf("%s: %d units of %d", everyAlgorithm[tenant], n, units)
				}
				left := ask(tenant, 1)
				left.Cost = 0
				if _, status := take(t, nodes[0], left); status[0].Remaining != 0 {
					t.Errorf("%s: %d left", everyAlgorithm[tenant], status[0].Remaining)
				}
			}
		})
	}
}

// TestAListSharesABatch: it waits with the calls of others, as one, and is given back
// whole; what a batch does not take goes when that is back and not before; one whose
// caller leaves does not go.
func TestAListSharesABatch(t *testing.T) {
	g, l := newGate(1)
	askAll := func(ctx context.Context, calls ...Call) chan error {
		answer := make(chan error, len(calls))
		go l.takeAll(ctx, questions("", calls...), func(_ *batch, _ int, list []*Question, err error) {
			for range list {
				answer <- err
			}
		})
		return answer
	}
	wide := func(cost int64, charges int) (c Call) { // its charges are nobody else's
		for k := range charges {
			c.Charges = append(c.Charges, Charge{Counter: CounterOf(fmt.Sprint(cost, k)), Limit: endless})
		}
		c.Cost = cost
		return c
	}
	first := ask(l, t.Context(), 1)
	<-g.arrived
	second := ask(l, t.Context(), 2)
	eventually(t, "the call waits", func() bool { return l.waiting() == 1 })
	joins := askAll(t.Context(), wide(10, 1), wide(11, 1))
	eventually(t, "the list waits", func() bool { return l.waiting() == 3 })
	leaving, leave := context.WithCancel(t.Context())
	gone := askAll(leaving, wide(20, 1), wide(21, 1))
	eventually(t, "the list waits", func() bool { return l.waiting() == 5 })
	// 128 charges do not fit beside the others, and three lots of them not in one batch.
	long := askAll(t.Context(), wide(30, maxBatch/2), wide(31, maxBatch/2), wide(32, maxBatch), wide(33, 1))
	eventually(t, "the list waits", func() bool { return l.waiting() == 7 })
	leave()
	for range 2 {
		if err := <-gone; !errors.Is(err, context.Canceled) {
			t.Errorf("the caller who left got %v", err)
		}
	}
	for range 4 {
		g.release <- nil
		<-g.arrived
	}
	g.release <- nil
	for _, answer := range []chan error{first, second, joins, joins, long, long, long, long} {
		if err := <-answer; err != nil {
			t.Error(err)
		}
	}
	if diff := cmp.Diff([][]int64{{1}, {2, 10, 11}, {30, 31}, {32}, {33}}, g.batches); diff != "" {
		t.Errorf("batches (-want +got):\n%s", diff)
	}
}

// TestFitting: neighbours that charge the same counters count once, whatever they cost; one call always fits.
func TestFitting(t *testing.T) {
	charging := func(name string, charges int, shard Shard, cost int64) Call {
		c := Call{Shard: shard, Cost: cost}
		for k := range charges {
			c.Charges = append(c.Charges, Charge{Counter: CounterOf(name, fmt.Sprint(k)), Limit: endless})
		}
		return c
	}
	wide, other := charging("a", maxBatch, 1, 1), charging("b", 1, 1, 1)
	for _, c := range []struct {
		name       string
		calls      []Call
		n, charges int
	}{
		{"two that are alike", []Call{wide, wide}, 2, maxBatch},
		{"but for their cost", []Call{wide, charging("a", maxBatch, 1, 5)}, 2, maxBatch},
		{"but for their shard", []Call{wide, charging("a", maxBatch, 2, 1)}, 1, maxBatch},
		{"one more charge than fits", []Call{wide, other}, 1, maxBatch},
		{"as many as fit", []Call{charging("a", maxBatch-1, 1, 1), other}, 2, maxBatch},
		{"more in one call than fits", []Call{charging("a", maxBatch+1, 1, 1), other}, 1, maxBatch + 1},
		{"very many that are alike", slices.Repeat([]Call{other}, maxCalls+1), maxCalls, 1},
		{"alike, and not neighbours", []Call{other, charging("c", 2, 1, 1), other}, 3, 4},
	} {
		if n, charges := fitting(questions("", c.calls...)); n != c.n || charges != c.charges {
			t.Errorf("%s: %d calls of %d charges, want %d of %d", c.name, n, charges, c.n, c.charges)
		}
	}
}

// TestAListOfARefusedCallerCostsNoRoundTrip, unless something before it in the list
// changes what its refusal is to say.
func TestAListOfARefusedCallerCostsNoRoundTrip(t *testing.T) {
	t.Parallel()
	client, prefix := dial(t)
	for try := 0; ; try++ {
		begun := time.Now()
		store := NewRedis(client, RedisOptions{Prefix: fmt.Sprint(prefix, try, ":"), Timeout: patience})
		wrong := aListOfARefusedCaller(t, store)
		if time.Since(begun) >= refusalHolds { // on a busy machine: it was right to ask again
			continue
		}
		for _, w := range wrong {
			t.Error(w)
		}
		return
	}
}

// aListOfARefusedCaller tells what is wrong, if all of it is done while a refusal is remembered.
func aListOfARefusedCaller(t *testing.T, store *Redis) (wrong []string) {
	asked := 0
	store.nodes = counting{store.nodes, &asked}
	three := func(name string) Call { return call(name, limit(quotad.FixedWindow, 10, long), 3) }
	one := func(name string) Call { c := three(name); c.Cost = 1; return c }
	hammer := func(want string, calls ...Call) {
		t.Helper()
		list := questions("", calls...)
		store.TakeAll(t.Context(), list)
		var got []string
		for _, q := range list {
			if q.Err != nil {
				t.Fatal(q.Err)
			}
			got = append(got, fmt.Sprint(q.Outcome.Allowed, " ", q.Status[0].Remaining))
		}
		if strings.Join(got, ", ") != want {
			wrong = append(wrong, fmt.Sprintf("got %s, want %s", strings.Join(got, ", "), want))
		}
	}
	hammer("true 7, true 4, true 1, false 1, false 1", three("a"), three("a"), three("a"), three("a"), three("a"))
	if asked != 1 {
		wrong = append(wrong, fmt.Sprintf("%d round trips for one list", asked))
	}
	hammer("false 1, false 1", three("a"), three("a"))
	hammer("false 1, false 1", three("a"), three("a"))
	if asked != 1 {
		wrong = append(wrong, fmt.Sprintf("%d round trips, the last of them for what was known", asked))
	}
	hammer("false 1, true 7, false 1", three("a"), three("b"), three("a")) // another's charge says nothing of it
	hammer("true 0, false 0", one("a"), three("a"))
	hammer("false 0, false 0", three("a"), one("a"))
	hammer("true 7, true 4, true 1, false 1, false 1, true 9", three("c"), three("c"), three("c"), three("c"), three("c"), one("d"))
	hammer("false 1", three("c"))
	if asked != 4 {
		wrong = append(wrong, fmt.Sprintf("%d round trips, want one for each list that could be admitted in part", asked))
	}
	return wrong
}

// counting counts the commands that are sent.
type counting struct {
	nodes
	asked *int
}

func (n counting) process(ctx context.Context, key string, make func() *redis.IntSliceCmd) *redis.IntSliceCmd {
	*n.asked++
	return n.nodes.process(ctx, key, make)
}

// TestListsWhileTheStoreIsAway: whatever the failure, each call of a list is answered by
// its own policy, within one budget for them all; then the store answers again.
func TestListsWhileTheStoreIsAway(t *testing.T) {
	for _, broken := range faults {
		if broken.break_ == nil {
			continue
		}
		t.Run(broken.name, func(t *testing.T) {
			t.Parallel()
			r := newOwnRedis(t, broken.args...)
			f, _ := running(t, r.store, FailoverOptions{Budget: hurried, Retry: 50 * time.Millisecond})
			l := limit(quotad.SlidingWindowCounter, 3, long)
			impossible := call("impossible", l, 4)
			mixed := func(name string) (list []*Question) {
				for i := range 60 {
					policy := quotad.FailurePolicies[i%3]
					list = append(list, questions(policy, call(name+string(policy), l, 1))...)
				}
				return append(list, questions(quotad.FailClosed, impossible)...)
			}
			admitted := func(list []*Question) map[quotad.FailurePolicy]int {
				t.Helper()
				n := map[quotad.FailurePolicy]int{}
				for _, q := range list {
					switch {
					case q.Call.Cost == impossible.Cost:
						if !errors.Is(q.Err, quotad.ErrCostExceedsLimit) {
							t.Errorf("a cost that can never fit: %v", q)
						}
					case q.Outcome.Degraded != "" && q.Outcome.Degraded != q.Policy, q.Err != nil && q.Policy != quotad.FailClosed,
						q.Err != nil && !errors.Is(q.Err, quotad.ErrLimiterUnavailable):
						t.Errorf("%s: %v", q.Policy, q)
					case q.Outcome.Allowed:
						n[q.Policy]++
					}
				}
				return n
			}
			tries := 0
			eventually(t, "the store answers", func() bool { // late at first, perhaps, on a busy machine
				tries++
				before := mixed(fmt.Sprint("before ", tries))
				f.TakeAllOr(t.Context(), before)
				return cmp.Equal(map[quotad.FailurePolicy]int{"open": 3, "closed": 3, "local": 3}, admitted(before))
			})
			broken.break_(t, r)
			for list := range 2 * tripInARow { // with the breaker closed, and open
				away := mixed(fmt.Sprint("list ", list))
				begun := time.Now()
				f.TakeAllOr(t.Context(), away)
				if took := time.Since(begun); took > hurried*time.Duration(len(away))/2 { // as one call after the other would
					t.Errorf("a list took %v", took)
				}
				if f.State() == "closed" && broken.name == "frozen" && list >= tripInARow {
					t.Errorf("the breaker is closed after %d lists", list)
				}
				if diff := cmp.Diff(map[quotad.FailurePolicy]int{"open": 20, "local": 3}, admitted(away)); diff != "" {
					t.Errorf("list %d (-want +got):\n%s", list, diff)
				}
			}
			if f.State() == "closed" {
				t.Error("the breaker is closed")
			}
			broken.mend(t, r)
			eventually(t, "the store answers again", func() bool {
				after := questions(quotad.FailClosed, call("after", endless, 1), call("after", endless, 1))
				f.TakeAllOr(t.Context(), after)
				return after[0].Err == nil && after[1].Err == nil && after[1].Outcome.Allowed && after[1].Outcome.Degraded == ""
			})
		})
	}
}

// TestAListIsOneFailure: a hundred calls of one that fails do not open the breaker.
func TestAListIsOneFailure(t *testing.T) {
	f := NewFailover(failing{}, NewMemory(MemoryOptions{}), FailoverOptions{Retry: time.Hour})
	for n := range tripInARow {
		if f.State() != "closed" {
			t.Errorf("%s after %d lists", f.State(), n)
		}
		list := questions(quotad.FailOpen, slices.Repeat([]Call{call("api", endless, 1)}, 100)...)
		f.TakeAllOr(t.Context(), list)
		for _, q := range list {
			if q.Err != nil || !q.Outcome.Allowed || q.Outcome.Degraded != quotad.FailOpen {
				t.Fatalf("%v", q)
			}
		}
	}
	if f.State() != "open" {
		t.Errorf("%s after %d lists that failed", f.State(), tripInARow)
	}
}

// TestACallerWhoHangsUpOnAList: it is charged whole all the same.
func TestACallerWhoHangsUpOnAList(t *testing.T) {
	t.Parallel()
	client, prefix := dial(t)
	f, local := running(t, NewRedis(client, RedisOptions{Prefix: prefix, Timeout: patience}), FailoverOptions{Budget: patience})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	list := questions(quotad.FailOpen, slices.Repeat([]Call{call("api", endless, 1)}, 100)...)
	f.TakeAllOr(ctx, list)
	if _, status := take(t, f.store, call("api", endless, 0)); status[0].Remaining != endless.Units-100 || local.Len() != 0 || f.State() != "closed" {
		t.Errorf("%+v, %d local counters, breaker %s", status, local.Len(), f.State())
	}
}

// TestListsOverAClusterThatLosesAMaster: a list spans the hash tags of all masters. The
// calls of the one that is away are answered by the policy, all others by the store.
func TestListsOverAClusterThatLosesAMaster(t *testing.T) {
	t.Parallel()
	cluster := testenv.OwnRedisCluster(t)
	client := connect(t, clusterURL(cluster.Addrs()), ConnectOptions{Mode: Cluster, Timeout: patience})
	f, _ := running(t, NewRedis(client, RedisOptions{Timeout: patience}), FailoverOptions{Budget: patience, Retry: 100 * time.Millisecond})
	lost, theirs := cluster.Addrs()[0], map[int]bool{}
	for k := range 60 {
		master, err := client.(*redis.ClusterClient).MasterForKey(t.Context(), key("q:", loadCall(k, endless, 1).Shard, Counter{}))
		if err != nil {
			t.Fatal(err)
		}
		theirs[k] = master.Options().Addr == lost
	}
	var asked, admitted [60]int64
	// askAll asks twice of each, and reports whether the store answered all.
	askAll := func() (all bool) {
		var calls []Call
		for k := range 120 {
			calls = append(calls, loadCall(k%60, endless, 1))
			asked[k%60]++
		}
		list := questions(quotad.FailOpen, calls...)
		f.TakeAllOr(t.Context(), list)
		all = true
		for k, q := range list {
			switch {
			case q.Err != nil || !q.Outcome.Allowed:
				t.Fatalf("key %d: %v", k%60, q)
			case q.Outcome.Degraded == "":
				admitted[k%60]++
			case !theirs[k%60]:
				t.Fatalf("key %d of another master: %v", k%60, q)
			default:
				all = false
			}
		}
		return all
	}
	if !askAll() {
		t.Fatal("the policy answered before")
	}
	cluster.Nodes[3].Freeze() // the replica is not to take over before the calls have met a master that is away
	cluster.Nodes[0].Stop()
	if askAll() {
		t.Fatal("a store that is away answered")
	}
	cluster.Nodes[3].Resume()
	eventually(t, "the lost counters are judged again", askAll)
	for k := range 60 {
		_, status := take(t, NewRedis(client, RedisOptions{Timeout: patience}), loadCall(k, endless, 0))
		used := endless.Units - status[0].Remaining
		if used > asked[k] || !theirs[k] && used != admitted[k] { // the lost master may have forgotten some of its own
			t.Errorf("key %d: %d charged, %d asked, %d admitted", k, used, asked[k], admitted[k])
		}
	}
}
