package envoy

import (
	"context"
	"slices"
	"time"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

// health is grpc.health.v1: whether calls may be sent here, as /readyz says over HTTP.
type health struct {
	*Server
	healthv1.UnimplementedHealthServer
}

// healthNames are the services that may be asked about; "" is the server as a whole.
var healthNames = []string{"", ratelimitv3.RateLimitService_ServiceDesc.ServiceName, authv3.Authorization_ServiceDesc.ServiceName}

const (
	// readyTimeout is how long Options.Ready may take.
	readyTimeout = 2 * time.Second
	// watchEvery is how late a change of health is told to those who watch it.
	watchEvery = time.Second
)

// Check says whether a service, or the server, takes calls.
func (h health) Check(ctx context.Context, r *healthv1.HealthCheckRequest) (*healthv1.HealthCheckResponse, error) {
	if !isHealthName(r.GetService()) {
		return nil, status.Error(codes.NotFound, "unknown service")
	}
	return &healthv1.HealthCheckResponse{Status: h.status(ctx)}, nil
}

// List says it of all of them.
func (h health) List(ctx context.Context, _ *healthv1.HealthListRequest) (*healthv1.HealthListResponse, error) {
	list, now := map[string]*healthv1.HealthCheckResponse{}, h.status(ctx)
	for _, name := range healthNames {
		list[name] = &healthv1.HealthCheckResponse{Status: now}
	}
	return &healthv1.HealthListResponse{Statuses: list}, nil
}

// Watch says it now and whenever it changes, until the server drains.
func (h health) Watch(r *healthv1.HealthCheckRequest, stream healthv1.Health_WatchServer) error {
	ticker := time.NewTicker(watchEvery)
	defer ticker.Stop()
	last := healthv1.HealthCheckResponse_UNKNOWN
	for {
		now := healthv1.HealthCheckResponse_SERVICE_UNKNOWN // the stream stays open, as its definition wants it
		if isHealthName(r.GetService()) {
			now = h.status(stream.Context())
		}
		if now != last {
			if err := stream.Send(&healthv1.HealthCheckResponse{Status: now}); err != nil {
				return err
			}
			last = now
		}
		select {
		case <-h.draining:
			if last == healthv1.HealthCheckResponse_SERVING {
				continue // says so first
			}
			return status.Error(codes.Unavailable, "shutting down")
		case <-stream.Context().Done():
			return status.FromContextError(stream.Context().Err()).Err()
		case <-ticker.C:
		}
	}
}

func (h health) status(ctx context.Context) healthv1.HealthCheckResponse_ServingStatus {
	select {
	case <-h.draining:
		return healthv1.HealthCheckResponse_NOT_SERVING
	default:
	}
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	if !h.ready(ctx) {
		return healthv1.HealthCheckResponse_NOT_SERVING
	}
	return healthv1.HealthCheckResponse_SERVING
}

func isHealthName(name string) bool { return slices.Contains(healthNames, name) }
