package admin

import "github.com/quotad/quotad"

func (s *Server) tenantResource() resource[quotad.TenantSpec, quotad.Tenant] {
	return resource[quotad.TenantSpec, quotad.Tenant]{
		path:     "/tenants/",
		identify: func(t quotad.Tenant) (string, tag) { return t.ID, tag{created: t.CreatedAt, version: t.Version} },
		insert:   s.tiers.CreateTenant, page: s.tiers.Tenants, find: s.tiers.Tenant, edit: s.tiers.UpdateTenant, remove: s.tiers.DeleteTenant,
	}
}
