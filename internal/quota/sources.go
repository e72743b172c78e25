package quota

import (
	"context"
	"time"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/apikeys"
	"github.com/quotad/quotad/internal/ratelimit"
)

// Keys finds API keys, such as *apikeys.Store. What it leaves out does not exist.
type Keys interface {
	Find(ctx context.Context, ids []string) (map[string]apikeys.Stored, error)
}

// Tenants finds a tenant by id, such as *tiers.Store.
type Tenants interface {
	Tenant(ctx context.Context, id string) (quotad.Tenant, error)
}

// Tiers finds a tier by name, such as *tiers.Store.
type Tiers interface {
	Tier(ctx context.Context, name string) (quotad.Tier, error)
}

// RouteGroups lists all route groups, such as *tiers.Store.
type RouteGroups interface {
	AllRouteGroups(ctx context.Context) ([]quotad.RouteGroup, error)
}

// Tokens finds, by text, the admin tokens that presented texts are, in whatever
// state, such as *admintokens.Store. What it leaves out is nobody's.
type Tokens interface {
	Presented(ctx context.Context, texts []string) (map[string]quotad.AdminToken, error)
}

// Sources are where a Checker looks up who calls and what holds for them. What
// does not exist is quotad.ErrNotFound, and quotad.ErrStoreUnavailable means
// that the database did not say.
type Sources struct {
	Keys        Keys
	Tenants     Tenants
	Tiers       Tiers
	RouteGroups RouteGroups
	Tokens      Tokens
}

// Limiter charges calls, such as *ratelimit.Failover or *ratelimit.Memory. The
// policy answers while its store is away.
type Limiter interface {
	TakeOr(ctx context.Context, call ratelimit.Call, status []ratelimit.Status, policy quotad.FailurePolicy) (ratelimit.Outcome, error)
	// TakeAllOr charges a list of calls, each as TakeOr does and after those before it.
	TakeAllOr(ctx context.Context, list []*ratelimit.Question)
}

// Touch notes that a key was used, such as *apikeys.Touches. It is on the way of
// every call and must be quick.
type Touch interface {
	Note(keyID string, now time.Time)
}
