package admin

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/quotad/quotad"
)

func tenantTag(r quotad.Tenant) tag { return tag{created: r.CreatedAt, version: r.Version} }

func (s *Server) createTenant(c echo.Context) error {
	spec, err := decode[quotad.TenantSpec](c, quotad.Tenant{})
	if err != nil {
		return err
	}
	tenant, err := s.tiers.CreateTenant(c.Request().Context(), actorOf(c), spec)
	if err != nil {
		return err
	}
	return created(c, "/tenants/"+tenant.ID, tenantTag(tenant), tenant)
}

func (s *Server) listTenants(c echo.Context) error {
	page, err := pageOf(c)
	if err != nil {
		return err
	}
	items, next, err := s.tiers.Tenants(c.Request().Context(), page)
	if err != nil {
		return err
	}
	return list(c, items, next)
}

func (s *Server) readTenant(c echo.Context) error {
	name, err := named(c, "name")
	if err != nil {
		return err
	}
	tenant, err := s.tiers.Tenant(c.Request().Context(), name)
	if err != nil {
		return err
	}
	return show(c, tenantTag(tenant), tenant)
}

func (s *Server) updateTenant(c echo.Context) error {
	name, err := named(c, "name")
	if err != nil {
		return err
	}
	patch, err := decodePatch[quotad.TenantSpec](c, quotad.Tenant{})
	if err != nil {
		return err
	}
	version, err := s.expectedTenant(c, name)
	if err != nil {
		return err
	}
	tenant, err := s.tiers.UpdateTenant(c.Request().Context(), actorOf(c), name, version, patch.apply)
	if err != nil {
		return err
	}
	return updated(c, tenantTag(tenant), tenant)
}

func (s *Server) deleteTenant(c echo.Context) error {
	name, err := named(c, "name")
	if err != nil {
		return err
	}
	version, err := s.expectedTenant(c, name)
	if err != nil {
		return err
	}
	if err := s.tiers.DeleteTenant(c.Request().Context(), actorOf(c), name, version); err != nil {
		return err
	}
	return c.NoContent(http.StatusNoContent)
}

// expectedTenant is the version that If-Match asks for.
func (s *Server) expectedTenant(c echo.Context, name string) (*int64, error) {
	return expected(c.Request().Header, func() (tag, error) {
		tenant, err := s.tiers.Tenant(c.Request().Context(), name)
		return tenantTag(tenant), err
	})
}
