package testenv

import (
	"context"
	"errors"
	"fmt"
	"os"
)

// instance is one running server, in a process or in a container.
type instance interface {
	address() string // its URL, the same for its whole life
	start(context.Context) error
	kill(context.Context) error
	freeze(context.Context) error
	resume(context.Context) error
	remove() error
}

// way starts a server in one manner and says in which.
type way func(context.Context) (instance, string, error)

// postgresWays are the ways to start a Postgres server, by the words of WayEnv.
func postgresWays() map[string]way {
	return map[string]way{
		"docker": func(ctx context.Context) (instance, string, error) { return startContainer(ctx, postgresContainer()) },
		"local":  func(ctx context.Context) (instance, string, error) { return described(localPostgres(ctx)) },
	}
}

func described(p *process, program string, err error) (instance, string, error) {
	if err != nil {
		return nil, "", err
	}
	return p, "a server of this machine, " + program, nil
}

// start starts a server in the first of the ways in order that works, or in the one that WayEnv forces.
func start(ctx context.Context, name string, ways map[string]way, order ...string) (*Shared, error) {
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
