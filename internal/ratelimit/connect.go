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
	u, network, err := parse(address, o.Mode)
	if err != nil {
		return nil, fmt.Errorf("read redis url: %w", withoutURL(err))
	}
	u.MaxRetries = -1
	u.MaxRedirects = -1 // Redis follows them itself, where a command did not run
	u.ContextTimeoutEnabled = true
	u.DialTimeout = 2 * o.Timeout
	u.DialerRetries = 1
	u.ReadTimeout = o.Timeout
	u.WriteTimeout = o.Timeout
	u.PoolTimeout = o.Timeout
	u.PoolSize = o.PoolSize
	u.MinIdleConns = 2
	u.DisableIdentity = true
	// Plain Redis and Valkey do not know maintenance notifications.
	u.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	switch o.Mode {
	case Cluster:
		return redis.NewClusterClient(u.Cluster()), nil
	case Sentinel:
		return redis.NewFailoverClient(u.Failover()), nil
	default:
		simple := u.Simple()
		simple.Network = network
		return redis.NewClient(simple), nil
	}
}

// CheckURL reports what is wrong with a URL for a mode, without a look at what it
// leads to. The error may repeat parts of the URL.
func CheckURL(address string, mode Mode) error {
	_, _, err := parse(address, mode)
	return err
}

// parse reads where to connect to, and as whom. network is that of the one server
// of Standalone.
func parse(address string, mode Mode) (u *redis.UniversalOptions, network string, err error) {
	u = &redis.UniversalOptions{}
	switch mode {
	case Cluster:
		parsed, err := redis.ParseClusterURL(address)
		if err != nil {
			return nil, "", err
		}
		u.Addrs, u.Username, u.Password, u.TLSConfig = parsed.Addrs, parsed.Username, parsed.Password, parsed.TLSConfig
	case Sentinel:
		parsed, err := redis.ParseFailoverURL(address)
		if err != nil {
			return nil, "", err
		}
		if parsed.MasterName == "" {
			return nil, "", errors.New("master_name is missing: the name that the sentinels know the master by")
		}
		u.Addrs, u.MasterName, u.DB = parsed.SentinelAddrs, parsed.MasterName, parsed.DB
		u.Username, u.Password, u.TLSConfig = parsed.Username, parsed.Password, parsed.TLSConfig
		u.SentinelUsername, u.SentinelPassword = parsed.SentinelUsername, parsed.SentinelPassword
	default:
		parsed, err := redis.ParseURL(address)
		if err != nil {
			return nil, "", err
		}
		network = parsed.Network
		u.Addrs, u.DB, u.Username, u.Password, u.TLSConfig = []string{parsed.Addr}, parsed.DB, parsed.Username, parsed.Password, parsed.TLSConfig
	}
	return u, network, nil
}

// withoutURL drops the URL, which may hold a password, from a parse error.
func withoutURL(err error) error {
	var parse *url.Error
	if errors.As(err, &parse) {
		return parse.Err
	}
	return err
}
