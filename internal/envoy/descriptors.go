package envoy

import (
	"slices"
	"strings"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/callers"
	"github.com/quotad/quotad/internal/quota"
)

// maxDescriptors is the most descriptors of one request.
const maxDescriptors = 64

// wellFormed is the error of a request that no Envoy with a configuration that means
// something to us sends. Nothing that a client sends can make one: an error lets a call
// pass where Envoy fails open.
func wellFormed(r *ratelimitv3.RateLimitRequest) error {
	switch n := len(r.GetDescriptors()); {
	case r.GetDomain() == "":
		return status.Error(codes.InvalidArgument, "domain is required")
	case n == 0:
		return status.Error(codes.InvalidArgument, "descriptors are required")
	case n > maxDescriptors:
		return status.Errorf(codes.InvalidArgument, "descriptors are %d, at most %d", n, maxDescriptors)
	}
	for i, d := range r.GetDescriptors() {
		switch {
		case len(d.GetEntries()) == 0:
			return status.Errorf(codes.InvalidArgument, "descriptors[%d].entries are required", i)
		case d.GetLimit() != nil:
			return status.Errorf(codes.InvalidArgument, "descriptors[%d].limit: limits are the tier's, and can't be overridden", i)
		case d.GetIsNegativeHits():
			return status.Errorf(codes.InvalidArgument, "descriptors[%d].is_negative_hits: what was charged can't be given back", i)
		}
		for _, e := range d.GetEntries() {
			if e.GetKey() == "" {
				return status.Errorf(codes.InvalidArgument, "descriptors[%d].entries: key is required", i)
			}
		}
	}
	return nil
}

// entryKeys are the keys of the entries that mean something. Others are passed over.
var entryKeys = [...]string{"api_key", "tenant", "route_group", "method", "path", "subject", "remote_address"}

// Indexes of entryKeys.
const (
	entryKey = iota
	entryTenant
	entryRouteGroup
	entryMethod
	entryPath
	entrySubject
	entryAddress
)

// entries are what a descriptor says.
type entries struct {
	values       [len(entryKeys)]string
	given, twice [len(entryKeys)]bool
}

func entriesOf(d *commonv3.RateLimitDescriptor) (e entries) {
	for _, entry := range d.GetEntries() {
		if i := slices.Index(entryKeys[:], entry.GetKey()); i >= 0 {
			e.values[i], e.given[i], e.twice[i] = entry.GetValue(), true, e.given[i]
		}
	}
	return e
}

// known reports whether the descriptor names a caller or a route. A key that is empty
// is one: what the client left out is not for it to choose.
func (e *entries) known() bool {
	return e.given[entryKey] || e.given[entryTenant] || e.route() || e.given[entryRouteGroup]
}

// route reports whether a method or a path is named.
func (e *entries) route() bool { return e.given[entryMethod] || e.given[entryPath] }

// call is the call that the entries of a descriptor speak of. What is wrong with them
// is its fault, which refuses it.
func (e *entries) call(cost *int64) quota.Call {
	call := quota.Call{
		APIKey: e.values[entryKey], Tenant: e.values[entryTenant], Vouched: e.given[entryTenant],
		RouteGroup: e.values[entryRouteGroup], Method: strings.ToUpper(e.values[entryMethod]),
		Subject: e.values[entrySubject], Cost: cost, Door: doorRateLimit,
	}
	call.Path, _, _ = strings.Cut(e.values[entryPath], "?")
	if !e.given[entryRouteGroup] && !e.route() {
		call.RouteGroup = quotad.DefaultGroup
	}
	call.Fault = e.fault()
	if e.given[entryAddress] {
		a, ok := callers.Address(e.values[entryAddress])
		if !ok && call.Fault == nil {
			call.Fault = quotad.NewError(quotad.CodeInvalidRequest, "The descriptor's remote_address is not an IP address.")
		}
		if call.Vouched {
			call.IP = a
		} else {
			call.Address = a
		}
	}
	return call
}

// fault is what is wrong with the entries; nil where nothing is.
func (e *entries) fault() error {
	if e.twice[entryKey] || e.twice[entryTenant] || e.given[entryKey] && e.given[entryTenant] {
		return quotad.NewError(quotad.CodeAmbiguousCredentials, "The descriptor names more than one caller.")
	}
	_, query, _ := strings.Cut(e.values[entryPath], "?")
	if _, err := callers.Forwarded([]string{e.values[entryKey]}, nil, query); err != nil {
		return err
	}
	wrong := func(detail string) error { return quotad.NewError(quotad.CodeInvalidRequest, detail) }
	for i, twice := range e.twice {
		if twice {
			return wrong("The descriptor gives " + entryKeys[i] + " more than once.")
		}
	}
	switch {
	case e.given[entryRouteGroup] && e.route():
		return wrong("The descriptor gives route_group beside method or path; send one or the other.")
	case e.given[entryRouteGroup] && e.values[entryRouteGroup] == "":
		return wrong("The descriptor's route_group is empty.")
	case e.route() && (e.values[entryMethod] == "" || e.values[entryPath] == ""):
		return wrong("The descriptor gives one of method and path without the other.")
	}
	return nil
}

// hits is the cost that Envoy names: the descriptor's, where 0 peeks, else the
// request's, where 0 is as good as none.
func hits(d *commonv3.RateLimitDescriptor, request uint32) *int64 {
	n := uint64(request)
	switch own := d.GetHitsAddend(); {
	case own != nil:
		n = own.GetValue()
	case n == 0:
		return nil
	}
	// What is above every limit is refused by what is just above.
	return quotad.Units(int64(min(n, quotad.MaxUnits+1)))
}
