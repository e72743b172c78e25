package admin

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/quotad/quotad"
)

// maxDepth is how deep the arrays and objects of a body can nest.
const maxDepth = 32

// bodyField is the field that faults of a body as a whole stand under.
const bodyField = "body"

// object is a JSON object with its members in the order in which they came. The
// other values of a tree are nil, bool, string, json.Number and []any.
type object struct {
	names  []string
	values map[string]any
}

func newObject() *object { return &object{values: map[string]any{}} }

func (o *object) set(name string, value any) {
	if _, ok := o.values[name]; !ok {
		o.names = append(o.names, name)
	}
	o.values[name] = value
}

func (o *object) remove(name string) {
	if _, ok := o.values[name]; ok {
		delete(o.values, name)
		o.names = slices.DeleteFunc(o.names, func(n string) bool { return n == name })
	}
}

// MarshalJSON writes the members in their order.
func (o *object) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	separator := byte('{')
	for _, name := range o.names {
		b.WriteByte(separator)
		separator = ','
		key, err := encode(name)
		if err != nil {
			return nil, err
		}
		value, err := encode(o.values[name])
		if err != nil {
			return nil, err
		}
		b.Write(key)
		b.WriteByte(':')
		b.Write(value)
	}
	if len(o.names) == 0 {
		b.WriteByte('{')
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// parse reads one JSON object with nothing behind it. Names that are given twice
// are faults by path; the last value stays, as encoding/json would have it.
func parse(body []byte) (*object, quotad.Faults) {
	var p parser
	if !utf8.Valid(body) {
		p.faults.Add(bodyField, "must be UTF-8")
		return nil, p.faults
	}
	p.dec = json.NewDecoder(bytes.NewReader(body))
	p.dec.UseNumber()
	v, err := p.value("", 0)
	if err == nil {
		if _, end := p.dec.Token(); end != io.EOF {
			err = errors.New("must be one JSON object with nothing behind it")
		}
	}
	switch {
	case err == io.EOF && len(bytes.TrimSpace(body)) == 0:
		p.faults.Add(bodyField, "is required: a JSON object")
		return nil, p.faults
	case err != nil:
		p.faults.Add(bodyField, syntaxFault(err, p.dec.InputOffset()))
		return nil, p.faults
	}
	o, ok := v.(*object)
	if !ok {
		p.faults.Add(bodyField, "must be a JSON object")
		return nil, p.faults
	}
	return o, p.faults
}

// syntaxFault says where JSON is broken, by the bytes that were in order, without
// repeating what stands there.
func syntaxFault(err error, offset int64) string {
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &syntax):
		return fmt.Sprintf("is not valid JSON after byte %d", offset)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "is not valid JSON: it ends too early"
	default:
		return err.Error()
	}
}

type parser struct {
	dec    *json.Decoder
	faults quotad.Faults
}

func (p *parser) value(path string, depth int) (any, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("must not nest deeper than %d", maxDepth)
	}
	token, err := p.dec.Token()
	if err != nil {
		return nil, err
	}
	switch token {
	case json.Delim('{'):
		return p.object(path, depth)
	case json.Delim('['):
		return p.array(path, depth)
	}
	return token, nil
}

func (p *parser) object(path string, depth int) (any, error) {
	o := newObject()
	for p.dec.More() {
		token, err := p.dec.Token()
		if err != nil {
			return nil, err
		}
		name := token.(string) // the decoder takes nothing else as a name
		field := member(path, name)
		if _, twice := o.values[name]; twice {
			p.faults.Add(field, "is given twice")
		}
		value, err := p.value(field, depth+1)
		if err != nil {
			return nil, err
		}
		o.set(name, value)
	}
	_, err := p.dec.Token()
	return o, err
}

func (p *parser) array(path string, depth int) (any, error) {
	list := []any{}
	for p.dec.More() {
		value, err := p.value(element(path, len(list)), depth+1)
		if err != nil {
			return nil, err
		}
		list = append(list, value)
	}
	_, err := p.dec.Token()
	return list, err
}

// maxName is how much of a name a path shows, in bytes: a path is an answer's,
// and the name a caller's.
const maxName = 64

// member is the path of an object's member, such as "limits[0].name".
func member(path, name string) string {
	if len(name) > maxName {
		name = strings.ToValidUTF8(name[:maxName], "") + "…"
	}
	if path == "" {
		return name
	}
	return path + "." + name
}

// element is the path of an array's element, such as "limits[0]".
func element(path string, i int) string { return fmt.Sprintf("%s[%d]", path, i) }
