package httpapi

import (
	"net/url"
	"slices"
	"strings"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/callers"
	"github.com/quotad/quotad/internal/quota"
)

// query is the request's query, which may hold each of the names once and
// nothing else. A parameter that is not read is refused: whoever sends one
// believes that it does something.
func (x *exchange) query(names ...string) (url.Values, error) {
	if x.r.URL.RawQuery == "" {
		return nil, nil
	}
	values, err := url.ParseQuery(x.r.URL.RawQuery)
	if err != nil {
		return nil, quotad.NewError(quotad.CodeInvalidRequest, "The query can't be read.")
	}
	var faults quotad.Faults
	for name, given := range values {
		switch {
		case credentialNames[strings.ToLower(name)], slices.ContainsFunc(given, callers.Ours):
			return nil, x.inQuery()
		case !slices.Contains(names, name):
			faults.Add(shown(name), "is not a parameter of this call")
		case len(given) > 1:
			faults.Add(name, twice(name))
		}
	}
	return values, faulty(faults)
}

// maxShown is the longest name of the caller's that an answer repeats, in bytes.
const maxShown = 64

func shown(name string) string {
	if len(name) > maxShown {
		return strings.ToValidUTF8(name[:maxShown], "") + "…"
	}
	return name
}

// twice is the fault of what is given more than once.
func twice(name string) string {
	if name == "cost" {
		return badCost
	}
	return "is given more than once"
}

// faulty is all faults of a request as one error: invalid_cost where nothing but
// costs are wrong. nil faults are no error.
func faulty(faults quotad.Faults) error {
	if len(faults) == 0 {
		return nil
	}
	code := quotad.CodeInvalidCost
	for _, fault := range faults {
		if fault != badCost {
			code = quotad.CodeInvalidRequest
		}
	}
	return &quotad.Error{Code: code, Fields: faults}
}

// badCost is the fault of a cost.
const badCost = "must be " + quota.CostRule
