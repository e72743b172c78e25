package quotad

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
)

// ClientOptions tune a Client. The zero value works.
type ClientOptions struct {
	// APIKey asks where a question brings no credential of its own; none by default.
	// Middleware never falls back on it.
	APIKey Credential
	// ServiceToken, an admin token of role service, asks for the tenants that
	// questions name; none by default.
	ServiceToken Credential
	// Timeout is the longest that one call takes, 1 ms to 1 min; 250 ms by default.
	Timeout time.Duration
	// OnFailure answers in place of a quotad that is away, slow, or not to be
	// understood: FailClosed (the default) or FailOpen.
	OnFailure FailurePolicy
	// HTTPClient carries the calls, but follows no redirects. By default it is one
	// that keeps up to 256 connections, speaks HTTP/1.1 and knows no proxies.
	HTTPClient *http.Client
	// Logger is told, at most every 10 s, that quotad fails, and that it answers
	// again; nobody by default.
	Logger *slog.Logger
	// Now is time.Now by default; it must keep the monotonic clock.
	Now func() time.Time
}

// Client asks a quotad over its metered API. It is safe for concurrent use.
//
// A refusal is a Decision that is not Allowed. An error is an *Error with the code
// that quotad gave, or wraps the context's when the caller gave up. When quotad is
// away, slow or not to be understood, FailClosed makes that ErrLimiterUnavailable,
// and FailOpen a Decision that is allowed and Degraded. What quotad itself answers
// stands, whatever the policy: 503, too, is its own tier's policy, or a key that it
// can't look up.
//
// A question is never sent twice: whether a call that got no answer was charged is
// not known. Such a call has cost the timeout; after five in a row none is sent for
// a second, then one, and all again when that is answered.
//
// A question that was refused is refused again from memory, for up to a second and
// not in the last second before it may pass; see refusals.
type Client struct {
	base    string
	key     Credential
	token   Credential
	timeout time.Duration
	policy  FailurePolicy
	http    *http.Client
	logger  *slog.Logger
	now     func() time.Time

	pause    pause
	refusals *refusals
	mu       sync.Mutex
	said     time.Time // when a failure was logged
}

// NewClient returns a client of the quotad whose metered API is at baseURL, such as
// "http://quotad:8080". It connects to nothing yet.
func NewClient(baseURL string, o ClientOptions) (*Client, error) {
	c := &Client{
		key: o.APIKey, token: o.ServiceToken, timeout: o.Timeout, policy: o.OnFailure, logger: o.Logger, now: o.Now,
		refusals: newRefusals(),
	}
	if c.timeout == 0 {
		c.timeout = 250 * time.Millisecond
	}
	if c.policy == "" {
		c.policy = FailClosed
	}
	if c.logger == nil {
		c.logger = slog.New(slog.DiscardHandler)
	}
	if c.now == nil {
		c.now = time.Now
	}
	var faults []error
	fault := func(broken bool, text string) {
		if broken {
			faults = append(faults, errors.New(text))
		}
	}
	u, err := url.Parse(baseURL)
	whole := err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && u.User == nil && u.RawQuery == "" && u.Fragment == ""
	fault(!whole, "the base URL must be http:// or https://, a host, and at most a path") // it is not shown: it may hold a password
	fault(c.timeout < time.Millisecond || c.timeout > time.Minute, "Timeout must be 1ms to 1m")
	fault(c.policy != FailOpen && c.policy != FailClosed, "OnFailure must be open or closed")
	fault(!sendable(string(c.key)), "APIKey can't be one")
	fault(!sendable(string(c.token)), "ServiceToken can't be one")
	if len(faults) > 0 {
		return nil, fmt.Errorf("quotad client: %w", errors.Join(faults...))
	}
	c.base = strings.TrimSuffix(u.String(), "/")
	c.http = carrier(o.HTTPClient, c.timeout)
	return c, nil
}

// maxConnections is how many connections a client keeps, and uses at most: what
// comes on top waits for one, within its timeout.
const maxConnections = 256

