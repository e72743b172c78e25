package admin

import "github.com/quotad/quotad"

func (s *Server) routeGroupResource() resource[quotad.RouteGroupSpec, quotad.RouteGroup] {
	return resource[quotad.RouteGroupSpec, quotad.RouteGroup]{
		path:     "/route-groups/",
		identify: func(g quotad.RouteGroup) (string, tag) { return g.Name, tag{created: g.CreatedAt, version: g.Version} },
		insert:   s.tiers.CreateRouteGroup, page: s.tiers.RouteGroups, find: s.tiers.RouteGroup,
		edit: s.tiers.UpdateRouteGroup, remove: s.tiers.DeleteRouteGroup,
	}
}
