package ratelimit

import (
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// ConnectOptions tune Connect. The zero value is ready to use.
type ConnectOptions struct {
	// PoolSize is the most connections; default 64.
	PoolSize int
	// Timeout bounds one read or write on a connection; default 250 ms. The
	// budget of a Failover is shorter.
	Timeout time.Duration
}

// Connect returns a client of the Redis at a redis://, rediss:// or unix:// URL,
// set so that no command is ever sent twice: a late reply may belong to a charge
// that was made. It connects when first used.
func Connect(address string, o ConnectOptions) (*redis.Client, error) {
	opts, err := redis.ParseURL(address)
	if err != nil {
		return nil, fmt.Errorf("read redis url: %w", withoutURL(err))
	}
	if o.PoolSize <= 0 {
		o.PoolSize = 64
	}
	if o.Timeout <= 0 {
		o.Timeout = 250 * time.Millisecond
	}
	opts.MaxRetries = -1
	opts.ContextTimeoutEnabled = true
	opts.DialTimeout = 2 * o.Timeout
	opts.DialerRetries = 1
	opts.ReadTimeout = o.Timeout
	opts.WriteTimeout = o.Timeout
	opts.PoolTimeout = o.Timeout
	opts.PoolSize = o.PoolSize
	opts.MinIdleConns = 2
	opts.DisableIdentity = true
	// Plain Redis and Valkey do not know maintenance notifications.
	opts.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	return redis.NewClient(opts), nil
}

// withoutURL drops the URL, which may hold a password, from a parse error.
func withoutURL(err error) error {
	var parse *url.Error
	if errors.As(err, &parse) {
		return parse.Err
	}
	return err
}
