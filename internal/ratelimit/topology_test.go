package ratelimit

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/testenv"
	"github.com/redis/go-redis/v9"
)

// clusterURL is the URL of a cluster as Connect reads it.
func clusterURL(addrs []string) string {
	return "redis://" + addrs[0] + "?addr=" + strings.Join(addrs[1:], "&addr=")
}

func connect(t testing.TB, address string, o ConnectOptions) redis.UniversalClient {
	t.Helper()
	client, err := Connect(address, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// load asks for calls at about a rate until stop is called, and counts what came back.
type load struct {
	admitted, refused, failed atomic.Int64
	errors                    sync.Map // text of an error → true
	stop                      func()
}

// startLoad spreads calls over keys, each with a limit that is never reached, so
// that what Redis holds in the end is to be what was admitted.
func startLoad(store Store, keys int, l Limit) *load {
	ctx, cancel := context.WithCancel(context.Background())
	out := &load{}
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			r := rand.New(rand.NewPCG(uint64(w), 1))
			for ctx.Err() == nil {
				status := make([]Status, 1)
				callCtx, done := context.WithTimeout(context.Background(), patience)
				answer, err := store.Take(callCtx, loadCall(r.IntN(keys), l, 1), status)
				done()
				switch {
				case err != nil:
					out.failed.Add(1)
					out.errors.Store(err.Error(), true)
				case answer.Allowed:
					out.admitted.Add(1)
				default:
					out.refused.Add(1)
				}
				time.Sleep(time.Duration(r.IntN(20)) * time.Millisecond) // a rate, not a wait
			}
		}()
	}
	out.stop = func() { cancel(); wg.Wait() }
	return out
}

func (l *load) errorTexts() (texts []string) {
	l.errors.Range(func(k, _ any) bool { texts = append(texts, k.(string)); return true })
	return texts
}

func loadCall(k int, l Limit, cost int64) Call {
	return Call{Shard: ShardOf(fmt.Sprint("tenant", k)), Cost: cost, Charges: []Charge{{Counter: CounterOf("load", fmt.Sprint(k)), Limit: l}}}
}

// charged is what the store says was charged to all keys of a load.
func charged(t *testing.T, store Store, keys int, l Limit) (sum int64) {
	t.Helper()
	for k := range keys {
		_, status := take(t, store, loadCall(k, l, 0))
		sum += l.Units - status[0].Remaining
	}
	return sum
}

// endless is a limit that is never reached, in a window that does not end while a test runs.
var endless = limit(quotad.FixedWindow, 1_000_000_000, long)

// TestClusterIsExact: key, group and tenant limits of a thousand tenants over all
// masters, five admitted of each, through two nodes at once.
func TestClusterIsExact(t *testing.T) {
	t.Parallel()
	cluster := testenv.OwnRedisCluster(t)
	var stores []Store
	for range 2 {
		stores = append(stores, NewRedis(connect(t, clusterURL(cluster.Addrs()), ConnectOptions{Mode: Cluster, Timeout: patience}), RedisOptions{Timeout: patience}))
	}
	const tenants = 1000
	var admitted [tenants]atomic.Int64
	inParallel(40, func(w int) bool {
		for i := range tenants {
			if (i+w)%5 == 0 {
				continue // 8 in 10 of the callers call each tenant: 32 calls
			}
			a := everyAlgorithm[i%len(everyAlgorithm)]
			c := Call{Shard: ShardOf(fmt.Sprint(i)), Cost: 1}
			for _, scope := range []string{"key", "group", "tenant"} {
				c.Charges = append(c.Charges, Charge{Counter: CounterOf(scope, fmt.Sprint(i)), Limit: limit(a, 5, long)})
			}
			status := make([]Status, 3)
			out, err := stores[w%2].Take(context.Background(), c, status)
			if err != nil {
				t.Errorf("tenant %d: %v", i, err)
				return false
			}
			if out.Allowed {
				admitted[i].Add(1)
			}
		}
		return true
	})
	for i := range admitted {
		if n := admitted[i].Load(); n != 5 {
			t.Errorf("tenant %d: %d admitted, want 5", i, n)
		}
	}
	for i, n := range cluster.Nodes[:3] {
		own := connect(t, n.URL(), ConnectOptions{Timeout: patience})
		if size := own.DBSize(t.Context()).Val(); size < tenants*3/3/3 {
			t.Errorf("master %d holds only %d of %d counters", i, size, tenants*3)
		}
	}
}

