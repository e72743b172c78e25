package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	_ "time/tzdata" // tenants have time zones, and small images have no table of them

	"github.com/redis/go-redis/v9/logging"
)

func main() {
	// What fails in there is logged where it is handled, once per interval and as JSON.
	logging.Disable()
	ctx, hurry := signals()
	p := program{stdout: os.Stdout, stderr: os.Stderr, environ: os.Environ(), hurry: hurry}
	os.Exit(p.run(ctx, os.Args[1:]))
}

// signals ends ctx with the first SIGINT or SIGTERM and closes hurry with the second. From then on a signal has its
// default effect.
func signals() (ctx context.Context, hurry <-chan struct{}) {
	ctx, cancel := context.WithCancel(context.Background())
	closed := make(chan struct{})
	signalled := make(chan os.Signal, 2)
	signal.Notify(signalled, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signalled
		cancel()
		<-signalled
		close(closed)
		signal.Stop(signalled)
	}()
	return ctx, closed
}