// carrier is an http.Client that asks once: it follows no redirect, as whoever
// sends one would be sent the credential. A connection may take as long as a call.
func carrier(given *http.Client, timeout time.Duration) *http.Client {
	carrier := &http.Client{}
	if given != nil {
		*carrier = *given
	} else {
		// HTTP/1.1 alone: there a call that ran into its timeout takes its connection
		// along, so that the next one does not wait on a dead one.
		protocols := new(http.Protocols)
		protocols.SetHTTP1(true)
		carrier.Transport = &http.Transport{
			DialContext:         (&net.Dialer{Timeout: max(time.Second, timeout), KeepAlive: 15 * time.Second}).DialContext,
			TLSHandshakeTimeout: max(2*time.Second, timeout),
			MaxIdleConns:        maxConnections, MaxIdleConnsPerHost: maxConnections, MaxConnsPerHost: maxConnections,
			IdleConnTimeout:        30 * time.Second, // below that of quotad and of what may stand before it
			MaxResponseHeaderBytes: 64 << 10,
			DisableCompression:     true,
			Protocols:              protocols,
		}
	}
	carrier.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return carrier
}

// String names the quotad that is asked, and no credential.
func (c *Client) String() string { return "quotad client of " + c.base }

// Format writes what String says, whatever the verb.
func (c *Client) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, c.String()) }

// LogValue is what String says.
func (c *Client) LogValue() slog.Value { return slog.StringValue(c.String()) }

// CloseIdleConnections closes the connections that are not in use now.
func (c *Client) CloseIdleConnections() { c.http.CloseIdleConnections() }

// Check asks whether a caller may do something now, and charges it if so.
//
// Of a refused call quotad tells the limits and the wait; who and what was refused
// is then filled in from the question.
func (c *Client) Check(ctx context.Context, q CheckRequest) (Decision, error) {
	by, err := c.credentials(q.APIKey, q.Tenant, c.key)
	if err != nil {
		return Decision{}, err
	}
	a, err := c.ask(ctx, &q, by, "")
	if err != nil {
		return Decision{}, err
	}
	d := a.decision
	d.Limits = append([]LimitStatus{}, d.Limits...) // the answer may be told again
	return d, a.err
}

// ask answers a question: from memory, by quotad, or by the failure policy. Its
// error is the caller's giving up. The answer may be shared, and must not be changed.
func (c *Client) ask(ctx context.Context, q *CheckRequest, by credentials, language string) (*answer, error) {
	sent := c.now()
	if a := c.refusals.recall(q, by, language, sent); a != nil {
		return a, nil
	}
	body := *q
	body.Path = encoded(q.Path)
	if by.token != "" && body.IP == "" && body.ForwardedFor.IsValid() {
		body.IP = body.ForwardedFor.String()
	}
	text, err := json.Marshal(body)
	if err != nil {
		return nil, fmt.Errorf("write a check: %w", err)
	}
	h := by.header()
	if by.token == "" && q.ForwardedFor.IsValid() {
		h["X-Forwarded-For"] = []string{q.ForwardedFor.String()}
	}
	if language != "" {
		h["Accept-Language"] = []string{language}
	}
	var a *answer
	failure, err := c.send(ctx, http.MethodPost, "/v1/check", h, text, maxAnswer, func(status int, h http.Header, body []byte) (err error) {
		a, err = readAnswer(status, h, body)
		return err
	})
	switch {
	case err != nil:
		return nil, err
	case failure != nil:
		return c.instead(q, failure), nil
	}
	if !a.decision.Allowed && a.err == nil {
		a.decision.Tenant, a.decision.RouteGroup = q.Tenant, q.RouteGroup
		if q.Cost != nil {
			a.decision.Cost = *q.Cost
		}
	}
	c.refusals.learn(q, by, language, sent, a)
	return a, nil
}

// instead is what the failure policy says in quotad's place.
func (c *Client) instead(q *CheckRequest, failure error) *answer {
	if c.policy == FailClosed {
		return &answer{err: unavailable(failure), failure: failure}
	}
	a := &answer{failure: failure, decision: Decision{
		Allowed: true, Degraded: true, DegradedBy: FailOpen, Tenant: q.Tenant, RouteGroup: q.RouteGroup,
	}}
	if q.Cost != nil {
		a.decision.Cost = *q.Cost
	}
	a.headers[relayedDegraded] = []string{string(FailOpen)}
	return a
}

func unavailable(failure error) *Error {
	return &Error{Code: CodeLimiterUnavailable, RetryAfter: time.Second, Cause: failure}
}

// The longest answers that are read, in bytes.
const (
	maxAnswer  = 1 << 20
	maxAnswers = 8 << 20
)

var errPaused = errors.New("quotad did not answer before, and is not asked for a moment")

