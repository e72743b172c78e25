package httpapi

import (
	"net/http"
	"net/netip"

	"github.com/quotad/quotad/internal/callers"
)

// peer is the other end of the connection; the zero Addr where it has no IP address.
func peer(r *http.Request) netip.Addr {
	at, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	return callers.Plain(at.Addr())
}

// client is the address that a request comes from, by what trusted proxies say.
func (s *Server) client(r *http.Request) netip.Addr {
	return s.proxies.Client(peer(r), r.Header["X-Forwarded-For"])
}
