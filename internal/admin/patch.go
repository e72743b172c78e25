package admin

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"

	"github.com/labstack/echo/v4"

	"github.com/quotad/quotad"
)

// patch is a JSON merge patch (RFC 7396) of a spec T.
//
// The merge runs over our own tree because a patch is checked in the same form:
// its names, what it must not touch, and what it gives twice.
type patch[T spec] struct {
	tree   *object
	faults quotad.Faults
}

// decodePatch reads the body as a merge patch of a resource, which the API shows
// as resource. Faults of the patch are reported by apply, with those of the outcome.
func decodePatch[T spec](c echo.Context, resource any) (patch[T], error) {
	o, faults, err := readObject(c, mergePatchType, jsonType)
	if err != nil {
		return patch[T]{}, err
	}
	if o == nil {
		return patch[T]{}, faults.Err()
	}
	check := checker{readOnly: readOnly[T](resource), partial: true, faults: faults}
	tree := check.members("", o, reflect.TypeFor[T]())
	return patch[T]{tree: tree, faults: check.faults}, nil
}

// apply changes the value as the patch says. null takes a field back to its
// default, or to null where that is a value of the field.
func (p patch[T]) apply(value *T) error {
	raw, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("encode spec: %w", err)
	}
	target, faults := parse(raw)
	if len(faults) > 0 {
		return fmt.Errorf("read spec: %w", faults.Err())
	}
	patched, err := fill[T](merge(target, p.tree), p.tree, maps.Clone(p.faults)) // it may have to be applied again
	if err != nil {
		return err
	}
	*value = patched
	return nil
}

// merge is MergePatch of RFC 7396, section 2.
func merge(target any, change *object) *object {
	into, ok := target.(*object)
	if !ok {
		into = newObject()
	}
	for _, name := range change.names {
		switch v := change.values[name].(type) {
		case nil:
			into.remove(name)
		case *object:
			into.set(name, merge(into.values[name], v))
		default:
			into.set(name, v)
		}
	}
	return into
}
