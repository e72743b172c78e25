package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/database"
)

// The demo's tier, tenant and key are all called this.
const demoName = "demo"

// The demo's limit is low, so that whoever tries it meets it soon.
const demoUnits, demoWindow = 10, 60

// welcome prints the admin token that the first start made. It is nowhere else.
func (n *node) welcome(w io.Writer, minted string) error {
	if minted == "" {
		return nil
	}
	_, err := fmt.Fprintf(w, `
  admin token  %s
               This is the only time that it is shown. It opens the admin API at
               %s/admin/v1
`, minted, base(n.at.admin))
	return err
}

// demo sees to it that the printed call works: on an empty store by making a tier, a tenant and a key; on one that an
// earlier demo made by giving its key a new secret, because the old one is nowhere to be read. Any other store it leaves
// alone and says so.
func (n *node) demo(ctx context.Context, w io.Writer, minted string) error {
	key, note, err := n.demoKey(ctx)
	if err != nil {
		return fmt.Errorf("prepare the demo: %w", err)
	}
	limit := ""
	if key.Secret != "" {
		if limit, err = n.demoLimit(ctx, key); err != nil {
			return fmt.Errorf("prepare the demo: %w", err)
		}
	}
	var text strings.Builder
	if minted == "" {
		fmt.Fprintf(&text, `
  admin token  The one that was given or printed when this store was first used. If it is lost, start
               with QUOTAD_ADMIN_TOKEN set to a new one.
`)
	}
	if key.Secret == "" {
		fmt.Fprintf(&text, `
  demo         Nothing was changed: this store is in use. Make a key with
               quotad keys create TENANT --server %s
`, base(n.at.admin))
	} else {
		fmt.Fprintf(&text, `
  demo key     %s
               %s

  Try it; %s:

curl -i -H 'X-API-Key: %s' %s/v1/ping
`, key.Secret, note, limit, key.Secret, base(n.at.metered))
	}
	_, err = fmt.Fprintln(w, text.String())
	return err
}

// demoKey returns a key with a secret, and what to say of it; one without a secret where the store is not the demo's.
func (n *node) demoKey(ctx context.Context) (key quotad.Key, note string, err error) {
	by := quotad.Actor{Type: "command", Name: "serve --demo"}
	switch tenant, err := n.tiers.Tenant(ctx, demoName); {
	case err == nil && tenant.Tier == demoName && tenant.Status == quotad.TenantActive:
		return n.freshKey(ctx, by)
	case err != nil && !errors.Is(err, quotad.ErrNotFound):
		return key, "", err
	}
	if unused, err := n.unused(ctx); err != nil || !unused {
		return key, "", err
	}
	// Either may be there already, if an earlier start was ended between the two.
	tier := quotad.TierSpec{
		Name: demoName, Description: "made by quotad serve --demo", RateLimit: quotad.Units(demoUnits), RateWindow: demoWindow,
	}
	if _, err := n.tiers.CreateTier(ctx, by, tier); err != nil && !errors.Is(err, quotad.ErrExists) {
		return key, "", err
	}
	tenant := quotad.TenantSpec{ID: demoName, Name: "Demo", Tier: demoName}
	if _, err := n.tiers.CreateTenant(ctx, by, tenant); err != nil && !errors.Is(err, quotad.ErrExists) {
		return key, "", err
	}
	key, err = n.keys.Create(ctx, by, demoName, quotad.KeySpec{Name: demoName})
	return key, "Of the tenant demo, made just now.", err
}

// freshKey gives the demo tenant's key a new secret; a new key where there is none that works.
func (n *node) freshKey(ctx context.Context, by quotad.Actor) (quotad.Key, string, error) {
	keys, _, err := n.keys.Keys(ctx, demoName, database.Page{Limit: database.MaxLimit})
	if err != nil {
		return quotad.Key{}, "", err
	}
	for _, k := range keys {
		if k.Name == demoName && k.Status == quotad.KeyActive {
			key, err := n.keys.Rotate(ctx, by, k.ID, nil, 0)
			return key, "Of the tenant demo, with a new secret: the one that an earlier start printed has ended.", err
		}
	}
	key, err := n.keys.Create(ctx, by, demoName, quotad.KeySpec{Name: demoName})
	return key, "Of the tenant demo, made just now: its earlier keys have ended.", err
}

// demoLimit says what the key is admitted to, which its tier may have been edited to since an earlier demo.
func (n *node) demoLimit(ctx context.Context, key quotad.Key) (string, error) {
	if key.RateLimit != nil && key.RateWindow != nil {
		return fmt.Sprintf("the demo key admits %d calls in %d seconds", *key.RateLimit, *key.RateWindow), nil
	}
	tier, err := n.tiers.Tier(ctx, demoName)
	switch {
	case err != nil:
		return "", err
	case tier.RateLimit == nil:
		return "the demo tier has no rate limit", nil
	default:
		return fmt.Sprintf("the demo tier admits %d calls in %d seconds", *tier.RateLimit, tier.RateWindow), nil
	}
}

// unused reports whether the store holds nothing of anybody: no tenant, and no tier but that of a demo.
func (n *node) unused(ctx context.Context) (bool, error) {
	tiers, _, err := n.tiers.Tiers(ctx, database.Page{Limit: 2})
	if err != nil {
		return false, err
	}
	for _, t := range tiers {
		if t.Name != demoName {
			return false, nil
		}
	}
	tenants, _, err := n.tiers.Tenants(ctx, database.Page{Limit: 1})
	return len(tenants) == 0, err
}

// base is how a program on this machine reaches a listener.
func base(addr net.Addr) string {
	host, port, err := net.SplitHostPort(addr.String())
	if err != nil {
		return "http://" + addr.String()
	}
	if ip := net.ParseIP(host); ip == nil || ip.IsUnspecified() {
		host = "localhost"
	}
	return "http://" + net.JoinHostPort(host, port)
}
