package admin

import "github.com/quotad/quotad"

// adminTokenResource is of tokens, which can't be edited.
func (s *Server) adminTokenResource() resource[quotad.AdminTokenSpec, quotad.AdminToken] {
	return resource[quotad.AdminTokenSpec, quotad.AdminToken]{
		path:     "/admin-tokens/",
		identify: func(t quotad.AdminToken) (string, tag) { return t.ID, tag{created: t.CreatedAt, version: t.Version} },
		insert:   s.adminTokens.Create, page: s.adminTokens.Tokens, find: s.adminTokens.Token, remove: s.adminTokens.Delete,
	}
}
