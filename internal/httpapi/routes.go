package httpapi

import (
	"errors"
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/quotad/quotad"
)

// routes are all routes of the metered listener.
func (s *Server) routes() http.Handler {
	e := echo.New()
	e.HTTPErrorHandler = s.unrouted

	get := func(path string, d door, h handler) {
		e.GET(path, s.through(d, h))
		e.HEAD(path, s.through(d, h))
		e.OPTIONS(path, s.through(d, options("GET, HEAD, OPTIONS")))
	}
	get("/v1/ping", doorPing, (*exchange).ping)
	get("/v1/limits", doorLimits, (*exchange).limits)
	get("/healthz", doorHealth, (*exchange).healthz)
	get("/readyz", doorHealth, (*exchange).readyz)
	e.POST("/v1/check", s.through(doorCheck, (*exchange).check))
	e.OPTIONS("/v1/check", s.through(doorCheck, options("POST, OPTIONS")))
	e.POST("/v1/checks", s.through(doorChecks, (*exchange).checks))
	e.OPTIONS("/v1/checks", s.through(doorChecks, options("POST, OPTIONS")))

	// A route for "not found" takes every method there is, known or not.
	e.RouteNotFound("/v1/authorize", s.through(doorAuthorize, (*exchange).authorize))
	e.RouteNotFound("/v1/authorize/*", s.through(doorAuthorize, (*exchange).authorize))
	return e
}

// unrouted answers what the router has no handler for.
func (s *Server) unrouted(err error, c echo.Context) {
	kind := quotad.CodeInternal
	var routing *echo.HTTPError
	if errors.As(err, &routing) {
		switch routing.Code {
		case http.StatusNotFound:
			kind = quotad.CodeNotFound
		case http.StatusMethodNotAllowed:
			kind = quotad.CodeMethodNotAllowed
		}
	}
	_ = s.through(doorOther, func(*exchange) error { return &quotad.Error{Code: kind, Cause: err} })(c)
}
