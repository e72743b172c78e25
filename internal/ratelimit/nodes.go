package ratelimit

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// nodes sends a command to the server that holds a key. A command is sent again only
// when the server says that it did not run it.
type nodes interface {
	process(ctx context.Context, key string, make func() *redis.IntSliceCmd) *redis.IntSliceCmd
}

// oneNode is a single server, or the master that sentinels name.
type oneNode struct{ client redis.UniversalClient }

func (n oneNode) process(ctx context.Context, _ string, make func() *redis.IntSliceCmd) *redis.IntSliceCmd {
	cmd := make()
	_ = n.client.Process(ctx, cmd)
	return cmd
}

// clusterNodes are the masters of a Redis Cluster. Its client's own redirects are
// off, because it also sends again what timed out.
type clusterNodes struct {
	client *redis.ClusterClient

	mu    sync.Mutex
	asked map[string]*redis.Client // servers that we were sent to, by address
}

// maxRedirects is how often a command follows its slot from server to server.
const maxRedirects = 5

func (n *clusterNodes) process(ctx context.Context, key string, make func() *redis.IntSliceCmd) *redis.IntSliceCmd {
	cmd := make()
	server, err := n.client.MasterForKey(ctx, key)
	if err != nil {
		n.client.ReloadState(ctx)
		cmd.SetErr(err)
		return cmd
	}
	asking := false
	for range maxRedirects {
		if asking {
			// In one round trip, so that they share a connection.
			_, _ = server.Pipelined(ctx, func(p redis.Pipeliner) error {
				_ = p.Process(ctx, redis.NewStatusCmd(ctx, "asking"))
				return p.Process(ctx, cmd)
			})
		} else {
			_ = server.Process(ctx, cmd)
		}
		err := cmd.Err()
		moved, isMoved := redis.IsMovedError(err)
		ask, isAsk := redis.IsAskError(err)
		switch {
		case isMoved:
			n.client.ReloadState(ctx)
			server, asking = n.server(moved), false
		case isAsk:
			server, asking = n.server(ask), true
		case redis.HasErrorPrefix(err, "TRYAGAIN"):
			// The slot is being moved, and its keys are on both sides.
			if !pause(ctx, 5*time.Millisecond) {
				return cmd
			}
		case err == nil || isReply(err) && !redis.HasErrorPrefix(err, "CLUSTERDOWN") && !redis.HasErrorPrefix(err, "READONLY"):
			return cmd
		default:
			// Somebody else may be the master by now: the next call asks.
			n.client.ReloadState(ctx)
			return cmd
		}
		cmd = make()
	}
	cmd.SetErr(errors.New("the slot of the counters moves from server to server"))
	return cmd
}

// isReply reports whether the server answered.
func isReply(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply)
}

// server is a client of the server at an address that the cluster named.
func (n *clusterNodes) server(addr string) *redis.Client {
	n.mu.Lock()
	defer n.mu.Unlock()
	if c := n.asked[addr]; c != nil {
		return c
	}
	o := n.client.Options()
	c := redis.NewClient(&redis.Options{
		Addr: addr, Username: o.Username, Password: o.Password, TLSConfig: o.TLSConfig, Dialer: o.Dialer,
		MaxRetries: o.MaxRetries, ContextTimeoutEnabled: o.ContextTimeoutEnabled,
		DialTimeout: o.DialTimeout, DialerRetries: o.DialerRetries,
		ReadTimeout: o.ReadTimeout, WriteTimeout: o.WriteTimeout,
		PoolSize: o.PoolSize, PoolTimeout: o.PoolTimeout, ConnMaxIdleTime: time.Minute,
		DisableIdentity: o.DisableIdentity, MaintNotificationsConfig: o.MaintNotificationsConfig,
	})
	if n.asked == nil {
		n.asked = map[string]*redis.Client{}
	}
	n.asked[addr] = c
	return c
}

func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
