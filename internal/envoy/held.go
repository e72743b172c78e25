package envoy

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/callers"
	"github.com/quotad/quotad/internal/quota"
)

// held is the HTTP call that Envoy holds until we say whether it may pass: what
// concerns us of it.
type held struct {
	method, path, query string
	peer                netip.Addr

	keys, authorization, forwardedFor []string
	accept, acceptLanguage            string
	origin, requestMethod             string
	// ours are the names of headers that are quotad's to set.
	ours []string

	// What the operator says of the route: context_extensions.
	routeGroup, subject, cost string
	hasCost                   bool
	// subjects are the lines of the header that the operator says holds the subject.
	subjects []string
}

// The context_extensions that mean something. Others are other services'.
const (
	extensionRouteGroup    = "route_group"
	extensionSubject       = "subject"
	extensionSubjectHeader = "subject_header"
	extensionCost          = "cost"
)

func readHeld(a *authv3.AttributeContext) *held {
	r, extensions := a.GetRequest().GetHttp(), a.GetContextExtensions()
	h := &held{
		method: strings.ToUpper(r.GetMethod()), peer: addressOf(a.GetSource()),
		routeGroup: extensions[extensionRouteGroup], subject: extensions[extensionSubject],
	}
	h.cost, h.hasCost = extensions[extensionCost]
	h.path, h.query, _ = strings.Cut(r.GetPath(), "?")
	if h.path == "" {
		h.path = "/"
	}
	subjectHeader := strings.ToLower(extensions[extensionSubjectHeader])
	for name, value := range r.GetHeaders() {
		h.header(name, value, subjectHeader)
	}
	for _, line := range r.GetHeaderMap().GetHeaders() {
		value := line.GetValue()
		if raw := line.GetRawValue(); len(raw) > 0 {
			value = string(raw)
		}
		h.header(line.GetKey(), value, subjectHeader)
	}
	return h
}

// header takes one line of a header. Envoy sends names in lower case, and either one
// line for each name or all lines as they came.
func (h *held) header(name, value, subjectHeader string) {
	switch name = strings.ToLower(name); name {
	case "x-api-key":
		h.keys = append(h.keys, value)
	case "authorization":
		h.authorization = append(h.authorization, value)
	case "x-forwarded-for":
		h.forwardedFor = append(h.forwardedFor, value)
	case "accept":
		h.accept = join(h.accept, value)
	case "accept-language":
		h.acceptLanguage = join(h.acceptLanguage, value)
	case "origin":
		h.origin = join(h.origin, value)
	case "access-control-request-method":
		h.requestMethod = join(h.requestMethod, value)
	default:
		if isOurs(name) && !slices.Contains(h.ours, name) {
			h.ours = append(h.ours, name)
		}
	}
	if subjectHeader != "" && name == subjectHeader {
		h.subjects = append(h.subjects, value)
	}
}

// isOurs reports whether a header in lower case is one that the upstream may take for
// ours. Underscores count as dashes, as they do for servers that make variables of
// headers (X_QUOTAD_TENANT): Envoy passes them on unless it is told not to.
func isOurs(name string) bool {
	if strings.IndexByte(name, '_') >= 0 {
		name = strings.ReplaceAll(name, "_", "-")
	}
	return name == "x-api-key" || strings.HasPrefix(name, "x-quotad-")
}

// join is the value of a header of two lines.
func join(a, b string) string {
	if a == "" {
		return b
	}
	return a + "," + b
}

// addressOf is the address of a peer; the zero Addr of one that has none, as over a pipe.
func addressOf(p *authv3.AttributeContext_Peer) netip.Addr {
	a, err := netip.ParseAddr(p.GetAddress().GetSocketAddress().GetAddress())
	if err != nil {
		return netip.Addr{}
	}
	return callers.Plain(a)
}

// preflight reports whether a browser asks what it may send: that needs no key and is
// not counted.
func (h *held) preflight() bool {
	return h.method == http.MethodOptions && h.origin != "" && h.requestMethod != ""
}

// call is the question. What is wrong with the call is its fault, which refuses it.
func (h *held) call(proxies callers.Proxies) quota.Call {
	call := quota.Call{RouteGroup: h.routeGroup, Address: proxies.Client(h.peer, h.forwardedFor), Door: doorExtAuthz}
	if call.RouteGroup == "" {
		call.Method, call.Path = h.method, h.path
	}
	if call.APIKey, call.Fault = callers.Forwarded(h.keys, h.authorization, h.query); call.Fault != nil {
		return call
	}
	if call.Fault = h.readSubject(); call.Fault != nil {
		return call
	}
	call.Subject = h.subject
	if h.hasCost {
		cost, ok := quota.ParseCost(h.cost)
		if !ok {
			call.Fault = &quotad.Error{Code: quotad.CodeInvalidCost, Fields: quotad.Faults{"cost": "must be " + quota.CostRule}}
		}
		call.Cost = &cost
	}
	return call
}

// readSubject takes the subject from the header that the operator named, if any.
func (h *held) readSubject() error {
	switch {
	case len(h.subjects) > 1 || len(h.subjects) == 1 && h.subject != "":
		return quotad.NewError(quotad.CodeInvalidRequest, "The subject is given more than once.")
	case len(h.subjects) == 1:
		h.subject = h.subjects[0]
	}
	return nil
}
