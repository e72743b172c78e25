package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/quotad/quotad/internal/testenv"
)

// Two nodes on a Cluster admit each tenant's five calls and no more, whichever masters they are on. A master that dies
// takes the counters on it away, and no others, until its replica has taken over; then they go on where they were.
func TestOnACluster(t *testing.T) {
	t.Parallel()
	cluster := testenv.OwnRedisCluster(t)
	database := "QUOTAD_DATABASE_URL=" + testenv.Postgres(t)
	serve := func(addrs []string) *testNode {
		t.Helper()
		return start(t, []string{database}, "--redis-mode=cluster", "--redis="+severalURL(addrs))
	}
	nodes := []*testNode{serve(cluster.Addrs()[:3]), serve(cluster.Addrs()[3:])}
	tenants := tenantsOf(nodes[0], 30, "closed")
	soon(t, "all keys are known", tenants.judgedBy(nodes))
	tenants[:len(tenants)/2].spend(t, nodes, 3)
	tenants[len(tenants)/2:].spend(t, nodes, 12)
	for i, server := range cluster.Nodes[:3] {
		if size := dialRedis(t, server).DBSize(t.Context()).Val(); size == 0 {
			t.Errorf("master %d has no counters", i)
		}
	}
	expectReady(t, nodes)

	replicated(t, cluster.Nodes[0])
	cluster.Nodes[3].Freeze() // the replica is to wait until all has been seen
	cluster.Nodes[0].Stop()
	var lost atomic.Int64
	tenants.each(func(c *tenantOf) {
		for range 3 {
			a := c.peek(nodes[0])
			if a.status == http.StatusServiceUnavailable && a.header.Get("Retry-After") != "" {
				lost.Add(1)
			} else if err := c.judged(a); err != nil {
				t.Errorf("a master is away: %v", err)
			}
		}
	})
	if n := lost.Load(); n == 0 || n > 3*int64(len(tenants))*2/3 {
		t.Errorf("with a master of three away %d calls of %d were not judged", n, 3*len(tenants))
	}
	expectAway(t, nodes[0])
	// Another node may start meanwhile, with the dead master's address before the others.
	nodes = append(nodes, serve(cluster.Addrs()))

	cluster.Nodes[3].Resume()
	soon(t, "all see that the replica has taken over", allSee(t, cluster.Nodes[1:], cluster.Nodes[3]))
	soon(t, "all is judged again", tenants.judgedBy(nodes))
	tenants.spend(t, nodes, 9)
	expectReady(t, nodes)
}

// Two nodes that sentinels lead to their Redis, one of which hangs: when the master dies the policies answer until its
// replica is promoted, and then the counters go on where they were. What was the master comes back as a replica.
func TestOnSentinels(t *testing.T) {
	t.Parallel()
	s := testenv.OwnRedisSentinels(t)
	environ := []string{
		"QUOTAD_DATABASE_URL=" + testenv.Postgres(t), "QUOTAD_REDIS_MODE=sentinel",
		"QUOTAD_REDIS_URL=" + severalURL(s.Addrs()) + "&master_name=" + testenv.SentinelMaster,
	}
	nodes := []*testNode{start(t, environ), start(t, environ)}
	tenants := tenantsOf(nodes[0], 6, "closed")
	soon(t, "all keys are known", tenants.judgedBy(nodes))
	_, local := nodes[0].customer("local", 5, map[string]any{"algorithm": "token_bucket", "on_store_failure": "local"})
	tenants[:len(tenants)/2].spend(t, nodes, 3)
	tenants[len(tenants)/2:].spend(t, nodes, 12)
	expectReady(t, nodes)

	s.Sentinels[0].Freeze()
	s.Sentinels[1].Stop() // the third is to be alone until all has been seen, and promotes nobody
	replicated(t, s.Master)
	s.Master.Stop()
	for range 10 { // enough for the breaker
		if a := tenants[0].peek(nodes[0]); a.status != http.StatusServiceUnavailable || a.header.Get("Retry-After") == "" {
			t.Errorf("closed, the master is away: %d %s", a.status, a.body)
		}
	}
	if a := nodes[0].ping(local); a.status != http.StatusOK || a.header.Get("X-Quotad-Degraded") != "local" {
		t.Errorf("local, the master is away: %d %s", a.status, a.body)
	}
	expectAway(t, nodes[0])
	nodes = append(nodes, start(t, environ)) // finds a sentinel that hangs, a dead one, and a dead master

	s.Sentinels[1].Start()
	soon(t, "both see that the replica is promoted", allName(t, s.Sentinels[1:], s.Replica))
	soon(t, "all is judged again", tenants.judgedBy(nodes))
	s.Master.Start()
	soon(t, "the old master is a replica", hasRole(t, s.Master, "slave"))
	tenants.spend(t, nodes, 9)
	expectReady(t, nodes)
}

