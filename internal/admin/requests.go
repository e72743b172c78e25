package admin

import (
	"crypto/rand"
	"fmt"
	"log/slog"
	"net/http"
	"regexp"
	"runtime/debug"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/quotad/quotad"
)

// headerRequestID carries what a request is called in answers, logs and events.
const headerRequestID = "X-Request-Id"

// requestIDPattern is what a client's own request id has to look like to be kept.
var requestIDPattern = regexp.MustCompile(`^[A-Za-z0-9._:/+=@-]{1,128}$`)

func requestID(c echo.Context) string { return c.Response().Header().Get(headerRequestID) }

// observe names each request and logs what became of it.
func (s *Server) observe(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		start := time.Now() // a duration for the log, not a time that anything is judged by
		id := c.Request().Header.Get(headerRequestID)
		if !requestIDPattern.MatchString(id) {
			id = rand.Text()
		}
		header := c.Response().Header()
		header.Set(headerRequestID, id)
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("Cache-Control", "no-store")
		err := next(c)
		if err != nil {
			c.Error(err)
		}
		s.log(c, err, time.Since(start))
		return nil
	}
}

func (s *Server) log(c echo.Context, err error, took time.Duration) {
	status := c.Response().Status
	attrs := []slog.Attr{
		slog.String("request_id", requestID(c)), slog.String("method", c.Request().Method),
		slog.String("route", c.Path()), slog.Int("status", status), slog.String("address", c.RealIP()),
		slog.Duration("took", took),
	}
	if actor, ok := c.Get(actorKey).(quotad.Actor); ok {
		attrs = append(attrs, slog.String("admin_token", actor.ID))
	}
	level := slog.LevelInfo
	switch {
	case status >= http.StatusInternalServerError:
		level = slog.LevelError
	case !strings.HasPrefix(c.Path(), prefix): // probes and scrapes
		level = slog.LevelDebug
	}
	if err != nil {
		attrs = append(attrs, slog.String("error", err.Error()))
	}
	s.opts.Logger.LogAttrs(c.Request().Context(), level, "admin request", attrs...)
}

// recoverPanic turns a panic into an error that shows nothing of it.
func (s *Server) recoverPanic(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) (err error) {
		defer func() {
			switch r := recover(); r {
			case nil:
			case http.ErrAbortHandler:
				panic(r)
			default:
				s.opts.Logger.Error("admin handler panicked", "request_id", requestID(c), "panic", fmt.Sprint(r), "stack", string(debug.Stack()))
				err = fmt.Errorf("panic: %v", r)
			}
		}()
		return next(c)
	}
}
