package admin

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/quotad/quotad"
)

func adminTokenTag(t quotad.AdminToken) tag { return tag{created: t.CreatedAt, version: t.Version} }

func (s *Server) createAdminToken(c echo.Context) error {
	spec, err := decode[quotad.AdminTokenSpec](c, quotad.AdminToken{})
	if err != nil {
		return err
	}
	token, err := s.adminTokens.Create(c.Request().Context(), actorOf(c), spec)
	if err != nil {
		return err
	}
	return created(c, "/admin-tokens/"+token.ID, adminTokenTag(token), token)
}

func (s *Server) listAdminTokens(c echo.Context) error {
	page, err := pageOf(c)
	if err != nil {
		return err
	}
	tokens, next, err := s.adminTokens.Tokens(c.Request().Context(), page)
	if err != nil {
		return err
	}
	return list(c, tokens, next)
}

func (s *Server) readAdminToken(c echo.Context) error {
	id, err := named(c, "id")
	if err != nil {
		return err
	}
	token, err := s.adminTokens.Token(c.Request().Context(), id)
	if err != nil {
		return err
	}
	return show(c, adminTokenTag(token), token)
}

func (s *Server) deleteAdminToken(c echo.Context) error {
	id, err := named(c, "id")
	if err != nil {
		return err
	}
	version, err := expected(c.Request().Header, func() (tag, error) {
		token, err := s.adminTokens.Token(c.Request().Context(), id)
		return adminTokenTag(token), err
	})
	if err != nil {
		return err
	}
	if err := s.adminTokens.Delete(c.Request().Context(), actorOf(c), id, version); err != nil {
		return err
	}
	return c.NoContent(http.StatusNoContent)
}
