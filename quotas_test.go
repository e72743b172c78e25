package quotad

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestAQuotaGetsItsDefaults(t *testing.T) {
	t.Parallel()
	var got TierSpec
	err := json.Unmarshal([]byte(`{"name":"pro","rate_limit":1,"rate_window":1,"quotas":[{"name":"monthly","quota":10000,"period":"month"},`+
		`{"name":"daily","route_group":"exports","scope":"subject","quota":0,"period":"day","shadow":true},{"name":"free","quota":null,"period":"year"}]}`), &got)
	if err != nil {
		t.Fatal(err)
	}
	got.SetDefaults()
	wantFaulty(t, "tier", got.Validate())
	want := []Quota{
		{Name: "monthly", RouteGroup: "*", Scope: ScopeTenant, Quota: Units(10000), Period: Month},
		{Name: "daily", RouteGroup: "exports", Scope: ScopeSubject, Quota: Units(0), Period: Day, Shadow: true},
		{Name: "free", RouteGroup: "*", Scope: ScopeTenant, Period: Year},
	}
	if diff := cmp.Diff(want, got.Quotas); diff != "" {
		t.Errorf("quotas (-want +got):\n%s", diff)
	}
	raw, err := json.Marshal(got.Quotas[0])
	if text := `{"name":"monthly","route_group":"*","scope":"tenant","quota":10000,"period":"month","shadow":false}`; err != nil || string(raw) != text {
		t.Errorf("got %s, %v", raw, err)
	}
	var none TierSpec
	if none.SetDefaults(); none.Quotas == nil {
		t.Error("a tier without quotas has null, not an empty list")
	}
}

func TestAllFaultsOfQuotasAreToldAtOnce(t *testing.T) {
	t.Parallel()
	faults := tier(func(t *TierSpec) {
		t.Limits = []Limit{{Name: "exports", RateWindow: 1}}
		t.Quotas = []Quota{
			{Name: "exports", Period: Day},
			{Name: "monthly", Period: Month, Quota: Units(MaxUnits)},
			{Name: "monthly", Period: Month, RouteGroup: "No", Scope: "all"},
			{Name: "base", Period: "hour", Quota: Units(-1)},
			{Name: "No"},
			{Name: "large", Period: Week, Quota: Units(MaxUnits + 1)},
		}
	}).Validate()
	wantFaulty(t, "tier", faults,
		"quotas[0].name", "quotas[2].name", "quotas[2].route_group", "quotas[2].scope",
		"quotas[3].name", "quotas[3].period", "quotas[3].quota", "quotas[4].name", "quotas[4].period", "quotas[5].quota")
	if got := faults["quotas[3].period"]; got != "must be one of day, week, month, year" {
		t.Errorf("period %q", got)
	}
}

func TestATierCarriesAtMost32Quotas(t *testing.T) {
	t.Parallel()
	with := func(n int) TierSpec {
		return tier(func(t *TierSpec) {
			for i := range n {
				t.Quotas = append(t.Quotas, Quota{Name: fmt.Sprintf("q%d", i), Period: Day})
			}
		})
	}
	wantFaulty(t, "32", with(MaxQuotas).Validate())
	wantFaulty(t, "33", with(MaxQuotas+1).Validate(), "quotas")
}