// tenantOf is a customer of five calls.
type tenantOf struct {
	name, key string
	left      int // of the five
}

type tenantsOfFive []*tenantOf

// tenantsOf makes customers with a failure policy.
func tenantsOf(n *testNode, count int, policy string) tenantsOfFive {
	n.t.Helper()
	n.tier("five", 5, map[string]any{"algorithm": "token_bucket", "on_store_failure": policy})
	var tenants tenantsOfFive
	for i := range count {
		c := &tenantOf{name: fmt.Sprint("tenant", i), left: 5}
		n.tenant(c.name, "five")
		_, c.key = n.key(c.name)
		tenants = append(tenants, c)
	}
	return tenants
}

// each does something for all tenants at once.
func (s tenantsOfFive) each(do func(c *tenantOf)) {
	var all sync.WaitGroup
	for _, c := range s {
		all.Go(func() { do(c) })
	}
	all.Wait()
}

// spend makes calls of all tenants, over the nodes by turns and at once, and expects that the five are admitted.
func (s tenantsOfFive) spend(t *testing.T, nodes []*testNode, calls int) {
	t.Helper()
	s.each(func(c *tenantOf) {
		var admitted, refused atomic.Int64
		var all sync.WaitGroup
		for i := range calls {
			all.Go(func() {
				switch a := nodes[i%len(nodes)].ping(c.key); a.status {
				case http.StatusOK:
					admitted.Add(1)
				case http.StatusTooManyRequests:
					refused.Add(1)
				default:
					t.Errorf("%s: %d %s", c.name, a.status, a.body)
				}
			})
		}
		all.Wait()
		want := int64(min(calls, c.left))
		if admitted.Load() != want || refused.Load() != int64(calls)-want {
			t.Errorf("%s has %d of its calls left, and of %d were %d admitted and %d refused", c.name, c.left, calls, admitted.Load(), refused.Load())
		}
		c.left -= int(want)
	})
}

// peek asks what is left, charging nothing.
func (c *tenantOf) peek(n *testNode) answer {
	return n.metered(http.MethodPost, "/v1/check", map[string]any{"route_group": "default", "cost": 0}, c.key)
}

// judged expects a peek's answer by the counter, and that no unit was lost or invented.
func (c *tenantOf) judged(peek answer) error {
	if peek.status != http.StatusOK || peek.header.Get("X-Quotad-Degraded") != "" || peek.header.Get("X-RateLimit-Remaining") != fmt.Sprint(c.left) {
		return fmt.Errorf("%s, of whose calls %d are left: %d %s %v", c.name, c.left, peek.status, peek.body, peek.header)
	}
	return nil
}

// judgedBy expects that of all tenants at all nodes.
func (s tenantsOfFive) judgedBy(nodes []*testNode) func() error {
	return func() error {
		for _, c := range s {
			for _, n := range nodes {
				if err := c.judged(c.peek(n)); err != nil {
					return err
				}
			}
		}
		return nil
	}
}

