package admintokens

import (
	"context"
	"fmt"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/database"
	"github.com/quotad/quotad/internal/secret"
)

// presentedSizes are how many ids one query asks for: few, so that the database
// sees few different texts.
var presentedSizes = [...]int{2, 8, 64}

// Presented returns, by text, the tokens that the presented texts are, expired or
// not, for those who need to know what they may do and not how they were
// recognised. A text that is nobody's is left out. Up to 63 texts are one query;
// what can be neither minted nor given costs none.
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
	args := []any{BootstrapID}
	for id := range ids {
		args = append(args, id)
	}
	for len(args) > 0 {
		n := min(len(args), presentedSizes[len(presentedSizes)-1])
		stored, err := readAny(ctx, s.db, args[:n:n])
		if err != nil {
			return nil, fmt.Errorf("find %d admin tokens: %w", len(texts), err)
		}
		args = args[n:]
		for _, t := range stored {
			if text, ok := bySum[t.Sum]; ok {
				found[text] = t.Token
			}
		}
	}
	return found, nil
}

// readAny reads the tokens of at most as many ids as one query takes, those that exist.
func readAny(ctx context.Context, db database.Reader, ids []any) ([]Stored, error) {
	size := 0
	for _, size = range presentedSizes {
		if size >= len(ids) {
			break
		}
	}
	for len(ids) < size {
		ids = append(ids, ids[0])
	}
	rows, err := db.QueryContext(ctx, `SELECT `+columns+` FROM admin_tokens WHERE id IN (`+placeholders(size)+`)`, ids...)
	if err != nil {
		return nil, err
	}
	return collect(rows)
}
