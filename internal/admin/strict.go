package admin

import (
	"encoding"
	"encoding/json"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/quotad/quotad"
)

// A checker holds a tree against the Go type that it is to fill. It collects the
// faults of shape, and returns the tree without the faulty parts, so that what
// the rest of it means can be judged in the same answer.
type checker struct {
	// readOnly are the names that the resource shows and no body can set.
	readOnly map[string]bool
	// partial is true for a merge patch: what it leaves out stays as it is.
	partial bool
	faults  quotad.Faults
}

// explicit are the fields whose absence would say something as grave as
// "unlimited"; a body has to name them, if only as null.
var explicit = map[reflect.Type][]string{
	reflect.TypeFor[quotad.TierSpec](): {"rate_limit"},
	reflect.TypeFor[quotad.Limit]():    {"rate_limit"},
	reflect.TypeFor[quotad.Quota]():    {"quota"},
}

// required are the fields without which a body means nothing.
var required = map[reflect.Type][]string{
	reflect.TypeFor[quotad.TierSpec]():       {"name", "rate_window"},
	reflect.TypeFor[quotad.Limit]():          {"name", "rate_window"},
	reflect.TypeFor[quotad.Quota]():          {"name", "period"},
	reflect.TypeFor[quotad.TenantSpec]():     {"id", "name", "tier"},
	reflect.TypeFor[quotad.RouteGroupSpec](): {"name"},
	reflect.TypeFor[quotad.AdminTokenSpec](): {"name", "role"},
}

// maxFaults is how many faults one answer lists.
const maxFaults = 100

func (c *checker) fault(path, text string) {
	if len(c.faults) < maxFaults {
		c.faults.Add(path, text)
	}
}

var textType = reflect.TypeFor[encoding.TextUnmarshaler]()

// value checks v against t; ok is false when v is of no use.
func (c *checker) value(path string, v any, t reflect.Type) (clean any, ok bool) {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if v == nil {
		return nil, true
	}
	if reflect.PointerTo(t).Implements(textType) {
		return c.text(path, v, t)
	}
	switch t.Kind() {
	case reflect.Struct:
		if o, is := v.(*object); is {
			return c.members(path, o, t), true
		}
		c.fault(path, "must be an object")
	case reflect.Slice:
		if list, is := v.([]any); is {
			return c.elements(path, list, t.Elem()), true
		}
		c.fault(path, "must be an array")
	case reflect.Map:
		if o, is := v.(*object); is {
			return o, c.free(path, o)
		}
		c.fault(path, "must be an object")
	case reflect.String:
		if _, is := v.(string); is {
			return v, true
		}
		c.fault(path, "must be a string")
	case reflect.Bool:
		if _, is := v.(bool); is {
			return v, true
		}
		c.fault(path, "must be true or false")
	default:
		return c.integer(path, v), true
	}
	return nil, false
}

func (c *checker) members(path string, o *object, t reflect.Type) *object {
	fields := fieldsOf(t)
	clean := newObject()
	for _, name := range o.names {
		field, known := fields[name]
		switch {
		case known:
			if v, ok := c.value(member(path, name), o.values[name], field); ok {
				clean.set(name, v)
			}
		case path == "" && c.readOnly[name]:
			c.fault(member(path, name), "is read-only")
		default:
			c.fault(member(path, name), "is not a known field")
		}
	}
	partial := path == "" && c.partial
	for _, name := range required[t] {
		if v, given := o.values[name]; v == nil && (given || !partial) {
			c.fault(member(path, name), "is required")
		}
	}
	if partial {
		return clean
	}
	for _, name := range explicit[t] {
		if _, given := o.values[name]; !given {
			c.fault(member(path, name), "is required; null means unlimited")
		}
	}
	return clean
}

func (c *checker) elements(path string, list []any, t reflect.Type) []any {
	clean := make([]any, len(list))
	for i, v := range list {
		if v == nil {
			c.fault(element(path, i), "must not be null")
			continue
		}
		clean[i], _ = c.value(element(path, i), v, t)
	}
	return clean
}

// text checks a value that is written as a string of its own form.
func (c *checker) text(path string, v any, t reflect.Type) (any, bool) {
	s, is := v.(string)
	if is && reflect.New(t).Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(s)) == nil {
		return v, true
	}
	if t == reflect.TypeFor[time.Time]() {
		c.fault(path, "must be a time in RFC 3339, such as 2030-01-31T12:00:00Z")
	} else {
		c.fault(path, "must be a range of addresses, such as 192.0.2.0/24")
	}
	return nil, false
}

// integer accepts plain integers only: 1e3 and 10.0 are the same number, but who
// writes them may not mean what was understood. 1 stands in for a faulty one: it
// is in every field's bounds, and so the cause of no other fault.
func (c *checker) integer(path string, v any) json.Number {
	n, is := v.(json.Number)
	if !is || strings.ContainsAny(n.String(), ".eE") {
		c.fault(path, "must be a whole number")
		return "1"
	}
	if _, err := strconv.ParseInt(n.String(), 10, 64); err != nil {
		if strings.HasPrefix(n.String(), "-") {
			c.fault(path, "must be at least 0")
		} else {
			c.fault(path, "must be at most "+strconv.Itoa(quotad.MaxUnits))
		}
		return "1"
	}
	return n
}

// free checks a value that is the operator's own: every store has to be able to
// keep it as it is.
func (c *checker) free(path string, v any) bool {
	ok := true
	switch v := v.(type) {
	case *object:
		for _, name := range v.names {
			if strings.ContainsRune(name, 0) {
				c.fault(path, "must not contain NUL")
				ok = false
			}
			ok = c.free(member(path, name), v.values[name]) && ok
		}
	case []any:
		for i, e := range v {
			ok = c.free(element(path, i), e) && ok
		}
	case string:
		if strings.ContainsRune(v, 0) {
			c.fault(path, "must not contain NUL")
			return false
		}
	case json.Number:
		if f, err := v.Float64(); err != nil || math.IsInf(f, 0) {
			c.fault(path, "is too large a number")
			return false
		}
	}
	return ok
}

// empty finds values given as "" or 0 that are something else in effect.
func (c *checker) empty(path string, given, effective any) {
	switch given := given.(type) {
	case *object:
		if effective, ok := effective.(*object); ok {
			for _, name := range given.names {
				c.empty(member(path, name), given.values[name], effective.values[name])
			}
		}
	case []any:
		if effective, ok := effective.([]any); ok && len(given) == len(effective) {
			for i := range given {
				c.empty(element(path, i), given[i], effective[i])
			}
		}
	case string:
		if given == "" && effective != given {
			c.fault(path, "must not be empty")
		}
	case json.Number:
		if given == "0" && effective != any(given) {
			c.fault(path, "must not be 0")
		}
	}
}

// fieldsOf are the JSON names of a struct and their types; embedded structs are
// part of it, as in encoding/json.
func fieldsOf(t reflect.Type) map[string]reflect.Type {
	fields := map[string]reflect.Type{}
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name != "" && name != "-" {
			fields[name] = f.Type
		}
	}
	return fields
}
