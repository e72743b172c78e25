package testenv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"
)

// The environment variables that choose the servers (see the package comment).
const (
	PostgresEnv = "QUOTAD_TEST_DATABASE_URL"
	RedisEnv    = "QUOTAD_TEST_REDIS_URL"
	WayEnv      = "QUOTAD_TEST_SERVERS"
)

// Shared is a server that many tests use together.
type Shared struct {
	URL string // postgres://… or redis://…
	How string // the way it was found, for people

	instance instance // nil when somebody else runs it
}

// Close ends the server, unless somebody else runs it.
func (s *Shared) Close() error {
	if s.instance == nil {
		return nil
	}
	return s.instance.remove()
}

// instance is one running server, in a process or in a container.
type instance interface {
	address() string // its URL, the same for its whole life
	start(context.Context) error
	kill(context.Context) error
	freeze(context.Context) error
	resume(context.Context) error
	remove() error
}

// way starts a server in one manner and says which.
type way func(context.Context) (instance, string, error)

// StartPostgres finds a Postgres server by the order in the package comment. The caller closes it.
func StartPostgres(ctx context.Context) (*Shared, error) {
	return find(ctx, "postgres", PostgresEnv, pingPostgres, map[string]way{
		"docker": func(ctx context.Context) (instance, string, error) { return startContainer(ctx, postgresContainer()) },
		"local":  func(ctx context.Context) (instance, string, error) { return described(localPostgres(ctx)) },
	}, "docker", "local")
}

// StartRedis finds a Redis server by the order in the package comment. The caller closes it.
func StartRedis(ctx context.Context) (*Shared, error) {
	return find(ctx, "redis", RedisEnv, pingRedis, map[string]way{
		"docker": func(ctx context.Context) (instance, string, error) { return startContainer(ctx, redisContainer()) },
		"local":  func(ctx context.Context) (instance, string, error) { return described(localRedis(ctx)) },
	}, "docker", "local")
}

func described(p *process, path string, err error) (instance, string, error) {
	if err != nil {
		return nil, "", err
	}
	return p, "a server of this machine, " + path, nil
}

// find returns the server at the URL in the variable env, or starts one in the first of the ways in order that works.
func find(ctx context.Context, name, env string, ping func(context.Context, string) error, ways map[string]way, order ...string) (*Shared, error) {
	if url := os.Getenv(env); env != "" && url != "" {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		if err := untilReady(ctx, url, ping); err != nil {
			return nil, fmt.Errorf("no answer from the %s server that %s names: %w", name, env, err)
		}
		return &Shared{URL: url, How: "given by " + env}, nil
	}
	if forced := os.Getenv(WayEnv); forced != "" {
		if ways[forced] == nil {
			return nil, fmt.Errorf("%s must be docker, local or empty, not %q", WayEnv, forced)
		}
		order = []string{forced}
	}
	var errs []error
	for _, word := range order {
		instance, how, err := ways[word](ctx)
		if err == nil {
			return &Shared{URL: instance.address(), How: how, instance: instance}, nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", word, err))
	}
	return nil, fmt.Errorf("no %s server for the tests. Start Docker, or install the Debian packages postgresql and redis-server, "+
		"or name running servers in %s and %s. What was tried:\n%w", name, PostgresEnv, RedisEnv, errors.Join(errs...))
}

// One server of each kind for all tests of this process: a package variable because tests share nothing else. It is
// never closed; its keeper ends it with the process.
var (
	oncePostgres = sync.OnceValues(func() (*Shared, error) { return startAndSay("postgres", StartPostgres) })
	onceRedis    = sync.OnceValues(func() (*Shared, error) { return startAndSay("redis", StartRedis) })
)

func startAndSay(name string, start func(context.Context) (*Shared, error)) (*Shared, error) {
	shared, err := start(context.Background())
	if err == nil {
		fmt.Fprintf(os.Stderr, "testenv: %s: %s\n", name, shared.How)
	}
	return shared, err
}

func sharedPostgres(t testing.TB) string {
	t.Helper()
	return sharedURL(t, oncePostgres)
}

func sharedRedis(t testing.TB) string {
	t.Helper()
	return sharedURL(t, onceRedis)
}

func sharedURL(t testing.TB, once func() (*Shared, error)) string {
	t.Helper()
	shared, err := once()
	if err != nil {
		t.Fatalf("testenv: %v", err)
	}
	return shared.URL
}
