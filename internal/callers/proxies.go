package callers

import (
	"net/netip"
	"slices"
	"strings"
)

// Proxies are the networks of the proxies that the operator trusts.
type Proxies []netip.Prefix

// NewProxies returns the proxies of the networks, with IPv4 as IPv4, as addresses are
// compared.
func NewProxies(networks []netip.Prefix) Proxies {
	list := make(Proxies, 0, len(networks))
	for _, p := range networks {
		if p.Addr().Is4In6() && p.Bits() >= 96 {
			p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
		}
		list = append(list, p.Masked())
	}
	return list
}

// Trust reports whether the address belongs to a trusted proxy.
func (p Proxies) Trust(a netip.Addr) bool {
	return slices.ContainsFunc(p, func(network netip.Prefix) bool { return network.Contains(a) })
}

// Client is the address that a call comes from: the peer, or, where the peer is a
// trusted proxy, the right-most hop of the lines of X-Forwarded-For that is none. What
// a client wrote into the header itself stands further left and is never reached. Hops
// that can't be read end the search: then the peer has to answer for them.
func (p Proxies) Client(peer netip.Addr, forwardedFor []string) netip.Addr {
	if len(forwardedFor) == 0 || !p.Trust(peer) {
		return peer
	}
	furthest := peer
	for i := len(forwardedFor) - 1; i >= 0; i-- {
		for rest, more := forwardedFor[i], true; more; {
			var hop string
			rest, hop, more = cutLast(rest)
			a, ok := Address(hop)
			if !ok {
				return peer
			}
			if !p.Trust(a) {
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

// Address reads an address, with or without a port.
func Address(text string) (a netip.Addr, ok bool) {
	text = strings.TrimSpace(text)
	if a, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(text, "["), "]")); err == nil {
		return Plain(a), true
	}
	at, err := netip.ParseAddrPort(text)
	return Plain(at.Addr()), err == nil
}

// Network is the part of an address that counts as one caller: an IPv4 address as it
// is (also where it is written as IPv6), of an IPv6 one the first bits, 0 to 128.
func Network(a netip.Addr, bits int) netip.Addr {
	a = Plain(a)
	if !a.Is6() {
		return a
	}
	p, err := a.Prefix(bits)
	if err != nil { // more bits than there are
		return a
	}
	return p.Addr()
}

// Plain is an address without its zone, IPv4 as IPv4.
func Plain(a netip.Addr) netip.Addr { return a.Unmap().WithZone("") }
