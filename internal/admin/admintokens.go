package admin

import (
	"context"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/tiers"
)

// adminTokenResource is of tokens, which can't be edited.
func (s *Server) adminTokenResource() resource[quotad.AdminTokenSpec, quotad.AdminToken] {
	return resource[quotad.AdminTokenSpec, quotad.AdminToken]{
		path:     "/admin-tokens/",
		identify: func(t quotad.AdminToken) (string, tag) { return t.ID, tag{created: t.CreatedAt, version: t.Version} },
		insert:   s.adminTokens.Create, page: s.adminTokens.Tokens, find: s.adminTokens.Token,
		remove: func(ctx context.Context, by quotad.Actor, id string, ifMatch *tiers.Revision) error {
			return s.adminTokens.Delete(ctx, by, id, versionOf(ifMatch))
		},
	}
}
