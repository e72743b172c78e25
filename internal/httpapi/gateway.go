package httpapi

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"strings"
	"sync"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/quota"
)

// RouteGroups finds the route group of a call that nobody asks a decision for.
// *quota.Checker is one.
type RouteGroups interface {
	RouteGroup(ctx context.Context, method, path string) (string, error)
}

// GatewayOptions tune a Gateway. The zero value works.
type GatewayOptions struct {
	// UpstreamTimeout is how long an upstream may take for the headers of its answer,
	// once it has all of the request; 1 min by default. How long the answer itself
	// then takes is not bounded: it may be a stream.
	UpstreamTimeout time.Duration
	// MaxWaiting is how many calls may be held back at once for leaky buckets; 10,000
	// by default, about 20 KB each. While so many are, those buckets refuse; a tenant's
	// do so once it has as many places as are free.
	MaxWaiting int
	// Registerer gets the metrics; none are kept by default.
	Registerer prometheus.Registerer
}

// Gateway is the metered API's door for calls that are passed on: what a decision
// admits is proxied to an upstream, with who calls in X-Quotad-Tenant, -Key-Id, -Tier
// and -Route-Group. It is safe for concurrent use.
type Gateway struct {
	*Server
	groups    RouteGroups
	upstreams Upstreams
	transport *http.Transport
	queue     *queue
	streams   streams
	buffers   buffers
	passed    *gatewayMetrics
	echo      *echo.Echo
	stall     time.Duration // maxStall, but for tests
	passages  sync.Pool
}

// NewGateway returns a gateway to the upstreams that asks what the server asks, and
// answers as it does.
func NewGateway(s *Server, groups RouteGroups, upstreams Upstreams, o GatewayOptions) *Gateway {
	if o.UpstreamTimeout <= 0 {
		o.UpstreamTimeout = time.Minute
	}
	if o.MaxWaiting <= 0 {
		o.MaxWaiting = 10_000
	}
	g := &Gateway{
		Server: s, groups: groups, upstreams: upstreams, transport: newTransport(o.UpstreamTimeout),
		queue: newQueue(o.MaxWaiting), echo: echo.New(), stall: maxStall,
	}
	g.passed = newGatewayMetrics(o.Registerer, g.queue)
	errors := slog.NewLogLogger(s.logger.Handler(), slog.LevelDebug)
	g.passages.New = func() any {
		p := &passage{Gateway: g}
		p.proxy = httputil.ReverseProxy{
			Rewrite: p.rewrite, Transport: g.transport, ErrorLog: errors, BufferPool: &g.buffers,
			ModifyResponse: p.answered, ErrorHandler: p.failed,
		}
		return p
	}
	return g
}

// HTTPServer is the gateway behind the bounds of a listener that strangers may reach.
// It bounds no call as a whole, for that may be a stream: a client has 5 s for the
// headers, and may then stall for a minute at most. The caller serves and shuts it down.
func (g *Gateway) HTTPServer() *http.Server {
	server := g.Server.HTTPServer()
	server.Handler = g
	server.ReadTimeout, server.WriteTimeout = 0, 0
	return server
}

// EndStreams ends the event streams and the upgraded connections, such as websockets,
// that there are and that begin after it: they have no end of their own, and those who
// listen to them connect again. All other calls go on.
func (g *Gateway) EndStreams() { g.streams.end() }

// Close closes the idle connections to the upstreams.
func (g *Gateway) Close() { g.transport.CloseIdleConnections() }

// ServeHTTP judges a call and passes it on.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x := g.exchanges.Get().(*exchange)
	x.current = current{door: doorGateway, r: r, w: echo.NewResponse(w, g.echo)}
	x.id = g.ids.of(r)
	p := g.passages.Get().(*passage)
	p.x, p.w, p.began = x, pacedWriter{ResponseWriter: w, stall: g.stall}, g.now()
	defer p.end()
	p.w.extend()
	if err := x.run(p.pass); err != nil {
		p.refuse(err)
	}
	p.whole = true
}

// passage is one call on its way through the gateway. Passages are reused, so nothing
// may keep one.
type passage struct {
	*Gateway
	proxy httputil.ReverseProxy
	passing
}

// passing is what a passage holds of one call, and loses with it.
type passing struct {
	x *exchange
	w pacedWriter
	// path is that of the call as it was judged, still encoded.
	path string
	// upstream is where the call goes.
	upstream *Upstream
	// trusted is true when the peer is a trusted proxy.
	trusted bool
	// decision is what admitted the call; counted is false where nobody was asked.
	decision quotad.Decision
	counted  bool
	subject  string
	place    place
	// upload is the body of the request; nil where there is none.
	upload *upload
	// began is when the call came in, sent when it went to the upstream.
	began, sent time.Time
	// answer is the status of the upstream's answer; 0 until there is one.
	answer int
	// whole is true once all of the answer is written.
	whole bool
}

