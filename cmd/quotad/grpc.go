package main

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/quotad/quotad/internal/envoy"
	"github.com/quotad/quotad/internal/quota"
)

// grpcListener is where Envoy asks.
type grpcListener struct {
	net.Listener
	*envoy.Server
}

// openGRPC makes the listener for Envoy of a node whose metered API is wired.
func openGRPC(n *node, checker *quota.Checker, registry prometheus.Registerer) (*grpcListener, error) {
	bound, err := bind(n.config.GRPCListen, "grpc-listen", "QUOTAD_GRPC_LISTEN")
	if err != nil {
		return nil, fmt.Errorf("listen for Envoy: %w", err)
	}
	return &grpcListener{Listener: bound, Server: envoy.New(checker, envoy.Options{
		Logger: n.logger, Trust: n.config.GRPCTrust, TrustedProxies: n.config.TrustedProxies, OmitIETFHeaders: !n.config.IETFHeaders,
		CORSOrigins: n.config.CORSOrigins, Registerer: registry,
		Ready: func(ctx context.Context) bool { return len(n.watch.ready(ctx).Reasons) == 0 },
	})}, nil
}

func (l *grpcListener) addr() net.Addr { return l.Listener.Addr() }

// serve answers until shutdown or close.
func (l *grpcListener) serve() error { return l.Server.Serve(l.Listener) }

func (l *grpcListener) close() error {
	l.Server.Close()
	// The server knows of the port only once it served.
	if err := l.Listener.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}
