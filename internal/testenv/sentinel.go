package testenv

import (
	"context"
	"fmt"
	"net"
	"path"
	"slices"
	"strconv"
	"testing"

	"github.com/redis/go-redis/v9"
)

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
	nodes := &pod{t: t, size: 5}
	s := &RedisSentinels{Master: nodes.own("redis", plainRedis(redisKeeps...))}
	host, port, _ := net.SplitHostPort(hostPort(s.Master.URL()))
	s.Replica = nodes.own("redis", plainRedis(slices.Concat(redisKeeps, []string{"--replicaof", host + " " + port, "--repl-diskless-sync-delay", "0"})...))
	for range 3 {
		s.Sentinels = append(s.Sentinels, nodes.own("redis sentinel", sentinel(host, port)))
	}
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
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

// sentinel watches the master at an address, whose death is a silence of 5 s: a shorter one is none on a busy machine. It
// writes to its file of settings what it learns.
func sentinel(host, port string) redisServer {
	const file = "sentinel.conf"
	return redisServer{
		files: map[string]string{file: fmt.Sprintf("sentinel monitor %[1]s %[2]s %[3]s 2\n"+
			"sentinel down-after-milliseconds %[1]s 5000\nsentinel failover-timeout %[1]s 3000\n", SentinelMaster, host, port)},
		args: func(dir string, port int) []string {
			return []string{path.Join(dir, file), "--sentinel", "--port", strconv.Itoa(port), "--protected-mode", "no"}
		},
		url: redisURL,
	}
}
