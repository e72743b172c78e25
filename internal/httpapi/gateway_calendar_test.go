package httpapi

import (
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/admintokens"
	"github.com/quotad/quotad/internal/apikeys"
	"github.com/quotad/quotad/internal/database"
	"github.com/quotad/quotad/internal/database/databasetest"
	"github.com/quotad/quotad/internal/events"
	"github.com/quotad/quotad/internal/quota"
	"github.com/quotad/quotad/internal/ratelimit"
	"github.com/quotad/quotad/internal/tiers"
)

// A quota of a day ends at midnight of the tenant's zone, whatever the machine's is.
func TestGatewayCutsDaysInTheTenantsZone(t *testing.T) {
	t.Parallel()
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		var at atomic.Int64
		clock := func() time.Time { return time.Unix(at.Load(), 0).UTC() }
		set := func(text string) {
			moment, err := time.Parse(time.RFC3339, text)
			if err != nil {
				t.Fatal(err)
			}
			at.Store(moment.Unix())
		}
		set("2026-11-30T15:59:58Z")
		log := events.NewLog(db, events.Options{Now: clock})
		plans := tiers.NewStore(db, log, tiers.Options{Now: clock})
		keys := apikeys.NewStore(db, log, apikeys.Options{Now: clock})
		tokens := admintokens.NewStore(db, log, admintokens.Options{Now: clock})
		checker := quota.New(quota.Sources{Keys: keys, Tenants: plans, Tiers: plans, RouteGroups: plans, Tokens: tokens},
			ratelimit.NewMemory(ratelimit.MemoryOptions{Now: clock}), quota.Options{Now: clock})

		actor := quotad.Actor{Type: "system", Name: "test"}
		tier := quotad.TierSpec{Name: "daily", RateWindow: 60, Quotas: []quotad.Quota{{Name: "day", Quota: quotad.Units(1), Period: quotad.Day}}}
		tier.SetDefaults()
		if _, err := plans.CreateTier(t.Context(), actor, tier); err != nil {
			t.Fatal(err)
		}
		secret := func(id, zone string) string {
			tenant := quotad.TenantSpec{ID: id, Name: id, Tier: "daily", TimeZone: zone}
			tenant.SetDefaults()
			if _, err := plans.CreateTenant(t.Context(), actor, tenant); err != nil {
				t.Fatal(err)
			}
			made, err := keys.Create(t.Context(), actor, id, quotad.KeySpec{Name: "k"})
			if err != nil {
				t.Fatal(err)
			}
			return made.Secret
		}
		shanghai, utc := secret("shanghai", "Asia/Shanghai"), secret("utc", "UTC")

		g := gateTo(t, checker, Options{Now: clock}, GatewayOptions{}, func(http.ResponseWriter, *http.Request) {})
		ask := func(key string) (int, http.Header) {
			res, err := http.DefaultTransport.RoundTrip(func() *http.Request {
				r, _ := http.NewRequest(http.MethodGet, "http://"+g.address+"/x", nil)
				r.Header.Set("X-API-Key", key)
				return r
			}())
			if err != nil {
				t.Fatal(err)
			}
			_ = res.Body.Close()
			return res.StatusCode, res.Header
		}
		for _, step := range []struct {
			at            string
			shanghai, utc int
		}{
			{"2026-11-30T15:59:58Z", 200, 200},
			{"2026-11-30T15:59:59Z", 429, 429},
			{"2026-11-30T16:00:00Z", 200, 429},
			{"2026-11-30T23:59:59Z", 429, 429},
			{"2026-12-01T00:00:00Z", 429, 200},
		} {
			set(step.at)
			if got, header := ask(shanghai); got != step.shanghai {
				t.Errorf("%s in Shanghai: got %d, want %d; %v", step.at, got, step.shanghai, header)
			}
			if got, header := ask(utc); got != step.utc {
				t.Errorf("%s in UTC: got %d, want %d; %v", step.at, got, step.utc, header)
			}
		}
	})
}
