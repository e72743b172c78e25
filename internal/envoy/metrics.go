package envoy

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
)

// services are the labels of the services; any other is the last.
var services = [...]string{doorRateLimit, doorExtAuthz, "other"}

// lastCode is the greatest code of gRPC.
const lastCode = codes.Unauthenticated

// metrics counts calls and times them. All series exist from the start.
type metrics struct {
	requests  [len(services)][lastCode + 1]prometheus.Counter
	durations [len(services)]prometheus.Observer
	// unknown are descriptors that name nothing we know.
	unknown prometheus.Counter
}

func newMetrics(registerer prometheus.Registerer) *metrics {
	requests := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "quotad_grpc_requests_total",
		Help: "Calls to the gRPC listener by service and code. A call that was refused by a limit was answered, and is OK.",
	}, []string{"service", "code"})
	durations := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "quotad_grpc_request_duration_seconds",
		Help:    "Time that the answer to a call took, by service.",
		Buckets: []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1},
	}, []string{"service"})
	m := &metrics{unknown: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "quotad_grpc_unknown_descriptors_total",
		Help: "Descriptors that name neither a caller nor a route, and so were answered with OK and counted nowhere.",
	})}
	for i, service := range services {
		m.durations[i] = durations.WithLabelValues(service)
		for code := range m.requests[i] {
			m.requests[i][code] = requests.WithLabelValues(service, codes.Code(code).String())
		}
	}
	if registerer != nil {
		registerer.MustRegister(requests, durations, m.unknown)
	}
	return m
}

// count counts one call.
func (m *metrics) count(service int, err error, took time.Duration) {
	code := status.Code(err)
	if code > lastCode {
		code = codes.Unknown
	}
	m.requests[service][code].Inc()
	m.durations[service].Observe(took.Seconds())
}

func serviceOf(method string) int {
	switch method {
	case ratelimitv3.RateLimitService_ShouldRateLimit_FullMethodName:
		return 0
	case authv3.Authorization_Check_FullMethodName:
		return 1
	}
	return len(services) - 1
}

// observe is around every call: it is counted, and a panic ends it and nothing else.
func (s *Server) observe(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (response any, err error) {
	s.inFlight.Add(1)
	started := s.now()
	defer func() {
		if p := recover(); p != nil {
			response, err = nil, s.panicked(ctx, info.FullMethod, p)
		}
		s.metrics.count(serviceOf(info.FullMethod), err, s.now().Sub(started))
		s.inFlight.Add(-1)
	}()
	return handler(ctx, request)
}

// survive is around every stream.
func (s *Server) survive(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = s.panicked(stream.Context(), info.FullMethod, p)
		}
	}()
	return handler(server, stream)
}