// send sends one request, once, and hands its answer to read. failure is why there
// is no answer of quotad's; err is the caller's giving up.
func (c *Client) send(ctx context.Context, method, path string, h http.Header, body []byte, most int64, read func(int, http.Header, []byte) error) (failure, err error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("ask quotad: %w", err)
	}
	turn := c.pause.enter(c.now())
	if turn.barred {
		return errPaused, nil
	}
	became := abandoned
	defer func() { c.leave(turn, became, failure) }()

	limited, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	failure = c.exchange(limited, method, path, h, body, most, read)
	switch {
	case failure == nil:
		became = answered
	case ctx.Err() != nil:
		return nil, fmt.Errorf("ask quotad: %w", ctx.Err())
	default:
		became = failed
		if limited.Err() != nil {
			failure = fmt.Errorf("quotad did not answer within %v", c.timeout)
		}
	}
	return failure, nil
}

func (c *Client) exchange(ctx context.Context, method, path string, h http.Header, body []byte, most int64, read func(int, http.Header, []byte) error) error {
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("make a request: %w", err)
	}
	h["User-Agent"], h["Accept"] = userAgent, jsonTypes
	if len(body) > 0 {
		h["Content-Type"] = jsonTypes
	}
	req.Header = h
	res, err := c.http.Do(req)
	if err != nil {
		var where *url.Error
		if errors.As(err, &where) {
			err = where.Err // the URL may name a subject
		}
		return fmt.Errorf("ask quotad: %w", err)
	}
	// A body that is read to its end leaves the connection to the next call.
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, most+1))
	switch {
	case err != nil:
		return fmt.Errorf("read quotad's answer: %w", err)
	case int64(len(text)) > most:
		return fmt.Errorf("%w: it is longer than %d bytes", errOdd, most)
	}
	return read(res.StatusCode, res.Header, text)
}

// Header values that never change, shared by all requests.
var (
	userAgent = []string{"quotad-client-go"}
	jsonTypes = []string{"application/json"}
)

// logInterval is the least time between two lines about failures.
const logInterval = 10 * time.Second

// leave ends a call's turn, and says what there is to say.
func (c *Client) leave(t turn, r result, failure error) {
	now := c.now()
	begins, ends := c.pause.leave(t, r, now)
	if begins {
		c.http.CloseIdleConnections() // they may be as dead as the others, and each would cost a probe
	}
	switch {
	case ends:
		c.logger.Info("quotad answers again")
	case r == failed && c.due(now):
		c.logger.Warn("quotad does not answer: the failure policy does", "policy", string(c.policy), "error", failure)
	}
}

func (c *Client) due(now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.said.IsZero() && now.Sub(c.said) < logInterval {
		return false
	}
	c.said = now
	return true
}

// credentials are what one question is asked with: a key, a token, or neither.
type credentials struct{ key, token Credential }

// credentials are those of a question; otherwise is the key where it has none.
func (c *Client) credentials(key Credential, tenant string, otherwise Credential) (credentials, error) {
	switch {
	case key == "" && tenant == "":
		return credentials{key: otherwise}, nil
	case key == "" && c.token == "":
		return credentials{}, NewError(CodeInvalidRequest, "a tenant is asked for by a ServiceToken, and the client has none")
	case key == "":
		return credentials{token: c.token}, nil
	default:
		return credentials{key: presentable(key)}, nil
	}
}

// presentable is a key that a header can carry. One that none can is nobody's, so
// quotad is asked about another that is nobody's: it shall count the failure, and
// tell a list from a key.
func presentable(key Credential) Credential {
	switch {
	case sendable(string(key)):
		return key
	case strings.Contains(string(key), ","):
		return "unsendable,"
	default:
		return "unsendable"
	}
}

// sendable reports whether a header can carry the text as it is, to any server.
// Credentials that quotad mints have 58 bytes.
func sendable(text string) bool {
	for i := range len(text) {
		if text[i] < ' ' && text[i] != '\t' || text[i] == 0x7f {
			return false
		}
	}
	return len(text) <= 1024
}

func (c credentials) header() http.Header {
	h := make(http.Header, 8)
	switch {
	case c.key != "":
		h["X-Api-Key"] = []string{string(c.key)}
	case c.token != "":
		h["Authorization"] = []string{"Bearer " + string(c.token)}
	}
	return h
}
