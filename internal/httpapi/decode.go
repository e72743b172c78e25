package httpapi

import (
	"encoding/json"
	"net/netip"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/callers"
	"github.com/quotad/quotad/internal/quota"
)

// checkFields are the fields of a check's body.
var checkFields = [...]string{"route_group", "method", "path", "cost", "subject", "ip", "tenant"}

// Indexes of checkFields.
const (
	fieldRouteGroup = iota
	fieldMethod
	fieldPath
	fieldCost
	fieldSubject
	fieldIP
	fieldTenant
)

// badSubject is the fault of a subject, wherever it stands.
const badSubject = "must be " + quotad.SubjectRule

// maxFaults is the most faults that one answer lists.
const maxFaults = 20

// decodeCheck reads the body of a check: one JSON object of known fields, each
// once. It reads the text by hand: encoding/json lets a field come twice, or in
// another case, and costs several times as much on each call.
func decodeCheck(body []byte, byToken bool) (quota.Call, error) {
	if !utf8.Valid(body) || !json.Valid(body) {
		return quota.Call{}, unreadable(string(body))
	}
	m := members{text: string(body)}
	if !m.open() {
		return quota.Call{}, quotad.NewError(quotad.CodeInvalidRequest, "The body must be one JSON object.")
	}
	call, faults := checkOf(&m, byToken)
	return call, faulty(faults)
}

// checkOf is the call that an object asks about, and all faults of it by field.
func checkOf(m *members, byToken bool) (quota.Call, quotad.Faults) {
	var faults quotad.Faults
	var values [len(checkFields)]string // raw; "" where the field is not given
	for m.next() && len(faults) < maxFaults {
		name, i := unquote(m.key), 0
		for i < len(checkFields) && checkFields[i] != name {
			i++
		}
		switch {
		case i == len(checkFields):
			faults.Add(shown(name), "is not a field of this body")
		case values[i] != "":
			faults.Add(name, twice(name))
		default:
			values[i] = m.value
		}
	}
	call := callOf(&values, &faults)
	requireFields(&call, byToken, &faults)
	return call, faults
}

// callOf takes the call out of the raw values; null is the same as not given.
func callOf(values *[len(checkFields)]string, faults *quotad.Faults) quota.Call {
	call := quota.Call{
		RouteGroup: stringOf(values, fieldRouteGroup, faults),
		Method:     stringOf(values, fieldMethod, faults),
		Path:       stringOf(values, fieldPath, faults),
		Subject:    stringOf(values, fieldSubject, faults),
		Tenant:     stringOf(values, fieldTenant, faults),
	}
	if call.RouteGroup != "" && !quotad.ValidName(call.RouteGroup) {
		faults.Add("route_group", "must be the name of a route group")
	}
	if call.Method != "" && !isToken(call.Method) {
		faults.Add("method", "must be an HTTP method")
	}
	call.Method = strings.ToUpper(call.Method)
	if query := strings.IndexByte(call.Path, '?'); query >= 0 {
		call.Path = call.Path[:query]
	}
	if call.Subject != "" && !quotad.ValidSubject(call.Subject) {
		faults.Add("subject", badSubject)
	}
	if call.Tenant != "" && !quotad.ValidName(call.Tenant) {
		faults.Add("tenant", "must be the id of a tenant")
	}
	if ip := stringOf(values, fieldIP, faults); ip != "" {
		a, err := netip.ParseAddr(ip)
		if err != nil {
			faults.Add("ip", "must be an IPv4 or IPv6 address")
		}
		call.IP = callers.Plain(a)
	}
	if raw := values[fieldCost]; raw != "" && raw != "null" {
		cost, ok := quota.ParseCost(raw)
		if !ok {
			faults.Add("cost", badCost)
		}
		call.Cost = &cost
	}
	return call
}

// requireFields adds the faults of fields that must, or must not, come together.
func requireFields(call *quota.Call, byToken bool, faults *quotad.Faults) {
	switch {
	case call.RouteGroup != "" && (call.Method != "" || call.Path != ""):
		faults.Add("route_group", "is given beside method and path; send one or the other")
	case call.RouteGroup == "" && call.Method == "" && call.Path == "":
		faults.Add("route_group", "is required, or method and path")
	case call.RouteGroup == "" && call.Method == "":
		faults.Add("method", "is required with path")
	case call.RouteGroup == "" && call.Path == "":
		faults.Add("path", "is required with method")
	}
	switch {
	case byToken && call.Tenant == "":
		faults.Add("tenant", "is required with a service token")
	case !byToken && call.Tenant != "":
		faults.Add("tenant", "is for service tokens only: an API key has its own tenant")
	}
}

// stringOf is a field's string; "" when it is not given, null, or not a string.
func stringOf(values *[len(checkFields)]string, field int, faults *quotad.Faults) string {
	switch raw := values[field]; {
	case raw == "" || raw == "null":
		return ""
	case raw[0] != '"':
		faults.Add(checkFields[field], "must be a string")
		return ""
	default:
		text := unquote(raw)
		if text == "" {
			faults.Add(checkFields[field], "must not be empty")
		}
		return text
	}
}

// isToken reports whether s can be an HTTP method.
func isToken(s string) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0:
		default:
			return false
		}
	}
	return s != "" && len(s) <= 64
}

// bareCost finds a cost that JSON has no words for, such as NaN, +3 or nothing.
var bareCost = regexp.MustCompile(`"cost"\s*:\s*([^\s"{\[,}]*)`)

// unreadable is the fault of a body that is not JSON: the cost's, where the rest is JSON.
func unreadable(text string) error {
	if at := bareCost.FindStringSubmatchIndex(text); at != nil && json.Valid([]byte(text[:at[2]]+"0"+text[at[3]:])) {
		return faulty(quotad.Faults{"cost": badCost})
	}
	return quotad.NewError(quotad.CodeInvalidRequest, "The body is not valid JSON in UTF-8.")
}
