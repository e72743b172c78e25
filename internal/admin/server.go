package admin

import (
	"context"
	"log/slog"
	"net/http"
	"net/netip"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/quotad/quotad/internal/admintokens"
	"github.com/quotad/quotad/internal/apikeys"
	"github.com/quotad/quotad/internal/callers"
	"github.com/quotad/quotad/internal/events"
	"github.com/quotad/quotad/internal/idempotency"
	"github.com/quotad/quotad/internal/messages"
	"github.com/quotad/quotad/internal/tiers"
)

// Stores are where the resources live.
type Stores struct {
	Tiers       *tiers.Store
	Keys        *apikeys.Store
	AdminTokens *admintokens.Store
	Events      *events.Log
	Idempotency *idempotency.Store
}

// Options tune a Server. The zero value works.
type Options struct {
	// Logger gets one line per request; none by default.
	Logger *slog.Logger
	// TrustedProxies may name a client in X-Forwarded-For; by default the peer is the client.
	TrustedProxies []netip.Prefix
	// FailedLogins is how many wrong admin tokens an address can present at once,
	// and in every LoginWindow; 10 by default.
	FailedLogins int
	// LoginWindow is a minute by default.
	LoginWindow time.Duration
	// Timeout bounds the work on one request; 4 s by default, so that a store that
	// is away is reported in under 5 s.
	Timeout time.Duration
	// Health, Ready and Metrics are mounted as /healthz, /readyz and /metrics; nil ones are not.
	Health, Ready, Metrics http.Handler
	// Now is time.Now by default.
	Now func() time.Time
}

// Server answers the admin API.
type Server struct {
	tiers       *tiers.Store
	keys        *apikeys.Store
	adminTokens *admintokens.Store
	events      *events.Log
	idempotency *idempotency.Store
	tokens      tokens
	logins      *logins
	messages    *messages.Messages
	opts        Options
	handler     http.Handler
}

// New returns a server of the admin API over the stores.
func New(stores Stores, opts Options) *Server {
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if opts.FailedLogins <= 0 {
		opts.FailedLogins = 10
	}
	if opts.LoginWindow <= 0 {
		opts.LoginWindow = time.Minute
	}
	if opts.Timeout <= 0 {
		opts.Timeout = 4 * time.Second
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	s := &Server{
		tiers: stores.Tiers, keys: stores.Keys, adminTokens: stores.AdminTokens,
		events: stores.Events, idempotency: stores.Idempotency, tokens: stores.AdminTokens,
		messages: messages.New(),
		logins:   newLogins(opts.FailedLogins, opts.LoginWindow), opts: opts,
	}
	e := echo.New()
	e.HTTPErrorHandler = s.writeError
	e.IPExtractor = clientAddress(opts.TrustedProxies)
	e.Use(s.observe, s.recoverPanic, s.bound)
	s.mount(e)
	s.handler = e
	return s
}

// Handler is the whole admin listener.
func (s *Server) Handler() http.Handler { return s.handler }

// HTTPServer is the handler behind the timeouts and caps of a listener that
// strangers may reach. The caller serves and shuts it down.
func (s *Server) HTTPServer() *http.Server {
	return &http.Server{
		Handler:           s.handler,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      20 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(s.opts.Logger.Handler(), slog.LevelDebug),
	}
}

// clientAddress finds the client of a request, by what trusted proxies say.
func clientAddress(trusted []netip.Prefix) echo.IPExtractor {
	proxies := callers.NewProxies(trusted)
	return func(r *http.Request) string {
		peer, _ := callers.Address(r.RemoteAddr)
		return proxies.Client(peer, r.Header["X-Forwarded-For"]).String()
	}
}

// bound gives every request its time.
func (s *Server) bound(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		ctx, cancel := context.WithTimeout(c.Request().Context(), s.opts.Timeout)
		defer cancel()
		c.SetRequest(c.Request().WithContext(ctx))
		return next(c)
	}
}
