package admin

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/replies"
)

// writeError answers with what an error amounts to, in the one shape of errors.
func (s *Server) writeError(err error, c echo.Context) {
	if c.Response().Committed {
		return
	}
	problem := replies.Failure(kindOf(err))
	header, asked := c.Response().Header(), c.Request().Header
	if problem.Status == http.StatusUnauthorized {
		header.Set("WWW-Authenticate", `Bearer realm="quotad admin"`)
	}
	if problem.RetryAfter > 0 {
		header.Set("Retry-After", strconv.FormatInt(problem.RetryAfter, 10))
	}
	language := s.messages.Pick(strings.Join(asked.Values("Accept-Language"), ","))
	problem.Message = language.Text(problem.Error, problem.RetryAfter)
	header.Set("Content-Language", language.Tag())
	header.Set("Cache-Control", "no-store")
	header.Add("Vary", "Accept, Accept-Language")
	header.Del("ETag")
	mediaType := replies.MediaType(strings.Join(asked.Values("Accept"), ","))
	_ = c.Blob(problem.Status, mediaType, append(problem.AppendJSON(nil), '\n')) // nobody is left to tell
}

// kindOf gives a kind to the errors that come without one: those of the router,
// and of a store that did not answer in time.
func kindOf(err error) error {
	var known *quotad.Error
	var routing *echo.HTTPError
	switch {
	case errors.As(err, &known):
		return err
	case errors.As(err, &routing) && routing.Code == http.StatusNotFound:
		return &quotad.Error{Code: quotad.CodeNotFound, Cause: err}
	case errors.As(err, &routing) && routing.Code == http.StatusMethodNotAllowed:
		return &quotad.Error{Code: quotad.CodeMethodNotAllowed, Cause: err}
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return &quotad.Error{Code: quotad.CodeStoreUnavailable, Cause: err}
	default:
		return err
	}
}
