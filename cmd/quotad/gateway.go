package main

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/quotad/quotad/internal/httpapi"
)

// gateway is the listener whose calls are passed on.
type gateway struct {
	*listener
	*httpapi.Gateway
}

// openGateway makes the gateway of a node whose metered API is wired.
func openGateway(n *node, groups httpapi.RouteGroups, registry prometheus.Registerer) (*gateway, error) {
	upstreams, err := httpapi.ParseUpstreams(n.config.Upstream)
	if err != nil {
		return nil, fmt.Errorf("read the upstreams: %w", err)
	}
	g := httpapi.NewGateway(n.api, groups, upstreams, httpapi.GatewayOptions{
		UpstreamTimeout: n.config.UpstreamTimeout, MaxWaiting: n.config.GatewayWaiting, Registerer: registry,
	})
	l, err := listen(n.config.GatewayListen, "gateway-listen", "QUOTAD_GATEWAY_LISTEN", g.HTTPServer())
	if err != nil {
		return nil, fmt.Errorf("listen for the gateway: %w", err)
	}
	return &gateway{listener: l, Gateway: g}, nil
}

// finish ends the streams, which have no end of their own, and lets all other calls in flight finish. It returns how
// many it had to cut off.
func (g *gateway) finish(ctx context.Context) (cut int64, err error) {
	g.EndStreams()
	defer g.Gateway.Close()
	return g.shutdown(ctx)
}
