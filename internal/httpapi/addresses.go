package httpapi

import (
	"net/http"
	"net/netip"
	"strings"
)

// peer is the other end of the connection; the zero Addr where it has no IP address.
func peer(r *http.Request) netip.Addr {
	at, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	return plain(at.Addr())
}

// plain is an address without its zone, IPv4 as IPv4.
func plain(a netip.Addr) netip.Addr { return a.Unmap().WithZone("") }

// trusts reports whether the address belongs to a trusted proxy.
func (s *Server) trusts(a netip.Addr) bool {
	for _, p := range s.trusted {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

// client is the address that a request comes from: the peer, or, where the peer
// is a trusted proxy, the right-most hop of X-Forwarded-For that is none. What a
// client wrote into the header itself stands further left and is never reached.
// Hops that can't be read end the search: then the peer has to answer for them.
func (s *Server) client(r *http.Request) netip.Addr {
	at := peer(r)
	lines := r.Header["X-Forwarded-For"]
	if len(lines) == 0 || !s.trusts(at) {
		return at
	}
	furthest := at
	for i := len(lines) - 1; i >= 0; i-- {
		for rest, more := lines[i], true; more; {
			var hop string
			rest, hop, more = cutLast(rest)
			a, ok := parseHop(hop)
			if !ok {
				return at
			}
			if !s.trusts(a) {
				return a
			}
			furthest = a
		}
	}
	return furthest
}

// cutLast cuts the last element off a comma-separated list.
func cutLast(list string) (rest, last string, more bool) {
	if i := strings.LastIndexByte(list, ','); i >= 0 {
		return list[:i], list[i+1:], true
	}
	return "", list, false
}

// parseHop reads an address, with or without a port.
func parseHop(hop string) (netip.Addr, bool) {
	hop = strings.TrimSpace(hop)
	if a, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(hop, "["), "]")); err == nil {
		return plain(a), true
	}
	at, err := netip.ParseAddrPort(hop)
	return plain(at.Addr()), err == nil
}

// unmapped are the prefixes with IPv4 as IPv4, as addresses are compared.
func unmapped(prefixes []netip.Prefix) []netip.Prefix {
	list := make([]netip.Prefix, 0, len(prefixes))
	for _, p := range prefixes {
		if p.Addr().Is4In6() && p.Bits() >= 96 {
			p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
		}
		list = append(list, p.Masked())
	}
	return list
}
