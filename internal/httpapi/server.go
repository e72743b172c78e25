package httpapi

import (
	"context"
	"log/slog"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/callers"
	"github.com/quotad/quotad/internal/messages"
	"github.com/quotad/quotad/internal/quota"
)

// Checker answers the one question, and logs the refusals and the failures that
// it foresees. *quota.Checker is one.
type Checker interface {
	// Check charges the call, or says which limit refuses it (Allowed is false). It is
	// told of calls that a door refuses by itself, too (Fault).
	Check(ctx context.Context, call quota.Call) (quotad.Decision, error)
	// CheckAll charges the calls of a list, each as Check does and after those before it.
	// There are no results where their credential fails, by the error, or a limit on
	// their address refuses, as the Decision says.
	CheckAll(ctx context.Context, calls []quota.Call) ([]quota.Result, quotad.Decision, error)
	// Limits says what is left in each route group that the caller may use, or in
	// the one that the call names, and charges nothing.
	Limits(ctx context.Context, call quota.Call) ([]quotad.Decision, error)
}

// Options tune a Server. The zero value works.
type Options struct {
	// Logger gets panics, other failures that nobody foresaw (one line in a second)
	// and warnings, nothing per call; there is none by default.
	Logger *slog.Logger
	// TrustedProxies are the peers whose X-Forwarded-For, -Method and -Uri,
	// X-Original-Method and -URI, and X-Quotad-Subject are believed. None by default:
	// neither loopback nor private networks are trusted unless they are listed.
	TrustedProxies []netip.Prefix
	// OmitIETFHeaders leaves out RateLimit and RateLimit-Policy.
	OmitIETFHeaders bool
	// CORSOrigins are the origins whose pages may read the answers, such as
	// "https://app.example.com"; "*" means all. None by default.
	CORSOrigins []string
	// Ready says whether the node can serve; always by default. It has 2 s.
	Ready func(ctx context.Context) Readiness
	// Registerer gets the metrics; none are kept by default.
	Registerer prometheus.Registerer
	// Now is time.Now by default.
	Now func() time.Time
}

// Server answers the metered API. It is safe for concurrent use.
type Server struct {
	checker  Checker
	logger   *slog.Logger
	proxies  callers.Proxies
	ietf     bool
	cors     *cors
	ready    func(ctx context.Context) Readiness
	metrics  *metrics
	messages *messages.Messages
	now      func() time.Time

	handler   http.Handler
	ids       requestIDs
	seldom    seldom
	exchanges sync.Pool
	draining  atomic.Bool
}

// New returns a server of the metered API that asks the checker.
func New(checker Checker, opts Options) *Server {
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if opts.Ready == nil {
		opts.Ready = func(context.Context) Readiness { return Readiness{} }
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	s := &Server{
		checker: checker, logger: opts.Logger, proxies: callers.NewProxies(opts.TrustedProxies),
		ietf: !opts.OmitIETFHeaders, cors: newCORS(opts.CORSOrigins), ready: opts.Ready,
		metrics: newMetrics(opts.Registerer), messages: messages.New(), now: opts.Now,
		ids: newRequestIDs(),
	}
	s.exchanges.New = func() any { return &exchange{Server: s} }
	s.handler = s.routes()
	return s
}

// Handler is the whole metered listener.
func (s *Server) Handler() http.Handler { return s.handler }

// HTTPServer is the handler behind the timeouts and caps of a listener that
// strangers may reach. The caller serves and shuts it down.
func (s *Server) HTTPServer() *http.Server {
	return &http.Server{
		Handler:           s.handler,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       15 * time.Second,
		WriteTimeout:      20 * time.Second,
		IdleTimeout:       2 * time.Minute, // above the 60 to 75 s that gateways keep connections
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(s.logger.Handler(), slog.LevelDebug),
	}
}

// Drain makes readiness fail from now on. Calls are still answered.
func (s *Server) Drain() { s.draining.Store(true) }
