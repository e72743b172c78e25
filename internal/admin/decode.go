package admin

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/quotad/quotad"
)

// maxBody is the largest body that is read, in bytes.
const maxBody = 64 << 10

// The media types that bodies come in.
const (
	jsonType       = "application/json"
	mergePatchType = "application/merge-patch+json"
)

// spec is what an operator says of a resource.
type spec interface{ Validate() quotad.Faults }

// decode reads the body as the spec of a new resource, which the API shows as
// resource, and returns all its faults at once.
func decode[T spec](c echo.Context, resource any) (T, error) {
	var value T
	o, faults, err := readObject(c, jsonType)
	if err != nil {
		return value, err
	}
	if o != nil {
		check := checker{readOnly: readOnly[T](resource), faults: faults}
		o = check.members("", o, reflect.TypeFor[T]())
		faults = check.faults
	}
	return fill[T](o, o, faults)
}

// decodeOptional is decode for what may all be left out: no body is an empty one.
func decodeOptional[T spec](c echo.Context, resource any) (T, error) {
	body, err := readBody(c)
	if err != nil {
		var value T
		return value, err
	}
	if len(body) == 0 {
		o := newObject()
		return fill[T](o, o, nil)
	}
	c.Request().Body = io.NopCloser(bytes.NewReader(body))
	return decode[T](c, resource)
}

// fill turns a checked tree into the value it stands for; given is the part of
// it that the body said. When there are faults of shape, those of what the rest
// of the value means are added to them; else the store finds them.
func fill[T spec](o, given *object, faults quotad.Faults) (T, error) {
	var value T
	if o == nil {
		return value, faults.Err()
	}
	raw, err := json.Marshal(o)
	if err != nil {
		return value, fmt.Errorf("encode checked body: %w", err)
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	if err := dec.Decode(&value); err != nil {
		return value, fmt.Errorf("decode checked body: %w", err)
	}
	if d, ok := any(&value).(interface{ SetDefaults() }); ok {
		d.SetDefaults()
	}
	faults, err = addEmpty(faults, given, value)
	if err != nil || len(faults) == 0 {
		return value, err
	}
	for field, fault := range value.Validate() {
		if !covered(faults, field) {
			faults.Add(field, fault)
		}
	}
	return value, faults.Err()
}

// addEmpty adds the fields that are given as "" or 0 and would stand as their
// default: who means the default leaves the field out, or says null.
func addEmpty(faults quotad.Faults, given *object, value any) (quotad.Faults, error) {
	raw, err := json.Marshal(value)
	if err != nil {
		return nil, fmt.Errorf("encode spec: %w", err)
	}
	effective, broken := parse(raw)
	if len(broken) > 0 {
		return nil, fmt.Errorf("read spec: %w", broken.Err())
	}
	check := checker{faults: faults}
	check.empty("", given, effective)
	return check.faults, nil
}

// covered reports whether the field, or what it is a part of, has a fault.
func covered(faults quotad.Faults, field string) bool {
	for known := range faults {
		rest, is := strings.CutPrefix(field, known)
		if is && (rest == "" || rest[0] == '.' || rest[0] == '[') {
			return true
		}
	}
	return false
}

// readOnly are the names that a resource shows beyond those of its spec T.
func readOnly[T any](resource any) map[string]bool {
	names := map[string]bool{}
	for name := range fieldsOf(reflect.TypeOf(resource)) {
		names[name] = true
	}
	for name := range fieldsOf(reflect.TypeFor[T]()) {
		delete(names, name)
	}
	return names
}

// readObject reads the body as one JSON object of one of the media types.
func readObject(c echo.Context, types ...string) (*object, quotad.Faults, error) {
	if err := acceptType(c.Request().Header, types); err != nil {
		return nil, nil, err
	}
	body, err := readBody(c)
	if err != nil {
		return nil, nil, err
	}
	o, faults := parse(body)
	return o, faults, nil
}

// readBody reads at most maxBody bytes.
func readBody(c echo.Context) ([]byte, error) {
	req := c.Request()
	if req.ContentLength > maxBody {
		return nil, errTooLarge
	}
	body, err := io.ReadAll(http.MaxBytesReader(c.Response(), req.Body, maxBody))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return nil, errTooLarge
	case err != nil:
		return nil, &quotad.Error{Code: quotad.CodeInvalidRequest, Detail: "the body could not be read", Cause: err}
	}
	return body, nil
}

var errTooLarge = quotad.NewError(quotad.CodePayloadTooLarge, fmt.Sprintf("a body can have at most %d bytes", maxBody))

func acceptType(h http.Header, types []string) error {
	media, params, err := mime.ParseMediaType(h.Get("Content-Type"))
	charset := params["charset"]
	if err == nil && (charset == "" || strings.EqualFold(charset, "utf-8")) && h.Get("Content-Encoding") == "" && slices.Contains(types, media) {
		return nil
	}
	return quotad.NewError(quotad.CodeUnsupportedMedia, "the Content-Type must be "+strings.Join(types, " or ")+", in UTF-8 and not encoded")
}
