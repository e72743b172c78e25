package testenv

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"
)

// The environment variables that choose the servers (see the package comment).
const (
	PostgresEnv     = "QUOTAD_TEST_DATABASE_URL"
	RedisEnv        = "QUOTAD_TEST_REDIS_URL"
	WayEnv          = "QUOTAD_TEST_SERVERS"
	RedisProgramEnv = "QUOTAD_TEST_REDIS_PROGRAM"
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

// StartPostgres finds a Postgres server by the order in the package comment. The caller closes it.
func StartPostgres(ctx context.Context) (*Shared, error) {
	if url := os.Getenv(PostgresEnv); url != "" {
		return given(ctx, url, PostgresEnv, pingPostgres)
	}
	return start(ctx, "postgres", postgresWays(), "docker", "local")
}

// StartRedis finds a Redis server by the order in the package comment. The caller closes it.
func StartRedis(ctx context.Context) (*Shared, error) {
	if url := os.Getenv(RedisEnv); url != "" {
		return given(ctx, url, RedisEnv, pingRedis)
	}
	return start(ctx, "redis", plainRedis().ways(), "docker", "local")
}

// given is the server at url, which the variable env names. Where it does not answer no other takes its place.
func given(ctx context.Context, url, env string, ping func(context.Context, string) error) (*Shared, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := untilReady(ctx, url, ping); err != nil {
		return nil, fmt.Errorf("no answer from the server that %s names: %w", env, err)
	}
	return &Shared{URL: url, How: "given by " + env}, nil
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
