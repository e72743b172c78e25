package httpapi

import (
	"net/http"

	"github.com/quotad/quotad"
)

// subject is the tenant's end user that a trusted proxy names in X-Quotad-Subject; ""
// where it names none. What anybody else sends there is ignored: a client that named
// its own subject would choose its own counter.
func (s *Server) subject(r *http.Request) (string, error) {
	lines := r.Header[quotad.SubjectHeader]
	if len(lines) == 0 || !s.proxies.Trust(peer(r)) {
		return "", nil
	}
	switch {
	case len(lines) > 1:
		return "", faulty(quotad.Faults{quotad.SubjectHeader: "is given more than once"})
	case lines[0] == "":
		return "", nil // as gateways leave behind that clear the header
	case !quotad.ValidSubject(lines[0]):
		return "", faulty(quotad.Faults{quotad.SubjectHeader: badSubject})
	}
	return lines[0], nil
}
