package httpapi

import (
	"net/netip"
	"testing"
)

func TestTheClientIsThePeerOrTheRightmostUntrustedHop(t *testing.T) {
	t.Parallel()
	s := service(t, &answers{}, Options{TrustedProxies: []netip.Prefix{
		netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8:ffff::/48"), netip.MustParsePrefix("::ffff:192.168.7.0/120"),
		netip.MustParsePrefix("fe80::/10"),
	}})
	for _, c := range []struct {
		peer string
		xff  []string
		want string
	}{
		{"203.0.113.9:1", nil, "203.0.113.9"},
		{"203.0.113.9:1", []string{"198.51.100.1"}, "203.0.113.9"},
		{"127.0.0.1:1", []string{"198.51.100.1"}, "127.0.0.1"},
		{"192.168.1.1:1", []string{"198.51.100.1"}, "192.168.1.1"},
		{"[::1]:1", []string{"198.51.100.1"}, "::1"},
		{"10.0.0.9:1", nil, "10.0.0.9"},
		{"10.0.0.9:1", []string{"198.51.100.1"}, "198.51.100.1"},
		{"10.0.0.9:1", []string{"1.1.1.1, 198.51.100.1"}, "198.51.100.1"},
		{"10.0.0.9:1", []string{"1.1.1.1", "198.51.100.1"}, "198.51.100.1"},
		{"10.0.0.9:1", []string{"1.1.1.1,198.51.100.1 , 10.1.1.1", " 10.2.2.2"}, "198.51.100.1"},
		{"10.0.0.9:1", []string{"10.3.3.3, 10.2.2.2"}, "10.3.3.3"},
		{"10.0.0.9:1", []string{"junk, 198.51.100.1"}, "198.51.100.1"},
		{"10.0.0.9:1", []string{"198.51.100.1, junk"}, "10.0.0.9"},
		{"10.0.0.9:1", []string{""}, "10.0.0.9"},
		{"10.0.0.9:1", []string{"198.51.100.1, "}, "10.0.0.9"},
		{"10.0.0.9:1", []string{"unknown"}, "10.0.0.9"},
		{"10.0.0.9:1", []string{"198.51.100.1:4711"}, "198.51.100.1"},
		{"10.0.0.9:1", []string{"[2001:db8::1]:4711"}, "2001:db8::1"},
		{"10.0.0.9:1", []string{"[2001:db8::1]"}, "2001:db8::1"},
		{"10.0.0.9:1", []string{"::ffff:198.51.100.1"}, "198.51.100.1"},
		{"[::ffff:10.0.0.9]:1", []string{"198.51.100.1"}, "198.51.100.1"},
		{"[::ffff:203.0.113.9]:1", nil, "203.0.113.9"},
		{"192.168.7.1:1", []string{"198.51.100.1"}, "198.51.100.1"},
		{"[2001:db8:ffff::1]:1", []string{"2001:db8::9"}, "2001:db8::9"},
		{"[fe80::1%eth0]:1", []string{"2001:db8::9"}, "2001:db8::9"},
		{"@", []string{"198.51.100.1"}, "invalid IP"},
		{"", nil, "invalid IP"},
	} {
		r := request("GET", "/v1/ping", "", "X-Real-IP: 9.9.9.9", "True-Client-IP: 9.9.9.9", "CF-Connecting-IP: 9.9.9.9", "Forwarded: for=9.9.9.9")
		r.RemoteAddr = c.peer
		for _, line := range c.xff {
			r.Header.Add("X-Forwarded-For", line)
		}
		if got := s.client(r).String(); got != c.want {
			t.Errorf("peer %s, %q: got %s, want %s", c.peer, c.xff, got, c.want)
		}
	}
}

func TestEveryDoorPassesTheClientsAddressOn(t *testing.T) {
	t.Parallel()
	for _, door := range []string{"GET /v1/ping", "GET /v1/limits", "GET /v1/authorize", "POST /v1/check"} {
		a := &answers{decision: admitted()}
		s := service(t, a, trusting())
		switch door {
		case "POST /v1/check":
			checkBody(s, check, "X-Forwarded-For: 1.1.1.1, 198.51.100.1")
		default:
			get(s, door[len("GET "):], "X-Forwarded-For: 1.1.1.1, 198.51.100.1")
		}
		if got := a.asked(t).Address; got != netip.MustParseAddr("198.51.100.1") {
			t.Errorf("%s: got %s", door, got)
		}
	}
}
