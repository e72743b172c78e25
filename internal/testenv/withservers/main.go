// Withservers brings up the servers that tests share once, runs a command with their URLs in its environment, and takes
// them down again. It passes on the command's exit code.
//
//	go run ./internal/testenv/withservers -- go test ./...
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"github.com/quotad/quotad/internal/testenv"
)

func main() {
	code, err := run(os.Args[1:])
	if err != nil {
		fmt.Fprintf(os.Stderr, "withservers: %v\n", err)
	}
	os.Exit(code)
}

func run(args []string) (code int, err error) {
	if len(args) > 0 && args[0] == "--" {
		args = args[1:]
	}
	if len(args) == 0 {
		return 2, errors.New("usage: withservers -- command [argument…]")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	for _, server := range []struct {
		name, env string
		start     func(context.Context) (*testenv.Shared, error)
	}{
		{"postgres", testenv.PostgresEnv, testenv.StartPostgres},
		{"redis", testenv.RedisEnv, testenv.StartRedis},
	} {
		shared, err := server.start(ctx)
		if err != nil {
			return 1, err
		}
		defer func() {
			if e := shared.Close(); e != nil {
				code, err = max(code, 1), errors.Join(err, e)
			}
		}()
		fmt.Fprintf(os.Stderr, "withservers: %s: %s\n", server.name, shared.How)
		if err := os.Setenv(server.env, shared.URL); err != nil {
			return 1, fmt.Errorf("export %s: %w", server.env, err)
		}
	}
	return command(ctx, args)
}

// command runs args and returns its exit code. When we are told to end, it is asked to end first.
func command(ctx context.Context, args []string) (int, error) {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0, nil
	case errors.As(err, &exit) && exit.Exited():
		return exit.ExitCode(), nil
	default:
		return 1, fmt.Errorf("run %s: %w", args[0], err)
	}
}
