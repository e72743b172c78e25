package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"syscall"
	"time"
)

// listener is an HTTP server on a port that is bound already.
type listener struct {
	net.Listener
	server *http.Server
	// inFlight is how many requests are being answered.
	inFlight atomic.Int64
	// draining asks clients to close their connections.
	draining atomic.Bool
}

// bind binds a port. The error names the option that says which port.
func bind(address, option, env string) (net.Listener, error) {
	bound, err := net.Listen("tcp", address)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("%w; choose another with --%s or %s", err, option, env)
	}
	if err != nil {
		return nil, fmt.Errorf("%w (--%s or %s)", err, option, env)
	}
	return bound, nil
}

// listen binds a port for a server. Connections wait there until serve.
func listen(address, option, env string, server *http.Server) (*listener, error) {
	bound, err := bind(address, option, env)
	if err != nil {
		return nil, err
	}
	l := &listener{Listener: bound, server: server}
	inner := server.Handler
	server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		l.inFlight.Add(1)
		defer l.inFlight.Add(-1)
		if l.draining.Load() {
			// The client goes elsewhere with its next request; if the server closed the connection instead, that
			// request might be on its way already.
			w.Header().Set("Connection", "close")
		}
		inner.ServeHTTP(w, r)
	})
	return l, nil
}

func (l *listener) addr() net.Addr { return l.Listener.Addr() }

// serve answers until shutdown or close.
func (l *listener) serve() error {
	if err := l.server.Serve(l.Listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// shutdown takes no more connections and waits for the requests in flight, until ctx ends: then it cuts them off, and
// returns how many.
func (l *listener) shutdown(ctx context.Context) (cut int64, err error) {
	err = l.server.Shutdown(ctx)
	if err != nil && ctx.Err() == nil {
		return 0, err
	}
	// Connections that were taken over, as by websockets, are not the server's to wait for.
	for l.inFlight.Load() > 0 && ctx.Err() == nil {
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
		}
	}
	if cut = l.inFlight.Load(); cut == 0 && err == nil {
		return 0, nil
	}
	return cut, l.close()
}

func (l *listener) close() error {
	err := l.server.Close()
	// The server knows of the port only once it served.
	if closing := l.Listener.Close(); !errors.Is(closing, net.ErrClosed) {
		err = errors.Join(err, closing)
	}
	return err
}
