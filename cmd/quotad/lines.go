package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"

	"github.com/knadh/koanf/parsers/yaml"
	yamlv3 "go.yaml.in/yaml/v3"
)

// lines is koanf's YAML parser, and knows afterwards on which line each key stands.
type lines struct{ of map[string]int }

// Unmarshal reads one mapping. Its errors name the line, and nothing that a value says.
func (l *lines) Unmarshal(raw []byte) (map[string]any, error) {
	l.of = map[string]int{}
	decoder := yamlv3.NewDecoder(bytes.NewReader(raw))
	var document, second yamlv3.Node
	switch err := decoder.Decode(&document); {
	case errors.Is(err, io.EOF):
		return nil, nil // nothing but comments
	case err != nil:
		return nil, err
	}
	if decoder.Decode(&second) == nil {
		return nil, fmt.Errorf("line %d: only one document is read", second.Line)
	}
	top := document.Content[0]
	if top.Kind != yamlv3.MappingNode {
		return nil, fmt.Errorf("line %d: must be lines of the form option: value", top.Line)
	}
	for i := 0; i < len(top.Content); i += 2 {
		key := top.Content[i]
		if line, twice := l.of[key.Value]; twice {
			return nil, fmt.Errorf("line %d: %s stands on line %d already", key.Line, key.Value, line)
		}
		l.of[key.Value] = key.Line
	}
	values, err := yaml.Parser().Unmarshal(raw)
	if wrong := new(yamlv3.TypeError); errors.As(err, &wrong) {
		return nil, errors.New("a value does not fit its tag") // the error would repeat it
	}
	return values, err
}

// Marshal is not asked for.
func (*lines) Marshal(map[string]any) ([]byte, error) { return nil, errors.ErrUnsupported }

// byLine orders keys as they stand in the file.
func (l *lines) byLine(a, b string) int { return cmp.Compare(l.of[a], l.of[b]) }
