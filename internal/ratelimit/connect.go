package ratelimit

import (
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Mode is how the servers behind a Redis URL work together.
type Mode string

// The modes.
const (
	Standalone Mode = "standalone" // one server
	Cluster    Mode = "cluster"    // a Redis Cluster
	Sentinel   Mode = "sentinel"   // a master and replicas that sentinels watch
)

// Modes lists the modes, the default first.
var Modes = []Mode{Standalone, Cluster, Sentinel}

// DefaultPoolSize is the most connections to a server unless ConnectOptions say otherwise.
const DefaultPoolSize = 64

// ConnectOptions tune Connect. The zero value is ready to use.
type ConnectOptions struct {
	Mode Mode // default Standalone
	// PoolSize is the most connections to a server; DefaultPoolSize by default.
	PoolSize int
	// Timeout bounds one read or write on a connection; default 250 ms. The
	// budget of a Failover is shorter.
	Timeout time.Duration
}

// Connect returns a client of the Redis at a redis://, rediss:// or unix:// URL, set so that
// no command is ever sent twice: a late reply may belong to a charge that was made.
// It connects when first used.
//
// Further nodes of a Cluster, or further sentinels, follow as addr=host:port in the
// query, and the name that the sentinels know the master by as master_name=name:
//
//	redis://user:password@10.0.0.1:6379?addr=10.0.0.2:6379&addr=10.0.0.3:6379
//	redis://user:password@10.0.0.1:26379/0?addr=10.0.0.2:26379&master_name=quotad
func Connect(address string, o ConnectOptions) (redis.UniversalClient, error) {
	if o.PoolSize <= 0 {
		o.PoolSize = DefaultPoolSize
	}
	if o.Timeout <= 0 {
		o.Timeout = 250 * time.Millisecond
	}
	u := &redis.UniversalOptions{
		MaxRetries:            -1,
		MaxRedirects:          -1, // Redis follows them itself, where a command did not run
		ContextTimeoutEnabled: true,
		DialTimeout:           2 * o.Timeout,
		DialerRetries:         1,
		ReadTimeout:           o.Timeout,
		WriteTimeout:          o.Timeout,
		PoolTimeout:           o.Timeout,
		PoolSize:              o.PoolSize,
		MinIdleConns:          2,
		DisableIdentity:       true,
		// Plain Redis and Valkey do not know maintenance notifications.
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	switch o.Mode {
	case Cluster:
		parsed, err := redis.ParseClusterURL(address)
		if err != nil {
			return nil, fmt.Errorf("read redis url: %w", withoutURL(err))
		}
		u.Addrs, u.Username, u.Password, u.TLSConfig = parsed.Addrs, parsed.Username, parsed.Password, parsed.TLSConfig
		return redis.NewClusterClient(u.Cluster()), nil
	case Sentinel:
		parsed, err := redis.ParseFailoverURL(address)
		if err != nil {
			return nil, fmt.Errorf("read redis url: %w", withoutURL(err))
		}
		if parsed.MasterName == "" {
			return nil, errors.New("read redis url: master_name is missing: the name that the sentinels know the master by")
		}
		u.Addrs, u.MasterName, u.DB = parsed.SentinelAddrs, parsed.MasterName, parsed.DB
		u.Username, u.Password, u.TLSConfig = parsed.Username, parsed.Password, parsed.TLSConfig
		u.SentinelUsername, u.SentinelPassword = parsed.SentinelUsername, parsed.SentinelPassword
		return redis.NewFailoverClient(u.Failover()), nil
	default:
		parsed, err := redis.ParseURL(address)
		if err != nil {
			return nil, fmt.Errorf("read redis url: %w", withoutURL(err))
		}
		u.DB, u.Username, u.Password, u.TLSConfig = parsed.DB, parsed.Username, parsed.Password, parsed.TLSConfig
		simple := u.Simple()
		simple.Network, simple.Addr = parsed.Network, parsed.Addr // a socket's path, too
		return redis.NewClient(simple), nil
	}
}

// withoutURL drops the URL, which may hold a password, from a parse error.
func withoutURL(err error) error {
	var parse *url.Error
	if errors.As(err, &parse) {
		return parse.Err
	}
	return err
}
