package quota

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/secret"
)

// maxTopics bounds what is remembered of lines written; beyond it the topic that
// was quiet longest is forgotten, and may speak again early.
const maxTopics = 4096

// lines writes at most one log line per topic and interval, with the number of
// those that it stands for. A caller who is refused ten thousand times a second
// is one line in ten seconds.
type lines struct {
	logger   *slog.Logger
	interval time.Duration
	now      func() time.Time

	mu     sync.Mutex
	topics *lru.Cache[topic, *spoken]
}

// topic is what a line is about: refusals of one key, or of a tenant's service
// calls, or failures of one kind.
type topic struct{ kind, id string }

type spoken struct {
	last       time.Time
	suppressed int64
}

func newLines(o Options) *lines {
	topics, _ := lru.New[topic, *spoken](maxTopics) // fails for a size below 1 only
	return &lines{logger: o.Logger, interval: o.LogInterval, now: o.Now, topics: topics}
}

// due reports whether the topic may have a line now, and how many it did not
// have since its last.
func (l *lines) due(t topic) (suppressed int64, due bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	s, ok := l.topics.Get(t)
	if !ok {
		l.topics.Add(t, &spoken{last: now})
		return 0, true
	}
	if now.Sub(s.last) < l.interval {
		s.suppressed++
		return 0, false
	}
	suppressed = s.suppressed
	s.last, s.suppressed = now, 0
	return suppressed, true
}

// failure writes that something did not work, by what went wrong.
func (l *lines) failure(ctx context.Context, message string, err error) {
	if n, due := l.due(topic{"failure", message + string(codeOf(err))}); due {
		l.logger.LogAttrs(ctx, slog.LevelError, message, slog.Any("error", err), slog.Int64("suppressed", n))
	}
}

// refusal writes that a call was refused, by a limit or by an error that is the
// caller's. Ids that do not exist share one topic: anybody can make them up.
func (l *lines) refusal(ctx context.Context, call Call, d *quotad.Decision, err error) {
	if !l.logger.Enabled(ctx, slog.LevelInfo) {
		return
	}
	code, about, cause := d.Refusal(), topic{"key", d.KeyID}, ""
	if err != nil {
		code = codeOf(err)
		var e *quotad.Error
		if errors.As(err, &e) && e.Cause != nil {
			cause = e.Cause.Error()
		}
	}
	keyID := d.KeyID
	switch {
	case keyID != "":
	case err == nil && d.RouteGroup == "": // kept out by its address; there may be many of those
		about = topic{"address", d.Limits[0].Policy}
	case errors.Is(err, quotad.ErrInvalidAPIKey):
		about = topic{"refusal", cause}
		if id, ok := secret.Parse(secret.APIKey, call.APIKey); ok && !errors.Is(err, errUnknown.Cause) {
			keyID, about = id, topic{"key", id}
		}
	case d.Tenant != "":
		about = topic{"tenant", d.Tenant}
	default:
		about = topic{"refusal", string(code) + d.RouteGroup}
	}
	n, due := l.due(about)
	if !due {
		return
	}
	attrs := []slog.Attr{
		slog.String("reason", string(code)), slog.String("tenant", d.Tenant), slog.String("key_id", keyID),
		slog.String("route_group", d.RouteGroup), slog.String("door", call.Door), slog.Int64("suppressed", n),
	}
	if call.Address.IsValid() {
		attrs = append(attrs, slog.String("address", call.Address.String()))
	}
	if cause != "" {
		attrs = append(attrs, slog.String("cause", cause))
	}
	if strictest, ok := d.Strictest(); ok && err == nil {
		attrs = append(attrs, slog.String("policy", strictest.Policy), slog.Int64("retry_after", d.RetryAfter))
	}
	l.logger.LogAttrs(ctx, slog.LevelInfo, "call refused", attrs...)
}

// record counts a decision and writes a line about one that was refused.
func (c *Checker) record(ctx context.Context, call Call, d *quotad.Decision, err error, took time.Duration) {
	code := codeOf(err)
	c.metrics.count(call.Door, d, code, took)
	switch {
	case code == quotad.CodeStoreUnavailable || code == quotad.CodeLimiterUnavailable || code == quotad.CodeInternal:
		if !errors.Is(err, context.Canceled) { // a caller who hung up is no failure
			c.lines.failure(ctx, "call not decided", err)
		}
	case err != nil || !d.Allowed:
		c.lines.refusal(ctx, call, d, err)
	}
}
