package envoy

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
)

// page is a log that can be read while it is written.
type page struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (p *page) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.Write(b)
}

func (p *page) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.String()
}

func TestAPanicEndsOneCallAndNothingElse(t *testing.T) {
	t.Parallel()
	log := &page{}
	a := &answers{decision: admitted(), before: func() { panic("a defect") }}
	s := serve(t, a, Options{Logger: slog.New(slog.NewJSONHandler(log, nil))})
	for range 3 {
		_, err := s.limits.ShouldRateLimit(within(t), request(descriptor("api_key=qk_a")))
		wantCode(t, err, codes.Internal, "internal: ")
		if strings.Contains(err.Error(), "a defect") {
			t.Error(err)
		}
		_, err = s.authorize.Check(within(t), check("/v1/x"))
		wantCode(t, err, codes.Internal, "internal: ")
	}
	if !strings.Contains(log.String(), "a defect") || !strings.Contains(log.String(), "server_test.go") {
		t.Errorf("the log: %s", log)
	}
	a.before = nil
	s.should(t, request(descriptor("api_key=qk_a")))
	if s.InFlight() != 0 {
		t.Errorf("%d are in flight", s.InFlight())
	}
}

func TestMessagesAreCapped(t *testing.T) {
	t.Parallel()
	s := serve(t, &answers{decision: admitted()}, Options{})
	r := check("/v1/x")
	r.Attributes.Request.Http.Body = strings.Repeat("x", maxMessage-(64<<10)) // not read, but it fits
	s.may(t, r)
	r.Attributes.Request.Http.Body = strings.Repeat("x", maxMessage)
	_, err := s.authorize.Check(within(t), r)
	wantCode(t, err, codes.ResourceExhausted, "")
	_, err = s.authorize.Check(within(t, "authorization", "Bearer "+strings.Repeat("x", maxMetadata)), check("/v1/x"))
	if err == nil {
		t.Error("any amount of metadata is taken")
	}
	s.may(t, check("/v1/x"))
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	s := serve(t, &answers{decision: refused()}, Options{Registerer: registry})
	series := func() int {
		n := 0
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			n += len(f.GetMetric())
		}
		return n
	}
	before := series()
	for range 2 {
		s.should(t, request(descriptor("api_key=qk_a")))
	}
	_, err := s.limits.ShouldRateLimit(within(t), request())
	wantCode(t, err, codes.InvalidArgument, "")
	s.may(t, check("/v1/x"))
	if _, err := healthv1.NewHealthClient(s.conn).Check(within(t), &healthv1.HealthCheckRequest{}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		service int
		code    codes.Code
		want    float64
	}{{0, codes.OK, 2}, {0, codes.InvalidArgument, 1}, {1, codes.OK, 1}, {2, codes.OK, 1}, {1, codes.Internal, 0}} {
		if got := counter(t, s.metrics.requests[c.service][c.code]); got != c.want {
			t.Errorf("%s, %s: %v, want %v", services[c.service], c.code, got, c.want)
		}
	}
	if after := series(); after != before {
		t.Errorf("%d series, then %d", before, after)
	}
}

