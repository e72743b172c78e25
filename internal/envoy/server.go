package envoy

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/callers"
	"github.com/quotad/quotad/internal/messages"
	"github.com/quotad/quotad/internal/quota"
	"github.com/quotad/quotad/internal/replies"
)

// Checker answers the one question. *quota.Checker is one.
type Checker interface {
	// Check charges the call, or says which limit refuses it (Allowed is false).
	Check(ctx context.Context, call quota.Call) (quotad.Decision, error)
	// CheckTogether charges all of the calls, or none.
	CheckTogether(ctx context.Context, calls []quota.Call) []quota.Result
	// Peek says where the limits of a call stand that was asked before, and charges
	// and counts nothing.
	Peek(ctx context.Context, call quota.Call) (quotad.Decision, error)
	// CheckServiceToken is nil for a token that may speak for any tenant.
	CheckServiceToken(ctx context.Context, token string) error
}

// Trust is what is believed of a peer that sends no service token.
type Trust string

// What may be believed of such a peer.
const (
	// TrustNone: its calls are refused.
	TrustNone Trust = "none"
	// TrustKeys: it may present API keys, and say where a call came from.
	TrustKeys Trust = "keys"
	// TrustTenants: it may also name tenants.
	TrustTenants Trust = "tenants"
)

// Trusts are all of them.
var Trusts = []Trust{TrustNone, TrustKeys, TrustTenants}

// Options tune a Server. The zero value works.
type Options struct {
	// Logger gets panics, nothing else; there is none by default.
	Logger *slog.Logger
	// Trust is TrustKeys by default.
	Trust Trust
	// TrustedProxies are the addresses in front of Envoy whose X-Forwarded-For is
	// believed in ext_authz. None by default.
	TrustedProxies []netip.Prefix
	// OmitIETFHeaders leaves out RateLimit and RateLimit-Policy.
	OmitIETFHeaders bool
	// CORSOrigins are the origins whose pages may read a refusal; "*" means all. None by default.
	CORSOrigins []string
	// Ready says whether the node can serve; always by default. It has 2 s.
	Ready func(ctx context.Context) bool
	// Registerer gets the metrics; none are kept by default.
	Registerer prometheus.Registerer
	// Now is time.Now by default.
	Now func() time.Time
}

// Server answers Envoy. It is safe for concurrent use.
type Server struct {
	checker  Checker
	logger   *slog.Logger
	trust    Trust
	proxies  callers.Proxies
	origins  replies.Origins
	ietf     bool
	ready    func(ctx context.Context) bool
	now      func() time.Time
	metrics  *metrics
	messages *messages.Messages
	values   sync.Pool // of *replies.Values

	grpc     *grpc.Server
	inFlight atomic.Int64
	drain    func()          // ends draining
	draining <-chan struct{} // closed once calls should go elsewhere
}

// Bounds of what a peer may send. Envoy's largest message is an ext_authz check with
// all headers of a request, by default at most 60 KiB; a body that it was told to send
// along is not read, but has to fit.
const (
	maxMessage  = 1 << 20
	maxMetadata = 16 << 10
	maxStreams  = 16 << 10 // calls at once on one connection; further ones wait at the peer
)

// New returns a server that asks the checker. Serve starts it.
func New(checker Checker, opts Options) *Server {
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if opts.Trust == "" {
		opts.Trust = TrustKeys
	}
	if opts.Ready == nil {
		opts.Ready = func(context.Context) bool { return true }
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	draining, drain := context.WithCancel(context.Background())
	s := &Server{
		checker: checker, logger: opts.Logger, trust: opts.Trust, proxies: callers.NewProxies(opts.TrustedProxies),
		origins: replies.NewOrigins(opts.CORSOrigins), ietf: !opts.OmitIETFHeaders, ready: opts.Ready, now: opts.Now,
		metrics: newMetrics(opts.Registerer), messages: messages.New(), drain: drain, draining: draining.Done(),
	}
	s.values.New = func() any { return new(replies.Values) }
	s.grpc = grpc.NewServer(
		grpc.ChainUnaryInterceptor(s.observe),
		grpc.StreamInterceptor(s.survive),
		grpc.ForceServerCodecV2(newCodec()),
		grpc.MaxRecvMsgSize(maxMessage),
		grpc.MaxHeaderListSize(maxMetadata),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.ConnectionTimeout(10*time.Second),
		grpc.NumStreamWorkers(uint32(2*runtime.GOMAXPROCS(0))), // calls are short: they need no goroutine of their own
		grpc.WaitForHandlers(true),
		// Envoy may ping a connection that carries nothing; a peer that is gone is noticed.
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: time.Minute, Timeout: 20 * time.Second}),
	)
	ratelimitv3.RegisterRateLimitServiceServer(s.grpc, rateLimits{s})
	authv3.RegisterAuthorizationServer(s.grpc, authorizations{s})
	healthv1.RegisterHealthServer(s.grpc, health{Server: s})
	reflection.Register(s.grpc)
	return s
}

// Serve answers what comes in over the listener, until Shutdown or Close.
func (s *Server) Serve(l net.Listener) error {
	if err := s.grpc.Serve(l); !errors.Is(err, grpc.ErrServerStopped) {
		return err
	}
	return nil
}

// Drain makes the health service say that calls should go elsewhere. They are still answered.
func (s *Server) Drain() { s.drain() }

// Shutdown takes no more calls, and waits for those in flight until ctx ends: then it
// cuts them off, and returns how many.
func (s *Server) Shutdown(ctx context.Context) (cut int64) {
	s.Drain() // ends those who watch the health, who would be waited for
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		s.grpc.GracefulStop()
	}()
	select {
	case <-stopped:
		return 0
	case <-ctx.Done():
	}
	cut = s.inFlight.Load()
	go s.grpc.Stop() // it waits for handlers, which need not end
	return cut
}

// Close ends the server at once.
func (s *Server) Close() {
	s.Drain()
	s.grpc.Stop()
}

// InFlight is how many calls are being answered.
func (s *Server) InFlight() int64 { return s.inFlight.Load() }
