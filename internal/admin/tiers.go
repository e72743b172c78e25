package admin

import "github.com/quotad/quotad"

func (s *Server) tierResource() resource[quotad.TierSpec, quotad.Tier] {
	return resource[quotad.TierSpec, quotad.Tier]{
		path:     "/tiers/",
		identify: func(t quotad.Tier) (string, tag) { return t.Name, tag{created: t.CreatedAt, version: t.Version} },
		insert:   s.tiers.CreateTier, page: s.tiers.Tiers, find: s.tiers.Tier, edit: s.tiers.UpdateTier, remove: s.tiers.DeleteTier,
	}
}
