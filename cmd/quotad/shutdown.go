package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// errCutShort is returned when a shutdown did not come to its end.
var errCutShort = errors.New("the shutdown was cut short")

// lastMoment is how long a shutdown that is cut short still waits for what takes no time.
const lastMoment = 250 * time.Millisecond

// run serves until ctx ends or a part fails, then shuts down: readiness fails, calls in flight finish, what is in memory
// is written, pools close. When hurry is closed, or the grace is over, it logs what is left and returns errCutShort.
func (n *node) run(ctx context.Context, hurry <-chan struct{}) error {
	lasting := context.WithoutCancel(ctx)
	// The parts go on until the calls in flight are done.
	parts, stop := context.WithCancel(lasting)
	defer stop()
	group, failed := errgroup.WithContext(parts)
	for _, run := range n.runners() {
		group.Go(func() error { return run(failed) })
	}
	group.Go(n.metered.serve)
	group.Go(n.admin.serve)
	if n.gateway != nil {
		group.Go(n.gateway.serve)
	}
	if n.grpc != nil {
		group.Go(n.grpc.serve)
	}

	select {
	case <-ctx.Done():
		n.logger.Info("shutting down", "delay", n.config.ShutdownDelay.String(), "grace", n.config.ShutdownGrace.String())
		n.drain(failed.Done(), hurry)
	case <-failed.Done():
		n.logger.Error("shutting down, because a part of the node failed")
		n.api.Drain()
	}

	grace, cancel := context.WithTimeout(lasting, n.config.ShutdownGrace)
	defer cancel()
	go func() {
		select {
		case <-hurry:
			cancel()
		case <-grace.Done():
		}
	}()
	calls, err := n.finishCalls(grace)
	stop()
	return errors.Join(err, n.finishParts(grace, group, calls))
}

// runners are the parts that run beside the servers.
func (n *node) runners() []func(context.Context) error {
	run := []func(context.Context) error{n.log.Run, n.touches.Run, n.answers.Run, n.watch.run}
	if n.failover != nil {
		run = append(run, n.failover.Run)
	}
	return run
}

// drain makes readiness fail and goes on taking calls, so that whoever sends them has the time to notice.
func (n *node) drain(failed, hurry <-chan struct{}) {
	n.api.Drain()
	n.metered.draining.Store(true)
	n.admin.draining.Store(true)
	if n.gateway != nil {
		n.gateway.draining.Store(true)
	}
	if n.grpc != nil {
		n.grpc.Drain()
	}
	select {
	case <-time.After(n.config.ShutdownDelay):
	case <-failed:
	case <-hurry:
	}
}

// finishCalls lets the calls in flight finish, and returns how many it had to cut off. What they take of the grace at most
// leaves a part of it for what is to be written after them. The admin listener ends last, so that metrics and readiness
// can be seen.
func (n *node) finishCalls(grace context.Context) (cut int64, err error) {
	ctx, cancel := context.WithTimeout(grace, n.config.ShutdownGrace*4/5)
	defer cancel()
	var passed, asked int64
	var errPassed error
	var all sync.WaitGroup
	if n.gateway != nil {
		all.Go(func() { passed, errPassed = n.gateway.finish(ctx) })
	}
	if n.grpc != nil {
		all.Go(func() { asked = n.grpc.Shutdown(ctx) })
	}
	metered, err := n.metered.shutdown(ctx)
	all.Wait()
	admin, errAdmin := n.admin.shutdown(ctx)
	return metered + passed + asked + admin, errors.Join(err, errPassed, errAdmin)
}

// finishParts waits for the parts to write what they hold, and closes the pools unless calls that were cut off still
// use them.
func (n *node) finishParts(grace context.Context, group *errgroup.Group, calls int64) error {
	ended := make(chan error, 1)
	go func() { ended <- group.Wait() }()
	var err error
	select {
	case err = <-ended:
	case <-grace.Done():
		select {
		case err = <-ended:
		case <-time.After(lastMoment):
			err = errors.New("parts of the node were still at work")
		}
	}
	if calls > 0 || grace.Err() != nil {
		left := n.touches.Pending()
		n.logger.Error("shutdown was cut short", "calls", calls, "last_uses", left)
		return errors.Join(err, fmt.Errorf("%w: %d calls were cut off, the last uses of %d keys are not written", errCutShort, calls, left))
	}
	if err = errors.Join(err, n.close()); err == nil {
		n.logger.Info("shut down")
	}
	return err
}
