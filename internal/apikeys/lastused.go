package apikeys

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/quotad/quotad/internal/database"
	"github.com/quotad/quotad/internal/secret"
)

// touchSize is the most keys that one statement touches.
const touchSize = 200

// Touch records when keys were last used. A time before the one that is stored,
// and an id that does not exist, change nothing. It is no edit: versions stay,
// and there is no event.
func (s *Store) Touch(ctx context.Context, used map[string]time.Time) error {
	// In one order, so that nodes that touch the same keys seldom wait for each
	// other in a circle; where they do InTx runs one of them again.
	ids := slices.DeleteFunc(slices.Sorted(maps.Keys(used)), func(id string) bool { return !secret.ValidID(id) })
	for some := range slices.Chunk(ids, touchSize) {
		if err := s.touch(ctx, some, used); err != nil {
			return fmt.Errorf("record the last use of %d keys: %w", len(used), err)
		}
	}
	return nil
}

func (s *Store) touch(ctx context.Context, ids []string, used map[string]time.Time) error {
	// The empty first part gives the columns their types.
	var b strings.Builder
	b.WriteString(`UPDATE keys SET last_used_at = u.used_at FROM (SELECT id, last_used_at AS used_at FROM keys WHERE 1 = 0`)
	args := make([]any, 0, 2*len(ids))
	for _, id := range ids {
		args = append(args, id, database.Time(used[id]))
		b.WriteString(` UNION ALL SELECT $` + strconv.Itoa(len(args)-1) + `, $` + strconv.Itoa(len(args)))
	}
	b.WriteString(`) AS u WHERE keys.id = u.id AND (keys.last_used_at IS NULL OR keys.last_used_at < u.used_at)`)
	return s.db.InTx(ctx, func(tx *database.Tx) error {
		_, err := tx.ExecContext(ctx, b.String(), args...)
		return err
	})
}
