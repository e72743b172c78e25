package admintokens

import (
	"context"

	"github.com/quotad/quotad"
)

// Presented returns the token that a presented text is, as Find does, for those
// who need to know what it may do and not how it was recognised.
func (s *Store) Presented(ctx context.Context, text string) (quotad.AdminToken, error) {
	found, err := s.Find(ctx, text)
	return found.Token, err
}
