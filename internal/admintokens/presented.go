package admintokens

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/database"
	"github.com/quotad/quotad/internal/secret"
)

// Presented returns, by text, the tokens that the presented texts are, expired or
// not, for those who need to know what they may do and not how they were
// recognised. A text that is nobody's is left out. Fewer texts than database.MaxIn
// are one query; what can be neither minted nor given costs none.
func (s *Store) Presented(ctx context.Context, texts []string) (map[string]quotad.AdminToken, error) {
	found := make(map[string]quotad.AdminToken, len(texts))
	bySum := make(map[secret.Sum]string, len(texts))
	ids := map[string]bool{}
	for _, text := range texts {
		id, minted := secret.Parse(secret.AdminToken, text)
		switch {
		case minted:
			ids[id] = true
		case !givable(text):
			continue
		}
		bySum[secret.Hash(text)] = text
	}
	if len(bySum) == 0 {
		return found, nil
	}
	// The bootstrap token's text may have any form, so it is looked at with all of them.
	ids[BootstrapID] = true
	for some := range slices.Chunk(slices.Collect(maps.Keys(ids)), database.MaxIn) {
		stored, err := readAny(ctx, s.db, some...)
		if err != nil {
			return nil, fmt.Errorf("find %d admin tokens: %w", len(texts), err)
		}
		for _, t := range stored {
			if text, ok := bySum[t.Sum]; ok {
				found[text] = t.Token
			}
		}
	}
	return found, nil
}
