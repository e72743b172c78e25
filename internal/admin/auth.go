package admin

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/admintokens"
)

// tokens finds the admin token that a text is the secret of.
type tokens interface {
	Find(ctx context.Context, text string) (admintokens.Stored, error)
}

// actorKey is where a request's actor stands in its echo.Context.
const actorKey = "actor"

// actorOf is who makes the request.
func actorOf(c echo.Context) quotad.Actor { return c.Get(actorKey).(quotad.Actor) }

// rank orders the roles by what they may do here. A service token speaks on the
// metered API only.
func rank(r quotad.Role) int {
	switch r {
	case quotad.RoleViewer:
		return 1
	case quotad.RoleOperator:
		return 2
	case quotad.RoleOwner:
		return 3
	default:
		return 0
	}
}

var (
	errUnauthorized = quotad.NewError(quotad.CodeUnauthorized, "")
	errForbidden    = quotad.NewError(quotad.CodeForbidden, "")
)

// authorize lets through who presents a token of at least the role.
func (s *Server) authorize(least quotad.Role) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			token, err := s.authenticate(c)
			if err != nil {
				return err
			}
			c.Set(actorKey, quotad.Actor{
				Type: "admin_token", ID: token.ID, Name: token.Name,
				RequestID: requestID(c), Address: c.RealIP(),
			})
			if rank(token.Role) < rank(least) {
				return errForbidden
			}
			return next(c)
		}
	}
}

// authenticate returns the token that the request presents. All wrong ones are
// answered alike. An address that has presented too many is not answered at all
// until it has waited: what it learns is the same for a right one.
func (s *Server) authenticate(c echo.Context) (quotad.AdminToken, error) {
	text, ok := bearer(c.Request().Header)
	if !ok {
		return quotad.AdminToken{}, errUnauthorized
	}
	from, now := c.RealIP(), s.opts.Now()
	if err := s.logins.blocked(from, now); err != nil {
		return quotad.AdminToken{}, err
	}
	stored, err := s.tokens.Find(c.Request().Context(), text)
	switch {
	case err != nil && !errors.Is(err, quotad.ErrNotFound):
		return quotad.AdminToken{}, err
	case err != nil || !stored.Admits(text, now):
		if err := s.logins.recordFailure(from, now); err != nil {
			return quotad.AdminToken{}, err
		}
		return quotad.AdminToken{}, errUnauthorized
	}
	// Others may have failed from here meanwhile; a guess among them must not stand out.
	return stored.Token, s.logins.blocked(from, now)
}

// bearer is the one bearer token of the request.
func bearer(h http.Header) (string, bool) {
	lines := h.Values("Authorization")
	if len(lines) != 1 {
		return "", false
	}
	scheme, token, _ := strings.Cut(lines[0], " ")
	token = strings.Trim(token, " ")
	return token, strings.EqualFold(scheme, "Bearer") && token != ""
}
