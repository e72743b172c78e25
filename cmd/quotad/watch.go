package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/quotad/quotad/internal/httpapi"
	"github.com/quotad/quotad/migrations"
)

// The watch looks at the database so often, and waits for its answer so long.
const (
	watchInterval = time.Second
	watchTimeout  = 2 * time.Second
)

// watch knows whether the node can serve.
//
// A store that is away is no reason to take the node out of service: known keys go on being served, failure policies
// answer in place of Redis, and the other nodes have the same stores. It is a note. The node is not ready once nothing
// is left to serve: when the database has been away for longer than anything is remembered, or when its schema is not
// the one that this build works on. Liveness never depends on any of this.
type watch struct {
	node *node

	mu      sync.Mutex
	schema  migrations.State
	err     error     // of the last look
	reached time.Time // when the database last answered
}

// newWatch returns a watch of a node whose database has just been migrated. It looks once, and fails unless it sees that.
func newWatch(ctx context.Context, n *node) (*watch, error) {
	w := &watch{node: n}
	w.look(ctx)
	switch {
	case w.err != nil:
		return nil, w.err
	case w.schema.Dirty || w.schema.Version < w.schema.Latest:
		return nil, fmt.Errorf("database and database-direct do not lead to the same database: there the schema is at version %d, after the migration to %d",
			w.schema.Version, w.schema.Latest)
	}
	return w, nil
}

// run looks at the database until ctx ends.
func (w *watch) run(ctx context.Context) error {
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	for {
		w.look(ctx)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

func (w *watch) look(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, watchTimeout)
	defer cancel()
	schema, err := migrations.Observe(ctx, w.node.db)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err = err; err == nil {
		w.schema, w.reached = schema, time.Now()
	}
}

// ready says what the last look found.
func (w *watch) ready(context.Context) httpapi.Readiness {
	w.mu.Lock()
	defer w.mu.Unlock()
	var r httpapi.Readiness
	away := time.Since(w.reached)
	remembered := w.node.config.CacheTTL + w.node.config.CacheStale
	switch {
	case w.err != nil && away > remembered:
		r.Reasons = append(r.Reasons, fmt.Sprintf("the database has been unreachable for more than %s: no key is remembered for longer", short(remembered)))
	case w.err != nil:
		r.Notes = append(r.Notes, "the database is unreachable: keys that are known go on being served")
	case w.schema.Dirty || w.schema.Version < w.schema.Latest:
		r.Reasons = append(r.Reasons, fmt.Sprintf("the schema is at version %d and this quotad needs %d", w.schema.Version, w.schema.Latest))
	case w.schema.Version > w.schema.Latest:
		r.Notes = append(r.Notes, fmt.Sprintf("the schema is at version %d and this quotad knows versions up to %d", w.schema.Version, w.schema.Latest))
	}
	if !w.node.log.Connected() {
		r.Notes = append(r.Notes, fmt.Sprintf("notices of changes do not arrive: changes made at other nodes are seen within %s", short(w.node.config.CacheTTL)))
	}
	if f := w.node.failover; f != nil && f.State() != "closed" {
		r.Notes = append(r.Notes, "the counter store is away: failure policies answer")
	}
	return r
}
