package quotad_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quotad/quotad"
)

func TestAllFaultsOfAKeyAreNamed(t *testing.T) {
	t.Parallel()
	spec := quotad.KeySpec{
		Name:         "two\nlines",
		RateLimit:    quotad.Units(-1),
		RateWindow:   quotad.Units(0),
		RouteGroups:  []string{"exports", "Exports"},
		AllowedCIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), {}, netip.MustParsePrefix("::ffff:10.0.0.0/104")},
		Status:       quotad.KeyRevoked,
	}
	want := []string{"allowed_cidrs[1]", "allowed_cidrs[2]", "name", "rate_limit", "rate_window", "route_groups[1]", "status"}
	faults := spec.Validate()
	for _, field := range want {
		if !faults.Has(field) {
			t.Errorf("no fault of %s", field)
		}
	}
	if len(faults) != len(want) {
		t.Errorf("faults %v, want those of %v", faults, want)
	}

	half := quotad.KeySpec{Status: quotad.KeyActive, RateLimit: quotad.Units(1)}
	if diff := cmp.Diff(quotad.Faults{"rate_window": "is required with rate_limit"}, half.Validate()); diff != "" {
		t.Errorf("a limit without a window (-want +got):\n%s", diff)
	}
	var whole quotad.KeySpec
	whole.SetDefaults()
	if faults := whole.Validate(); faults != nil {
		t.Errorf("the default key has faults: %v", faults)
	}
}

func TestAKeyExpiresAtTheInstantItSays(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		stored quotad.KeyStatus
		at     time.Time
		want   quotad.KeyStatus
	}{
		{quotad.KeyActive, noon.Add(-1), quotad.KeyActive},
		{quotad.KeyActive, noon, quotad.KeyExpired},
		{quotad.KeyDisabled, noon, quotad.KeyExpired},
		{quotad.KeyRevoked, noon, quotad.KeyRevoked},
	} {
		key := quotad.Key{KeySpec: quotad.KeySpec{Status: c.stored, ExpiresAt: &noon}}
		if got := key.StatusAt(c.at); got != c.want {
			t.Errorf("%s at %s is %s, want %s", c.stored, c.at, got, c.want)
		}
	}
}

func TestAKeyAdmitsOnlyItsAddresses(t *testing.T) {
	t.Parallel()
	var spec quotad.KeySpec
	if !(quotad.Key{KeySpec: spec}).AdmitsFrom(netip.Addr{}) {
		t.Error("a key without ranges refuses an address")
	}
	spec.AllowedCIDRs = []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("2001:db8::/32")}
	key := quotad.Key{KeySpec: spec}
	for addr, want := range map[string]bool{
		"10.1.255.255": true, "::ffff:10.1.0.1": true, "2001:db8::1": true,
		"10.2.0.0": false, "2001:db9::": false, "::1": false,
	} {
		if got := key.AdmitsFrom(netip.MustParseAddr(addr)); got != want {
			t.Errorf("from %s: %v, want %v", addr, got, want)
		}
	}
	if key.AdmitsFrom(netip.Addr{}) {
		t.Error("a key with ranges admits an unknown address")
	}
}