// TestClusterThatChanges: scripts are flushed, slots move, a replica takes over by
// plan; no call fails but those that met the take-over, and each is counted once.
func TestClusterThatChanges(t *testing.T) {
	t.Parallel()
	cluster := testenv.OwnRedisCluster(t)
	store := NewRedis(connect(t, clusterURL(cluster.Addrs()), ConnectOptions{Mode: Cluster, Timeout: patience}), RedisOptions{Timeout: patience})
	const keys = 50
	l := startLoad(store, keys, endless)
	ctx := t.Context()
	nodes := make([]redis.UniversalClient, 6)
	for i, n := range cluster.Nodes {
		nodes[i] = connect(t, n.URL(), ConnectOptions{Timeout: patience})
	}
	for range 3 {
		for _, n := range nodes {
			if err := n.ScriptFlush(ctx).Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	moveTags(t, nodes[0], nodes[1])
	if n := l.failed.Load(); n != 0 {
		t.Errorf("%d calls failed though every one could be judged: %q", n, l.errorTexts())
	}
	if err := nodes[5].ClusterFailover(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the replica is master", func() bool {
		return strings.Contains(nodes[5].Info(ctx, "replication").Val(), "role:master")
	})
	eventually(t, "calls go on, and none fails", func() bool {
		failed, admitted := l.failed.Load(), l.admitted.Load()
		eventually(t, "calls go on", func() bool { return l.admitted.Load() > admitted+200 })
		return l.failed.Load() == failed
	})
	l.stop()
	// A call that met the take-over may have been charged and not answered, never the other way round.
	sum, admitted, failed := charged(t, store, keys, endless), l.admitted.Load(), l.failed.Load()
	if sum < admitted || sum > admitted+failed {
		t.Errorf("%d charged, %d admitted, %d failed: %q", sum, admitted, failed, l.errorTexts())
	}
}

// moveTags moves the slots of all hash tags that one master has to another, with
// their keys, the way that redis-cli does.
func moveTags(t *testing.T, from, to redis.UniversalClient) {
	t.Helper()
	ctx := t.Context()
	fromID, toID := from.ClusterMyID(ctx).Val(), to.ClusterMyID(ctx).Val()
	host, port, _ := strings.Cut(to.(*redis.Client).Options().Addr, ":")
	moved := 0
	for tag := range tags {
		slot := from.ClusterKeySlot(ctx, key("q:", Shard(tag), Counter{})).Val()
		do := func(c redis.UniversalClient, args ...any) {
			t.Helper()
			if err := c.Do(ctx, args...).Err(); err != nil {
				t.Fatalf("%v: %v", args, err)
			}
		}
		if err := to.Do(ctx, "cluster", "setslot", slot, "importing", fromID).Err(); err != nil {
			continue // already there
		}
		if err := from.Do(ctx, "cluster", "setslot", slot, "migrating", toID).Err(); err != nil {
			do(to, "cluster", "setslot", slot, "stable")
			continue // on a third master
		}
		for {
			keys, err := from.Do(ctx, "cluster", "getkeysinslot", slot, 10).StringSlice()
			if err != nil {
				t.Fatal(err)
			}
			if len(keys) == 0 {
				break
			}
			for _, k := range keys { // one by one, so that calls meet keys on both sides
				do(from, "migrate", host, port, k, 0, patience.Milliseconds())
			}
		}
		do(to, "cluster", "setslot", slot, "node", toID)
		do(from, "cluster", "setslot", slot, "node", toID)
		moved++
	}
	if moved == 0 {
		t.Fatal("no slot was moved")
	}
}

// TestClusterLosesAMaster: the counters of the others are never disturbed, and its
// own are judged again once its replica has taken over.
func TestClusterLosesAMaster(t *testing.T) {
	t.Parallel()
	cluster := testenv.OwnRedisCluster(t)
	client := connect(t, clusterURL(cluster.Addrs()), ConnectOptions{Mode: Cluster, Timeout: patience})
	f, _ := running(t, NewRedis(client, RedisOptions{Timeout: patience}), FailoverOptions{Budget: patience, Retry: 100 * time.Millisecond})
	owner := func(k int) string {
		master, err := client.(*redis.ClusterClient).MasterForKey(t.Context(), key("q:", loadCall(k, endless, 1).Shard, Counter{}))
		if err != nil {
			t.Fatal(err)
		}
		return master.Options().Addr
	}
	lost := cluster.Addrs()[0]
	var theirs, others []int
	for k := range 60 {
		if owner(k) == lost {
			theirs = append(theirs, k)
		} else {
			others = append(others, k)
		}
	}
	ask := func(k int) (Outcome, error) {
		return f.TakeOr(t.Context(), loadCall(k, endless, 1), make([]Status, 1), quotad.FailClosed)
	}
	for k := range 60 {
		if out, err := ask(k); err != nil || !out.Allowed {
			t.Fatalf("key %d before: %+v %v", k, out, err)
		}
	}
	cluster.Nodes[0].Stop()
	eventually(t, "the lost counters are judged again", func() bool {
		for _, k := range others {
			if out, err := ask(k); err != nil || !out.Allowed {
				t.Fatalf("key %d of another master: %+v %v", k, out, err)
			}
		}
		for _, k := range theirs {
			if out, err := ask(k); err != nil || !out.Allowed || out.Degraded != "" {
				return false
			}
		}
		return true
	})
	eventually(t, "every breaker is closed", func() bool { return f.State() == "closed" })
}

// TestSentinelFailover: the old master lives on as a replica; its read-only answers
// are failures that the policy answers, and soon all is judged by the new one.
func TestSentinelFailover(t *testing.T) {
	t.Parallel()
	s := testenv.OwnRedisSentinels(t)
	client := connect(t, clusterURL(s.Addrs())+"&master_name="+testenv.SentinelMaster, ConnectOptions{Mode: Sentinel, Timeout: patience})
	f, _ := running(t, NewRedis(client, RedisOptions{Timeout: patience}), FailoverOptions{Budget: patience, Retry: 100 * time.Millisecond})
	ask := func(policy quotad.FailurePolicy) (Outcome, error) {
		return f.TakeOr(t.Context(), loadCall(1, endless, 1), make([]Status, 1), policy)
	}
	if out, err := ask(quotad.FailClosed); err != nil || !out.Allowed {
		t.Fatalf("before: %+v %v", out, err)
	}
	sentinel := redis.NewSentinelClient(&redis.Options{Addr: s.Addrs()[0]})
	defer sentinel.Close()
	eventually(t, "the sentinel begins a failover", func() bool {
		return sentinel.Failover(t.Context(), testenv.SentinelMaster).Err() == nil
	})
	old := connect(t, s.Master.URL(), ConnectOptions{Timeout: patience})
	eventually(t, "the old master is a replica", func() bool {
		if _, err := ask(quotad.FailOpen); err != nil { // whatever happens, the policy answers
			t.Fatalf("during the failover: %v", err)
		}
		return strings.Contains(old.Info(t.Context(), "replication").Val(), "role:slave")
	})
	eventually(t, "the new master judges", func() bool {
		out, err := ask(quotad.FailClosed)
		return err == nil && out.Allowed && out.Degraded == ""
	})
	// And again when that one dies.
	s.Replica.Stop()
	eventually(t, "the next master judges", func() bool {
		out, err := ask(quotad.FailClosed)
		return err == nil && out.Allowed && out.Degraded == ""
	})
}

// TestTheUserNeedsOnlyTheScript: an ACL user with the rights that the docs name.
func TestTheUserNeedsOnlyTheScript(t *testing.T) {
	t.Parallel()
	own := newOwnRedis(t)
	do("ACL", "SETUSER", "quotad", "on", ">s3cret", "resetkeys", "~q:*", "resetchannels", "-@all",
		"+evalsha", "+eval", "+mget", "+set", "+incrby", "+time", "+ping", "+hello")(t, own)
	address := strings.Replace(own.server.URL(), "redis://", "redis://quotad:s3cret@", 1)
	store := NewRedis(connect(t, address, ConnectOptions{Timeout: patience}), RedisOptions{Timeout: patience})
	for n := range int64(3) {
		expect(t, store, "api", limit(quotad.SlidingWindowCounter, 3, long), 1, true, 2-n)
	}
}

// TestTLS speaks to a Redis that takes encrypted connections only.
func TestTLS(t *testing.T) {
	t.Parallel()
	server := testenv.OwnRedisTLS(t)
	store := NewRedis(connect(t, server.URL(), ConnectOptions{Timeout: patience}), RedisOptions{Timeout: patience})
	for n := range int64(3) {
		expect(t, store, "api", limit(quotad.TokenBucket, 3, long), 1, true, 2-n)
	}
	// Without being told to, the certificate is checked.
	strict := NewRedis(connect(t, strings.TrimSuffix(server.URL(), "?skip_verify=true"), ConnectOptions{Timeout: patience}), RedisOptions{})
	if _, err := strict.Take(t.Context(), call("api", limit(quotad.TokenBucket, 3, long), 1), make([]Status, 1)); err == nil {
		t.Error("a certificate that nobody vouches for was accepted")
	}
}
