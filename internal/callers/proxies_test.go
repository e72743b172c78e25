package callers

import (
	"net/netip"
	"testing"
)

func TestAnAddressCountsByItsNetwork(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		address string
		bits    int
		want    string
	}{
		{"192.0.2.7", 64, "192.0.2.7"},
		{"192.0.2.8", 48, "192.0.2.8"},
		{"::ffff:192.0.2.7", 64, "192.0.2.7"},
		{"2001:db8:1:2:3:4:5:6", 64, "2001:db8:1:2::"},
		{"2001:db8:1:2:ffff::1", 64, "2001:db8:1:2::"},
		{"2001:db8:1:3::1", 64, "2001:db8:1:3::"},
		{"2001:db8:1:3::1", 48, "2001:db8:1::"},
		{"2001:db8:1:3::1", 128, "2001:db8:1:3::1"},
		{"fe80::1%eth0", 128, "fe80::1"},
	} {
		if got := Network(netip.MustParseAddr(c.address), c.bits).String(); got != c.want {
			t.Errorf("Network(%s, %d) = %s, want %s", c.address, c.bits, got, c.want)
		}
	}
}
