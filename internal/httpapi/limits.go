package httpapi

import (
	"net/http"
	"strconv"

	"github.com/quotad/quotad"
)

// limits answers GET /v1/limits: what the caller has left, charging nothing. The
// query may name one route_group, and a subject whose limits are meant.
func (x *exchange) limits() error {
	x.answerAtOnce()
	key, err := x.onlyKey()
	if err != nil {
		return err
	}
	x.call.APIKey = key
	query, err := x.query("route_group", "subject")
	if err != nil {
		return err
	}
	x.call.RouteGroup, x.call.Subject = query.Get("route_group"), query.Get("subject")
	var faults quotad.Faults
	if query.Has("route_group") && !quotad.ValidName(x.call.RouteGroup) {
		faults.Add("route_group", "must be the name of a route group")
	}
	if query.Has("subject") && !quotad.ValidSubject(x.call.Subject) {
		faults.Add("subject", badSubject)
	}
	if err := faulty(faults); err != nil {
		return err
	}
	decisions, err := x.checker.Limits(x.r.Context(), x.question())
	if err != nil {
		return err
	}
	if len(decisions) == 1 && !decisions[0].Allowed && decisions[0].RouteGroup == "" { // kept out by its address
		return x.deny(&decisions[0])
	}
	h := x.w.Header()
	h["Cache-Control"], h["Content-Type"] = noStore, jsonType
	for i := range decisions {
		switch decisions[i].DegradedBy {
		case quotad.FailOpen:
			h["X-Quotad-Degraded"] = degradedOpen
		case quotad.FailLocal:
			h["X-Quotad-Degraded"] = degradedLocal
		}
	}
	x.body = appendGroups(x.body[:0], decisions)
	return x.write(http.StatusOK, x.body)
}

// appendGroups appends where the caller stands: who it is, and each route group
// that it may use with its limits.
func appendGroups(b []byte, decisions []quotad.Decision) []byte {
	var caller quotad.Decision
	if len(decisions) > 0 {
		caller = decisions[0]
	}
	for i := range decisions {
		caller.Degraded = caller.Degraded || decisions[i].Degraded
	}
	b = append(b, `{"tenant":`...)
	b = quotad.AppendString(b, caller.Tenant)
	b = append(b, `,"key_id":`...)
	b = quotad.AppendString(b, caller.KeyID)
	b = append(b, `,"tier":`...)
	b = quotad.AppendString(b, caller.Tier)
	b = append(b, `,"degraded":`...)
	b = strconv.AppendBool(b, caller.Degraded)
	b = append(b, `,"route_groups":[`...)
	for i := range decisions {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"route_group":`...)
		b = quotad.AppendString(b, decisions[i].RouteGroup)
		b = append(b, `,"limits":`...)
		b = quotad.AppendLimits(b, decisions[i].Limits)
		b = append(b, '}')
	}
	return append(b, `]}`...)
}
