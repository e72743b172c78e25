package testenv

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestOwnRedisFreezesStopsAndStartsWithItsData(t *testing.T) {
	t.Parallel()
	server := OwnRedis(t, "--maxmemory", "64mb")
	client := dial(t, server.URL())
	ctx := t.Context()
	if got, err := client.ConfigGet(ctx, "maxmemory").Result(); err != nil || got["maxmemory"] != "67108864" {
		t.Errorf("maxmemory: got %v, %v, want the setting that was given", got, err)
	}
	if err := client.Set(ctx, "kept", "yes", 0).Err(); err != nil {
		t.Fatal(err)
	}

	server.Freeze()
	if err := briefly(ctx, server.URL(), pingRedis); !isTimeout(err) {
		t.Errorf("while frozen: got %v, want a timeout", err)
	}
	server.Resume()
	if got, err := client.Get(ctx, "kept").Result(); err != nil || got != "yes" {
		t.Errorf("after Resume: got %q, %v", got, err)
	}

	server.Stop()
	if err := pingRedis(ctx, server.URL()); err == nil || isTimeout(err) {
		t.Errorf("while stopped: got %v, want a refused connection", err)
	}
	server.Start()
	if got, err := dial(t, server.URL()).Get(ctx, "kept").Result(); err != nil || got != "yes" {
		t.Errorf("after Start: got %q, %v", got, err)
	}
	server.Freeze()
	server.Stop() // a frozen server can be stopped, and removed, as well
}

func TestOwnPostgresFreezesStopsAndStartsWithItsData(t *testing.T) {
	t.Parallel()
	server := OwnPostgres(t)
	mustExecute(t, server.URL(), "CREATE TABLE kept AS SELECT 1 AS one")

	server.Freeze()
	if err := briefly(t.Context(), server.URL(), pingPostgres); !isTimeout(err) {
		t.Errorf("while frozen: got %v, want a timeout", err)
	}
	server.Resume()
	mustExecute(t, server.URL(), "SELECT one FROM kept")

	server.Stop()
	if err := pingPostgres(t.Context(), server.URL()); err == nil || isTimeout(err) {
		t.Errorf("while stopped: got %v, want a refused connection", err)
	}
	server.Start()
	mustExecute(t, server.URL(), "SELECT one FROM kept")
	server.Freeze() // and is removed frozen
}

func TestAnImpossibleWayFailsWithAdvice(t *testing.T) {
	t.Setenv(WayEnv, "cloud")
	t.Setenv(RedisEnv, "")
	if _, err := StartRedis(t.Context()); err == nil || !strings.Contains(err.Error(), `"cloud"`) {
		t.Errorf("an unknown way: got %v, want an error that names it", err)
	}
	t.Setenv(WayEnv, "docker")
	found, err := start(t.Context(), "redis", map[string]way{
		"docker": func(context.Context) (instance, string, error) { return nil, "", errors.New("no daemon") },
	}, "docker")
	if err == nil || !strings.Contains(err.Error(), "no daemon") || !strings.Contains(err.Error(), "Start Docker, or install") {
		t.Errorf("no server: got %v, %v, want what was tried and what to do", found, err)
	}
}

func TestANamedProgramTakesThePlaceOfRedis(t *testing.T) {
	dir := t.TempDir()
	program, mark := filepath.Join(dir, "like-redis"), filepath.Join(dir, "started")
	if err := os.WriteFile(program, []byte("#!/bin/sh\ntouch "+mark+"\nexit 1\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv(WayEnv, "")
	t.Setenv(RedisEnv, "")
	t.Setenv(RedisProgramEnv, program)
	found, err := StartRedis(t.Context())
	if err == nil || !strings.Contains(err.Error(), program) {
		t.Errorf("a program that ends at once: got %v, %v, want an error that names it: another must not take its place", found, err)
	}
	if _, err := os.Stat(mark); err != nil {
		t.Errorf("the program was not started: %v", err)
	}
	t.Setenv(RedisProgramEnv, program+"-that-is-not-there")
	if _, err := StartRedis(t.Context()); err == nil || !strings.Contains(err.Error(), RedisProgramEnv) {
		t.Errorf("no such program: got %v, want an error that names %s: another must not take its place", err, RedisProgramEnv)
	}
}

func TestAGivenServerThatDoesNotAnswerIsAnError(t *testing.T) {
	t.Setenv(RedisEnv, "redis://127.0.0.1:1/0")
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := StartRedis(ctx); err == nil || !strings.Contains(err.Error(), RedisEnv) {
		t.Errorf("got %v, want an error that names %s: another server must not take its place", err, RedisEnv)
	}
}

// The tests should use the versions that users are told to run.
func TestImagesAreThoseOfDockerCompose(t *testing.T) {
	t.Parallel()
	compose, err := os.ReadFile("../../docker-compose.yml")
	if err != nil {
		t.Fatal(err)
	}
	for _, image := range []string{postgresImage, redisImage} {
		if !strings.Contains(string(compose), "image: "+image+"\n") {
			t.Errorf("docker-compose.yml has no image %s", image)
		}
	}
}

// briefly gives ping half a second.
func briefly(ctx context.Context, url string, ping func(context.Context, string) error) error {
	ctx, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
	defer cancel()
	return ping(ctx, url)
}

func isTimeout(err error) bool {
	var timeout interface{ Timeout() bool }
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout()
}
