package quota

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/apikeys"
	"github.com/quotad/quotad/internal/secret"
)

// Why a credential is refused. Callers see one same answer to all of these; the
// cause is for logs.
var (
	errMalformed   = invalid("malformed")
	errUnknown     = invalid("unknown")
	errWrongSecret = invalid("wrong or expired secret")
	errDisabled    = invalid("disabled")
	errRevoked     = invalid("revoked")
	errExpired     = invalid("expired")
	errAddress     = invalid("address not allowed")
	errSuspended   = invalid("tenant suspended")
	errRole        = invalid("admin token without the role service")
)

func invalid(cause string) *quotad.Error {
	return &quotad.Error{Code: quotad.CodeInvalidAPIKey, Cause: errors.New(cause)}
}

// maxChanges is how many times a caller is looked up anew because what was found
// no longer fits together: a tenant's tier may be gone by the time that it is
// looked up, where the tenant has just moved to another.
const maxChanges = 3

var errChanging = &quotad.Error{
	Code: quotad.CodeStoreUnavailable, RetryAfter: time.Second,
	Cause: errors.New("the tenant's tier does not exist"),
}

// identify finds out who calls.
func (c *Checker) identify(ctx context.Context, call Call, groups *groups, now time.Time) (*standing, error) {
	switch {
	case call.APIKey != "" && call.ServiceToken != "":
		return nil, quotad.NewError(quotad.CodeAmbiguousCredentials, "")
	case call.APIKey != "":
		return c.byKey(ctx, call.APIKey, call.Address, groups, now)
	case call.ServiceToken != "":
		if err := c.checkToken(ctx, call.ServiceToken, now); err != nil {
			return nil, err
		}
		return c.byTenant(ctx, call, groups, now)
	case call.Vouched:
		return c.byTenant(ctx, call, groups, now)
	default:
		return nil, quotad.NewError(quotad.CodeAPIKeyRequired, "")
	}
}

func (c *Checker) byKey(ctx context.Context, text string, addr netip.Addr, groups *groups, now time.Time) (*standing, error) {
	id, ok := secret.Parse(secret.APIKey, text)
	if !ok {
		compareWithNothing(now)
		return nil, errMalformed
	}
	for range maxChanges {
		k, err := c.keys.Get(ctx, id, now)
		if errors.Is(err, quotad.ErrNotFound) {
			compareWithNothing(now)
			return nil, errUnknown
		}
		if err != nil {
			return nil, fmt.Errorf("look up a key: %w", err)
		}
		if err := admits(&k.stored, text, addr, now); err != nil {
			return nil, err
		}
		t, tier, err := c.tenant(ctx, k.stored.Key.Tenant, now)
		switch {
		case errors.Is(err, quotad.ErrNotFound):
			c.keys.Invalidate(id) // it went with its tenant
			return nil, errUnknown
		case err != nil:
			return nil, err
		case t.tenant.Status != quotad.TenantActive:
			return nil, errSuspended
		}
		if s := k.standing.Load(); s != nil && !s.tenant.tenant.CreatedAt.Equal(t.tenant.CreatedAt) {
			c.keys.Invalidate(id) // it was a key of an earlier tenant of this name
			continue
		}
		if c.opts.Touch != nil {
			c.opts.Touch.Note(id, now)
		}
		return newStanding(&k.standing, &k.stored.Key, t, tier, groups), nil
	}
	return nil, errChanging
}

// admits tells whether a stored key lets the presented text in. The comparison
// is made first and always, so that the answers take like time.
func admits(k *apikeys.Stored, text string, addr netip.Addr, now time.Time) error {
	if !k.Admits(text, now) {
		return errWrongSecret
	}
	switch k.Key.StatusAt(now) {
	case quotad.KeyActive:
	case quotad.KeyDisabled:
		return errDisabled
	case quotad.KeyExpired:
		return errExpired
	default:
		return errRevoked
	}
	if !k.Key.AdmitsFrom(addr) {
		return errAddress
	}
	return nil
}

// compareWithNothing takes as long as the comparison of a key that exists.
func compareWithNothing(now time.Time) { apikeys.Stored{}.Admits(anyText, now) }

// anyText is as long as the text of a key.
var anyText = strings.Repeat("0", 58)

// byTenant finds the tenant that a service asks for. Where a faulty call names none,
// that is the door's to say.
func (c *Checker) byTenant(ctx context.Context, call Call, groups *groups, now time.Time) (*standing, error) {
	id := call.Tenant
	if call.Fault != nil && !quotad.ValidName(id) {
		return nil, call.Fault
	}
	if id == "" {
		return nil, quotad.NewError(quotad.CodeInvalidRequest, "tenant is required with a service token")
	}
	unknown := quotad.NewError(quotad.CodeInvalidRequest, "tenant does not exist")
	if !quotad.ValidName(id) {
		return nil, unknown
	}
	t, tier, err := c.tenant(ctx, id, now)
	switch {
	case errors.Is(err, quotad.ErrNotFound):
		unknown.Detail = fmt.Sprintf("tenant %q does not exist", id)
		return nil, unknown
	case err != nil:
		return nil, err
	case t.tenant.Status != quotad.TenantActive:
		return nil, errSuspended
	}
	return newStanding(&t.standing, nil, t, tier, groups), nil
}

// tenant finds a tenant and its tier; quotad.ErrNotFound means the tenant.
func (c *Checker) tenant(ctx context.Context, id string, now time.Time) (*tenantEntry, *quotad.Tier, error) {
	for range maxChanges {
		t, err := c.tenants.Get(ctx, id, now)
		if errors.Is(err, quotad.ErrNotFound) {
			return nil, nil, err
		}
		if err != nil {
			return nil, nil, fmt.Errorf("look up a tenant: %w", err)
		}
		tier, err := c.tiers.Get(ctx, t.tenant.Tier, now)
		switch {
		case err == nil:
			return t, tier, nil
		case !errors.Is(err, quotad.ErrNotFound):
			return nil, nil, fmt.Errorf("look up a tier: %w", err)
		}
		c.tenants.Invalidate(id) // it has moved to another tier, or it could not be deleted
	}
	return nil, nil, fmt.Errorf("look up a tier: %w", errChanging)
}

// CheckServiceToken is nil for a service token that works now: whoever presents it may
// speak for any tenant. It is for doors that know their peer by it (Call.Vouched).
func (c *Checker) CheckServiceToken(ctx context.Context, text string) error {
	err := c.checkToken(ctx, text, c.opts.Now())
	if err != nil && !errors.Is(err, quotad.ErrInvalidAPIKey) && !errors.Is(err, context.Canceled) {
		c.lines.failure(ctx, "peer not identified", err)
	}
	return err
}

// checkToken tells whether a service token is one that works now.
func (c *Checker) checkToken(ctx context.Context, text string, now time.Time) error {
	// Tokens that an operator chose himself are the owner's, never a service's.
	if _, ok := secret.Parse(secret.AdminToken, text); !ok {
		compareWithNothing(now)
		return errMalformed
	}
	sum := secret.Hash(text)
	t, err := c.tokens.get(ctx, string(sum[:]), now, func(ctx context.Context, _ string) (quotad.AdminToken, error) {
		return c.presented.Find(ctx, text)
	})
	switch {
	case errors.Is(err, quotad.ErrNotFound):
		return errUnknown
	case err != nil:
		return fmt.Errorf("look up a service token: %w", err)
	case t.Role != quotad.RoleService:
		return errRole
	case t.ExpiresAt != nil && !now.Before(*t.ExpiresAt):
		return errExpired
	}
	return nil
}
