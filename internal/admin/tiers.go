package admin

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/quotad/quotad"
)

func tierTag(r quotad.Tier) tag { return tag{created: r.CreatedAt, version: r.Version} }

func (s *Server) createTier(c echo.Context) error {
	spec, err := decode[quotad.TierSpec](c, quotad.Tier{})
	if err != nil {
		return err
	}
	tier, err := s.tiers.CreateTier(c.Request().Context(), actorOf(c), spec)
	if err != nil {
		return err
	}
	return created(c, "/tiers/"+tier.Name, tierTag(tier), tier)
}

func (s *Server) listTiers(c echo.Context) error {
	page, err := pageOf(c)
	if err != nil {
		return err
	}
	items, next, err := s.tiers.Tiers(c.Request().Context(), page)
	if err != nil {
		return err
	}
	return list(c, items, next)
}

func (s *Server) readTier(c echo.Context) error {
	name, err := named(c, "name")
	if err != nil {
		return err
	}
	tier, err := s.tiers.Tier(c.Request().Context(), name)
	if err != nil {
		return err
	}
	return show(c, tierTag(tier), tier)
}

func (s *Server) updateTier(c echo.Context) error {
	name, err := named(c, "name")
	if err != nil {
		return err
	}
	patch, err := decodePatch[quotad.TierSpec](c, quotad.Tier{})
	if err != nil {
		return err
	}
	version, err := s.expectedTier(c, name)
	if err != nil {
		return err
	}
	tier, err := s.tiers.UpdateTier(c.Request().Context(), actorOf(c), name, version, patch.apply)
	if err != nil {
		return err
	}
	return updated(c, tierTag(tier), tier)
}

func (s *Server) deleteTier(c echo.Context) error {
	name, err := named(c, "name")
	if err != nil {
		return err
	}
	version, err := s.expectedTier(c, name)
	if err != nil {
		return err
	}
	if err := s.tiers.DeleteTier(c.Request().Context(), actorOf(c), name, version); err != nil {
		return err
	}
	return c.NoContent(http.StatusNoContent)
}

// expectedTier is the version that If-Match asks for.
func (s *Server) expectedTier(c echo.Context, name string) (*int64, error) {
	return expected(c.Request().Header, func() (tag, error) {
		tier, err := s.tiers.Tier(c.Request().Context(), name)
		return tierTag(tier), err
	})
}