func TestHealthFollowsReadinessAndTheDrain(t *testing.T) {
	t.Parallel()
	var ready atomic.Bool
	s := serve(t, &answers{}, Options{Ready: func(context.Context) bool { return ready.Load() }})
	client := healthv1.NewHealthClient(s.conn)
	want := func(want healthv1.HealthCheckResponse_ServingStatus) {
		t.Helper()
		for _, name := range healthNames {
			r, err := client.Check(within(t), &healthv1.HealthCheckRequest{Service: name})
			if err != nil || r.GetStatus() != want {
				t.Errorf("%q: %v, %v; want %s", name, r, err, want)
			}
		}
		list, err := client.List(within(t), &healthv1.HealthListRequest{})
		if err != nil || len(list.GetStatuses()) != len(healthNames) || list.GetStatuses()[""].GetStatus() != want {
			t.Errorf("list: %v, %v", list, err)
		}
	}
	want(healthv1.HealthCheckResponse_NOT_SERVING)
	_, err := client.Check(within(t), &healthv1.HealthCheckRequest{Service: "nobody"})
	wantCode(t, err, codes.NotFound, "")

	watch, err := client.Watch(within(t), &healthv1.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	nobody, err := client.Watch(within(t), &healthv1.HealthCheckRequest{Service: "nobody"})
	if err != nil {
		t.Fatal(err)
	}
	next := func(stream healthv1.Health_WatchClient, want healthv1.HealthCheckResponse_ServingStatus) {
		t.Helper()
		if r, err := stream.Recv(); err != nil || r.GetStatus() != want {
			t.Errorf("got %v, %v; want %s", r, err, want)
		}
	}
	next(nobody, healthv1.HealthCheckResponse_SERVICE_UNKNOWN)
	next(watch, healthv1.HealthCheckResponse_NOT_SERVING)
	ready.Store(true)
	next(watch, healthv1.HealthCheckResponse_SERVING)
	want(healthv1.HealthCheckResponse_SERVING)

	s.Drain()
	next(watch, healthv1.HealthCheckResponse_NOT_SERVING)
	want(healthv1.HealthCheckResponse_NOT_SERVING)
	for _, stream := range []healthv1.Health_WatchClient{watch, nobody} {
		if _, err := stream.Recv(); status.Code(err) != codes.Unavailable {
			t.Errorf("the watch goes on: %v", err)
		}
	}
	s.should(t, request(descriptor("generic_key=x"))) // calls are still answered
}

func TestReflectionListsTheServices(t *testing.T) {
	t.Parallel()
	s := serve(t, &answers{}, Options{})
	stream, err := reflectionv1.NewServerReflectionClient(s.conn).ServerReflectionInfo(within(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&reflectionv1.ServerReflectionRequest{MessageRequest: &reflectionv1.ServerReflectionRequest_ListServices{}}); err != nil {
		t.Fatal(err)
	}
	r, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"envoy.service.ratelimit.v3.RateLimitService", "envoy.service.auth.v3.Authorization", "grpc.health.v1.Health"} {
		if !strings.Contains(r.String(), name) {
			t.Errorf("%s is not listed", name)
		}
	}
}

func TestShutdownLetsCallsFinish(t *testing.T) {
	t.Parallel()
	begun, finish := make(chan struct{}), make(chan struct{})
	a := &answers{decision: admitted(), before: func() { close(begun); <-finish }}
	s := serve(t, a, Options{})
	watch, err := healthv1.NewHealthClient(s.conn).Watch(within(t), &healthv1.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := watch.Recv(); err != nil { // somebody who watches does not hold it up
		t.Fatal(err)
	}
	answered := make(chan error, 1)
	go func() {
		_, err := s.authorize.Check(within(t), check("/v1/x"))
		answered <- err
	}()
	<-begun
	cut := make(chan int64, 1)
	go func() { cut <- s.Shutdown(within(t)) }()
	select {
	case n := <-cut:
		t.Fatalf("it did not wait for the call, and cut off %d", n)
	case <-time.After(100 * time.Millisecond):
	}
	close(finish)
	select {
	case n := <-cut:
		if err := <-answered; n != 0 || err != nil {
			t.Errorf("cut off %d; the call: %v", n, err)
		}
	case <-time.After(patience):
		t.Fatal("it waits for somebody who watches the health")
	}
	var late *authv3.CheckResponse
	if late, err = s.authorize.Check(within(t), check("/v1/x")); status.Code(err) != codes.Unavailable {
		t.Errorf("a call afterwards: %v, %v", late, err)
	}
}

func TestShutdownCutsOffWhatTakesTooLong(t *testing.T) {
	t.Parallel()
	begun, finish := make(chan struct{}), make(chan struct{})
	s := serve(t, &answers{decision: admitted(), before: func() { close(begun); <-finish }}, Options{})
	answered := make(chan error, 1)
	go func() {
		_, err := s.authorize.Check(within(t), check("/v1/x"))
		answered <- err
	}()
	<-begun
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if cut := s.Shutdown(ctx); cut != 1 {
		t.Errorf("%d were cut off, want 1", cut)
	}
	if err := <-answered; status.Code(err) != codes.Unavailable {
		t.Errorf("the call that was cut off: %v", err)
	}
	close(finish)
}
