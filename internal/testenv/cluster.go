package testenv

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
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
	settings := plainRedis(slices.Concat(redisKeeps, []string{"--cluster-enabled", "yes", "--cluster-node-timeout", "5000", // less, and a master on a busy machine is taken for dead
		"--cluster-replica-validity-factor", "0", "--cluster-require-full-coverage", "no", "--repl-diskless-sync-delay", "0"})...)
	nodes := &pod{t: t, size: 6}
	for range nodes.size {
		c.Nodes = append(c.Nodes, nodes.own("redis", settings))
	}
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
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

func (c *RedisCluster) form(ctx context.Context) error {
	clients := make([]*redis.Client, len(c.Nodes))
	for i, addr := range c.Addrs() {
		clients[i] = redis.NewClient(&redis.Options{Addr: addr, ReadTimeout: Patience})
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
			// Its state is ok without all slots, too, as full coverage is not asked for.
			if !strings.Contains(info, "cluster_state:ok") || !strings.Contains(info, fmt.Sprint("cluster_slots_ok:", slots)) || strings.Count(nodes, "slave") != 3 {
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
