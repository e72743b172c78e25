package testenv

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
)

// Redis returns the URL of a shared server and a prefix for keys that only this test uses: lower-case letters, digits
// and a colon at the end. When the test ends, every key that contains the prefix, at its start or inside a hash tag,
// is deleted.
func Redis(t testing.TB) (url, prefix string) {
	t.Helper()
	url = sharedRedis(t)
	prefix = "test" + strings.ToLower(rand.Text()) + ":"
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), Patience)
		defer cancel()
		if err := deleteKeys(ctx, url, "*"+prefix+"*"); err != nil {
			t.Errorf("testenv: %v", err)
		}
	})
	return url, prefix
}

func deleteKeys(ctx context.Context, url, pattern string) error {
	client, err := redisClient(url)
	if err != nil {
		return err
	}
	defer client.Close()
	var cursor uint64
	for {
		keys, next, err := client.Scan(ctx, cursor, pattern, 1000).Result()
		if err == nil && len(keys) > 0 {
			err = client.Unlink(ctx, keys...).Err()
		}
		if err != nil {
			return fmt.Errorf("delete the keys %s: %w", pattern, err)
		}
		if cursor = next; cursor == 0 {
			return nil
		}
	}
}

// redisClient also silences the library for the whole test process: it writes a line to standard error of every
// connection that a stopped server refuses, and buries what a failing test says.
func redisClient(url string) (*redis.Client, error) {
	logging.Disable()
	options, err := redis.ParseURL(url)
	if err != nil {
		return nil, fmt.Errorf("read the Redis URL: %w", err)
	}
	options.ContextTimeoutEnabled = true
	options.MaxRetries, options.DialerRetries, options.PoolSize = -1, 1, 1
	options.DialTimeout, options.ReadTimeout, options.WriteTimeout, options.PoolTimeout = Patience, Patience, Patience, Patience
	return redis.NewClient(options), nil
}

func pingRedis(ctx context.Context, url string) error {
	client, err := redisClient(url)
	if err != nil {
		return err
	}
	defer client.Close()
	return client.Ping(ctx).Err()
}
