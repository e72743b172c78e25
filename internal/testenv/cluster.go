package testenv

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// RedisCluster is a Redis Cluster of one test alone: masters 0 to 2, and 3 to 5 that replicate them.
type RedisCluster struct {
	Nodes []*Server
}

// OwnRedisCluster starts three masters with a replica each and returns when the cluster serves all slots.
func OwnRedisCluster(t testing.TB) *RedisCluster {
	t.Helper()
	c := &RedisCluster{}
	for range 6 {
		c.Nodes = append(c.Nodes, OwnRedisProcess(t, "--cluster-enabled", "yes", "--cluster-node-timeout", "1000",
			"--cluster-replica-validity-factor", "0", "--cluster-require-full-coverage", "no", "--repl-diskless-sync-delay", "0"))
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := c.form(ctx); err != nil {
		t.Fatalf("testenv: form a redis cluster: %v", err)
	}
	return c
}

// Addrs are the host:port of all nodes.
func (c *RedisCluster) Addrs() []string {
	var addrs []string
	for _, n := range c.Nodes {
		addrs = append(addrs, hostPort(n.URL()))
	}
	return addrs
}

// URLs are the URLs of all nodes.
func (c *RedisCluster) URLs() []string {
	var urls []string
	for _, n := range c.Nodes {
		urls = append(urls, n.URL())
	}
	return urls
}

func (c *RedisCluster) form(ctx context.Context) error {
	clients := make([]*redis.Client, len(c.Nodes))
	for i, addr := range c.Addrs() {
		clients[i] = redis.NewClient(&redis.Options{Addr: addr})
		defer clients[i].Close()
	}
	const slots = 16384
	for i := range 3 {
		if err := clients[i].ClusterAddSlotsRange(ctx, i*slots/3, (i+1)*slots/3-1).Err(); err != nil {
			return fmt.Errorf("give node %d its slots: %w", i, err)
		}
	}
	for _, addr := range c.Addrs()[1:] {
		host, port, _ := net.SplitHostPort(addr)
		if err := clients[0].ClusterMeet(ctx, host, port).Err(); err != nil {
			return fmt.Errorf("let the nodes meet: %w", err)
		}
	}
	for i := range 3 {
		id, err := clients[i].ClusterMyID(ctx).Result()
		if err != nil {
			return err
		}
		if err := until(ctx, func() error { return clients[3+i].ClusterReplicate(ctx, id).Err() }); err != nil {
			return fmt.Errorf("let node %d replicate node %d: %w", 3+i, i, err)
		}
	}
	for i, client := range clients {
		err := until(ctx, func() error {
			info, err := client.ClusterInfo(ctx).Result()
			if err != nil {
				return err
			}
			nodes, err := client.ClusterNodes(ctx).Result()
			if err != nil {
				return err
			}
			if !strings.Contains(info, "cluster_state:ok") || strings.Count(nodes, "slave") != 3 {
				return errors.New("it does not see the whole cluster")
			}
			link, err := client.Info(ctx, "replication").Result()
			if i >= 3 && err == nil && !strings.Contains(link, "master_link_status:up") {
				return errors.New("it has not caught up with its master")
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("wait for node %d: %w", i, err)
		}
	}
	return nil
}

// RedisSentinels are a master, a replica of it, and three sentinels that watch them, of one test alone.
type RedisSentinels struct {
	Master, Replica *Server
	Sentinels       []*Server
}

// SentinelMaster is the name by which the sentinels know the master.
const SentinelMaster = "quotad"

// OwnRedisSentinels starts them and returns when every sentinel knows the others and the replica.
func OwnRedisSentinels(t testing.TB) *RedisSentinels {
	t.Helper()
	s := &RedisSentinels{Master: OwnRedisProcess(t)}
	host, port, _ := net.SplitHostPort(hostPort(s.Master.URL()))
	s.Replica = OwnRedisProcess(t, "--replicaof", host+" "+port, "--repl-diskless-sync-delay", "0")
	for range 3 {
		s.Sentinels = append(s.Sentinels, ownProcess(t, "redis sentinel", func(ctx context.Context) (instance, string, error) {
			return described(localSentinel(ctx, hostPort(s.Master.URL())))
		}))
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, addr := range s.Addrs() {
		if err := until(ctx, func() error { return sentinelReady(ctx, addr) }); err != nil {
			t.Fatalf("testenv: wait for the sentinel at %s: %v", addr, err)
		}
	}
	return s
}

// Addrs are the host:port of the sentinels.
func (s *RedisSentinels) Addrs() []string {
	var addrs []string
	for _, n := range s.Sentinels {
		addrs = append(addrs, hostPort(n.URL()))
	}
	return addrs
}

func sentinelReady(ctx context.Context, addr string) error {
	client := redis.NewSentinelClient(&redis.Options{Addr: addr})
	defer client.Close()
	master, err := client.Master(ctx, SentinelMaster).Result()
	if err != nil {
		return err
	}
	if master["num-other-sentinels"] != "2" || master["num-slaves"] != "1" {
		return fmt.Errorf("it knows of %s other sentinels and %s replicas", master["num-other-sentinels"], master["num-slaves"])
	}
	return nil
}

// localSentinel starts a sentinel of this machine that watches the master at an address.
func localSentinel(ctx context.Context, master string) (*process, string, error) {
	bin, err := redisProgram(ctx)
	if err != nil {
		return nil, "", err
	}
	dir, err := os.MkdirTemp("", "quotad-sentinel-")
	if err != nil {
		return nil, "", fmt.Errorf("make a directory for a sentinel: %w", err)
	}
	host, port, _ := net.SplitHostPort(master)
	settings := fmt.Sprintf("sentinel monitor %[1]s %[2]s %[3]s 2\nsentinel down-after-milliseconds %[1]s 1000\n"+
		"sentinel failover-timeout %[1]s 3000\n", SentinelMaster, host, port)
	file := filepath.Join(dir, "sentinel.conf") // the sentinel writes to it as well
	if err := os.WriteFile(file, []byte(settings), 0o600); err != nil {
		return nil, "", errors.Join(err, os.RemoveAll(dir))
	}
	proc, err := startProcess(ctx, program{
		dir: dir,
		argv: func(port int) []string {
			return []string{bin, file, "--sentinel", "--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--protected-mode", "no"}
		},
		end:   "KILL",
		url:   func(port int) string { return fmt.Sprintf("redis://127.0.0.1:%d/0", port) },
		ready: pingRedis,
	})
	return proc, bin, err
}

// hostPort is the host:port of a redis URL.
func hostPort(url string) string {
	opts, err := redis.ParseURL(url)
	if err != nil {
		return ""
	}
	return opts.Addr
}

// until tries until it works or ctx ends.
func until(ctx context.Context, try func() error) error {
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
}