// pass judges the call, holds it back for as long as it has to wait, and proxies it.
func (p *passage) pass(x *exchange) error {
	r := x.r
	if r.ContentLength != 0 {
		p.upload = newUpload(r, &p.w)
	}
	path, query, _ := strings.Cut(requestTarget(r), "?")
	p.path, p.trusted = path, x.proxies.Trust(peer(r))
	fault := unpassable(r)
	if fault == nil && isPreflight(r.Method, r.Header) && p.upload == nil { // no browser's has a body: one that does is a call like others
		x.asked = true // it needs no key, and is not counted
		group, err := p.groups.RouteGroup(r.Context(), r.Header.Get("Access-Control-Request-Method"), path)
		if err != nil {
			return err
		}
		return p.forward(group)
	}
	delay, err := p.judge(query, fault)
	if err != nil {
		return err
	}
	if !p.decision.Allowed {
		p.w.extend()
		p.allowOrigin()
		return x.deny(&p.decision)
	}
	if delay > 0 && !p.wait(delay) {
		x.gone = true
		panic(http.ErrAbortHandler)
	}
	return p.forward(p.decision.RouteGroup)
}

// unpassable is what keeps a request from being passed on, whoever sends it.
func unpassable(r *http.Request) error {
	if r.Method == http.MethodConnect {
		return &quotad.Error{Code: quotad.CodeMethodNotAllowed}
	}
	for _, protocol := range r.Header["Upgrade"] {
		if !printable(protocol) {
			return quotad.NewError(quotad.CodeInvalidRequest, "The protocol to upgrade to can't be read.")
		}
	}
	return nil
}

// judge asks for the decision on a call with a fault, if any, and returns how long it
// has to wait: it has a place in the queue for that.
func (p *passage) judge(query string, fault error) (delay time.Duration, err error) {
	x := p.x
	key, err := x.forwardedKey(query)
	if err != nil {
		return 0, err
	}
	x.call = quota.Call{APIKey: key, Method: x.r.Method, Path: p.path}
	if fault != nil {
		return 0, fault
	}
	if p.subject, err = x.subject(x.r); err != nil {
		return 0, err
	}
	defer func() {
		if delay == 0 {
			p.leave()
		}
	}()
	x.call.Subject, x.call.Queue = p.subject, p
	p.decision, err = x.checker.Check(x.r.Context(), x.question())
	if err != nil {
		return 0, err
	}
	p.counted = true
	if !p.decision.Allowed && p.place.asked && !p.place.held {
		p.passed.waits[waitFull].Inc()
	}
	delay = time.Duration(p.decision.DelayMS) * time.Millisecond
	p.decision.DelayMS = 0 // it is waited here: nobody is to wait it again
	return delay, nil
}

// forward proxies the call to the upstream of its route group.
func (p *passage) forward(group string) error {
	p.upstream = p.upstreams.of(group)
	p.sent = p.now()
	p.proxy.ServeHTTP(&p.w, p.x.r)
	return nil
}

// refuse answers with what an error amounts to.
func (p *passage) refuse(err error) {
	if p.answer != 0 {
		p.x.logFailure(err)
		panic(http.ErrAbortHandler) // half an answer can't be taken back
	}
	p.x.bodyRead = p.upload != nil && p.upload.ended.Load()
	p.w.extend()
	p.allowOrigin()
	p.x.fail(err)
}

// allowOrigin lets pages read quotad's own answer. What an upstream's pages may read
// is for it to say.
func (p *passage) allowOrigin() {
	if p.cors != nil {
		p.cors.allow(p.x)
	}
}

// end counts the call and gives back what it used.
func (p *passage) end() {
	x := p.x
	if p.upload != nil {
		p.upload.abandon()
	}
	p.w.extend() // for what net/http still has to write
	switch {
	case p.answer != 0:
		if !p.whole && x.r.Context().Err() == nil {
			p.passed.failures[failureCut].Inc()
		}
	case x.gone:
		p.metrics.observe(x.door, statusClientClosed, p.now().Sub(p.began))
	default:
		p.metrics.observe(x.door, x.w.Status, p.now().Sub(p.began))
	}
	x.release()
	p.passing = passing{}
	p.passages.Put(p)
}

// printable reports whether a text is of visible ASCII and spaces.
func printable(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' })
}