// expectReady expects nodes that say that all is well.
func expectReady(t *testing.T, nodes []*testNode) {
	t.Helper()
	for i, n := range nodes {
		soon(t, fmt.Sprintf("node %d is well", i), func() error {
			if a, err := send(testClient, http.MethodGet, n.api+"/readyz", nil); err != nil || a.body != `{"status":"ready"}`+"\n" {
				return fmt.Errorf("it says %s %v", a.body, err)
			}
			if a, err := send(testClient, http.MethodGet, n.admin+"/metrics", nil); err != nil || !strings.Contains(a.body, "\nquotad_breaker_open 0\n") {
				return fmt.Errorf("its metrics show an open breaker, or nothing: %v", err)
			}
			return nil
		})
	}
}

var openBreakers = regexp.MustCompile("\nquotad_breaker_open [1-9]")

// expectAway expects a node that serves and says that Redis, or a part of it, is away.
func expectAway(t *testing.T, n *testNode) {
	t.Helper()
	if a, err := send(testClient, http.MethodGet, n.api+"/readyz", nil); err != nil || a.status != http.StatusOK || !strings.Contains(a.body, "failure policies answer") {
		t.Errorf("readiness: %d %s %v", a.status, a.body, err)
	}
	if a, err := send(testClient, http.MethodGet, n.admin+"/metrics", nil); err != nil || !openBreakers.MatchString(a.body) {
		t.Errorf("the metrics do not show it: %v", err)
	}
}

// severalURL is a redis URL of several addresses.
func severalURL(addrs []string) string {
	return "redis://" + addrs[0] + "/0?" + url.Values{"addr": addrs[1:]}.Encode()
}

func dialRedis(t *testing.T, server *testenv.Server) *redis.Client {
	t.Helper()
	options, err := redis.ParseURL(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(options)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// allSee is a check for soon: to all living servers of a Cluster that one is a master. As long as one is behind, a node
// that asks it is sent to the dead one again.
func allSee(t *testing.T, living []*testenv.Server, master *testenv.Server) func() error {
	t.Helper()
	address := dialRedis(t, master).Options().Addr
	var clients []*redis.Client
	for _, server := range living {
		clients = append(clients, dialRedis(t, server))
	}
	return func() error {
		for _, client := range clients {
			nodes, err := client.ClusterNodes(context.Background()).Result()
			if err != nil {
				return err
			}
			for line := range strings.Lines(nodes) {
				if strings.Contains(line, " "+address+"@") && !strings.Contains(line, "master ") {
					return errors.New(nodes)
				}
			}
		}
		return nil
	}
}

// allName is a check for soon: all those sentinels lead to that master.
func allName(t *testing.T, sentinels []*testenv.Server, master *testenv.Server) func() error {
	t.Helper()
	address := dialRedis(t, master).Options().Addr
	var clients []*redis.SentinelClient
	for _, server := range sentinels {
		client := redis.NewSentinelClient(dialRedis(t, server).Options())
		t.Cleanup(func() { _ = client.Close() })
		clients = append(clients, client)
	}
	return func() error {
		for _, client := range clients {
			named, err := client.GetMasterAddrByName(context.Background(), testenv.SentinelMaster).Result()
			if err == nil && strings.Join(named, ":") != address {
				err = fmt.Errorf("%v is named", named)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
}

// hasRole is a check for soon: the server is a master, or a slave.
func hasRole(t *testing.T, server *testenv.Server, role string) func() error {
	t.Helper()
	client := dialRedis(t, server)
	return func() error {
		info, err := client.Info(context.Background(), "replication").Result()
		if err == nil && !strings.Contains(info, "role:"+role) {
			err = errors.New(info)
		}
		return err
	}
}

var replicaOffset = regexp.MustCompile(`slave0:.*offset=(\d+)`)

// replicated waits until the replica of a master has all that the master has: what a failover forgets is not under test.
func replicated(t *testing.T, master *testenv.Server) {
	t.Helper()
	client := dialRedis(t, master)
	soon(t, "the replica has caught up", func() error {
		info, err := client.Info(t.Context(), "replication").Result()
		if err != nil {
			return err
		}
		offset := replicaOffset.FindStringSubmatch(info)
		if offset == nil || !strings.Contains(info, "master_repl_offset:"+offset[1]+"\r") {
			return errors.New(info)
		}
		return nil
	})
}
