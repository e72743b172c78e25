package quotad

import (
	"fmt"
	"regexp"
)

// Faults are the faults of a body by JSON field name, such as
// "limits[0].rate_window": "must be at least 1". The zero value is ready to use.
type Faults map[string]string

// Add records a fault; the first one of a field stays.
func (f *Faults) Add(field, fault string) {
	if *f == nil {
		*f = Faults{}
	}
	if _, ok := (*f)[field]; !ok {
		(*f)[field] = fault
	}
}

// Has reports whether the field has a fault.
func (f Faults) Has(field string) bool { _, ok := f[field]; return ok }

// Err returns the faults as one *Error of CodeInvalidFields, nil when there are none.
func (f Faults) Err() error {
	if len(f) == 0 {
		return nil
	}
	return &Error{Code: CodeInvalidFields, Fields: f}
}

// atMost checks the length of a list, and reports whether it is within its bound.
func (f *Faults) atMost(field string, n, most int) bool {
	f.between(field, int64(n), 0, int64(most))
	return n <= most
}

func (f *Faults) between(field string, n, least, most int64) {
	switch {
	case n < least:
		f.Add(field, fmt.Sprintf("must be at least %d", least))
	case n > most:
		f.Add(field, fmt.Sprintf("must be at most %d", most))
	}
}

// namePattern is the form of ids and names that become part of headers, keys
// and URLs: ASCII, lower case, so that two that look alike are alike.
var namePattern = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,62}$`)

// ValidName reports whether s can name a tenant, tier, route group or limit.
func ValidName(s string) bool { return namePattern.MatchString(s) }

func (f *Faults) name(field, s string) {
	if !ValidName(s) {
		f.Add(field, "must match "+namePattern.String())
	}
}

// policyName checks the name of a limit or quota.
func (f *Faults) policyName(field, s string) {
	f.name(field, s)
	if s == BaseLimit {
		f.Add(field, `"base" is the name of the tier's own rate limit`)
	}
}

// maxText is the longest free text (names for people, descriptions), in bytes.
const maxText = 255

func (f *Faults) text(field, s string, required bool) {
	switch {
	case required && s == "":
		f.Add(field, "is required")
	case len(s) > maxText:
		f.Add(field, fmt.Sprintf("must be at most %d bytes", maxText))
	case !printable(s):
		f.Add(field, "must be valid UTF-8 without control characters")
	}
}
