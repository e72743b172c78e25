package migrations

import (
	"context"
	"errors"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/database"
)

// Observe is Status for a node that serves: it asks over the connections that the node has.
func Observe(ctx context.Context, db *database.DB) (State, error) {
	_, latest, err := sources(db.Engine(), files)
	if err != nil {
		return State{}, err
	}
	version, dirty := 0, false
	err = db.QueryRowContext(ctx, "SELECT version, dirty FROM schema_migrations").Scan(&version, &dirty)
	if err != nil && !errors.Is(err, quotad.ErrNotFound) {
		return State{}, wrap("read the schema version", err)
	}
	return State{Version: uint(max(version, 0)), Latest: latest, Dirty: dirty}, nil
}
