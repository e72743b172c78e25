package admin

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/quotad/quotad"
)

// A tag is the strong entity tag of a resource: when it was made, so that one
// that is deleted and made again under its name has other tags, and its version.
type tag struct {
	created time.Time
	version int64
	// view tells apart representations of one version, where a resource shows
	// what changes without a write; "" for others. If-Match does not compare it.
	view string
}

// state is the part of the tag that writes compete about.
func (t tag) state() string {
	return strconv.FormatInt(t.created.UnixMicro(), 36) + "-" + strconv.FormatInt(t.version, 10)
}

func (t tag) String() string {
	if t.view == "" {
		return `"` + t.state() + `"`
	}
	return `"` + t.state() + "." + t.view + `"`
}

// condition is what an If-Match or If-None-Match header asks for.
type condition struct {
	// any is true for "*".
	any  bool
	tags []string // opaque tags, without quotes
	weak []string
}

// parseCondition reads the header; nil when it is absent.
func parseCondition(h http.Header, name string) (*condition, error) {
	lines := h.Values(name)
	if len(lines) == 0 {
		return nil, nil
	}
	text := strings.TrimSpace(strings.Join(lines, ","))
	if text == "*" {
		return &condition{any: true}, nil
	}
	var cond condition
	for text != "" {
		if text[0] == ',' || text[0] == ' ' || text[0] == '\t' {
			text = text[1:]
			continue
		}
		list := &cond.tags
		if rest, ok := strings.CutPrefix(text, "W/"); ok {
			list, text = &cond.weak, rest
		}
		opaque, rest, ok := cutQuoted(text)
		if !ok {
			return nil, quotad.NewError(quotad.CodeInvalidRequest, name+" must be * or a list of entity tags in double quotes")
		}
		*list = append(*list, opaque)
		text = rest
	}
	return &cond, nil
}

// cutQuoted takes a quoted tag off the front; what follows it is a comma or nothing.
func cutQuoted(text string) (opaque, rest string, ok bool) {
	if !strings.HasPrefix(text, `"`) {
		return "", "", false
	}
	opaque, rest, ok = strings.Cut(text[1:], `"`)
	rest = strings.TrimLeft(rest, " \t")
	return opaque, rest, ok && (rest == "" || rest[0] == ',')
}

// matches reports whether a write may go ahead on a resource with the tag: by
// the strong comparison, which a weak tag never passes.
func (c *condition) matches(t tag) bool {
	for _, opaque := range c.tags {
		if state, _, _ := strings.Cut(opaque, "."); state == t.state() {
			return true
		}
	}
	return c.any
}

// holds reports whether the client's copy is still the resource with the tag: by
// the weak comparison.
func (c *condition) holds(t tag) bool {
	for _, opaque := range append(c.tags, c.weak...) {
		if `"`+opaque+`"` == t.String() {
			return true
		}
	}
	return c.any
}
