package tiers

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/quotad/quotad"
)

// maxPattern is the longest pattern, in bytes.
const maxPattern = 1 << 10

// checkMatch returns the faults of a group's patterns by JSON field, given all
// other groups.
func checkMatch(group string, match []string, others []quotad.RouteGroup) quotad.Faults {
	b := newBuilder()
	for _, o := range others {
		for _, p := range o.Match {
			b.add(o.Name, p) // what stands there was accepted when it was written
		}
	}
	var faults quotad.Faults
	for i, p := range match {
		if fault := b.add(group, p); fault != "" {
			faults.Add(fmt.Sprintf("match[%d]", i), fault)
		}
	}
	return faults
}

// builder makes a Matcher. http.ServeMux is the judge of what is a pattern and
// of which two patterns conflict. It finds no group itself: on the way of every
// call it would take a lock, a *http.Request and a few allocations, and it
// answers some paths with a redirect. Nor does it hold all patterns: what it
// takes to add one grows with their number.
type builder struct {
	matcher *Matcher
	at      map[*node][]added // by where the pattern ends
}

type added struct{ group, text, canonical string }

func newBuilder() *builder {
	return &builder{matcher: &Matcher{}, at: map[*node][]added{}}
}

// add adds a pattern of a group, or says why it can't, to be read behind the
// pattern.
func (b *builder) add(group, text string) (fault string) {
	p, fault := parsePattern(text)
	if fault != "" {
		return fault
	}
	canonical := p.String()
	if other, ok := b.conflicting(&b.matcher.root, p, 0, canonical); ok {
		return fmt.Sprintf("conflicts with %q of route group %q: both match some calls, and neither is the more specific",
			other.text, other.group)
	}
	n := &b.matcher.root
	for _, s := range p.segments {
		n = n.child(s)
	}
	end := &n.exact
	if p.subtree {
		end = &n.subtree
	}
	if *end == nil {
		*end = leaf{}
	}
	(*end)[p.method] = group
	b.at[n] = append(b.at[n], added{group, text, canonical})
	return ""
}

// conflicting returns a pattern from n on that conflicts with p, whose segments
// up to i may match what led to n. It asks the judge only about patterns that
// some path may match as well as p.
func (b *builder) conflicting(n *node, p pattern, i int, canonical string) (other added, ok bool) {
	if n == nil {
		return added{}, false
	}
	below := i >= len(p.segments)
	if n.subtree != nil || below {
		for _, a := range b.at[n] {
			if conflict(a.canonical, canonical) {
				return a, true
			}
		}
	}
	if below && !p.subtree {
		return added{}, false
	}
	if !below && !p.segments[i].wild {
		if other, ok = b.conflicting(n.literal[p.segments[i].text], p, i+1, canonical); ok {
			return other, true
		}
		return b.conflicting(n.wild, p, i+1, canonical)
	}
	for _, name := range slices.Sorted(maps.Keys(n.literal)) { // so that the same one is named each time
		if other, ok = b.conflicting(n.literal[name], p, i+1, canonical); ok {
			return other, true
		}
	}
	return b.conflicting(n.wild, p, i+1, canonical)
}

func (n *node) child(s segment) *node {
	if s.wild {
		if n.wild == nil {
			n.wild = &node{}
		}
		return n.wild
	}
	if n.literal == nil {
		n.literal = map[string]*node{}
	}
	if n.literal[s.text] == nil {
		n.literal[s.text] = &node{}
	}
	return n.literal[s.text]
}

// handle registers a pattern; ServeMux panics where it refuses one.
func handle(mux *http.ServeMux, pattern string) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("refused: %v", r)
			if e, ok := r.(error); ok {
				err = e
			}
		}
	}()
	mux.Handle(pattern, http.NotFoundHandler())
	return nil
}

func conflict(a, b string) bool {
	mux := http.NewServeMux()
	return handle(mux, a) == nil && handle(mux, b) != nil
}

// pattern is a pattern over cleaned paths.
type pattern struct {
	method   string // "" is any
	segments []segment
	subtree  bool // matches what is below as well
}

type segment struct {
	text string // a literal as it stands in a cleaned path, or a wildcard's name
	wild bool
}

// parsePattern reads a pattern of ServeMux's language. fault is "" or says why
// it is none, or why no cleaned path can match it.
func parsePattern(text string) (p pattern, fault string) {
	if len(text) > maxPattern {
		return p, fmt.Sprintf("must be at most %d bytes", maxPattern)
	}
	if err := handle(http.NewServeMux(), text); err != nil {
		if reason := errors.Unwrap(err); reason != nil {
			err = reason
		}
		return p, fmt.Sprintf("is not a pattern: %v", err)
	}
	path := text
	if i := strings.IndexAny(text, " \t"); i >= 0 {
		p.method, path = upper(text[:i]), strings.TrimLeft(text[i:], " \t")
		if p.method == "" {
			return p, "must not start with a space"
		}
	}
	if path[0] != '/' {
		return p, "must not name a host"
	}
	parts := strings.Split(path[1:], "/")
	for i, part := range parts {
		last := i == len(parts)-1
		switch {
		case last && part == "":
			p.subtree = true
		case part == "{$}":
			// The same as no trailing slash: a cleaned path has none.
		case strings.HasSuffix(part, "...}"):
			p.subtree = true
		case strings.HasPrefix(part, "{"):
			p.segments = append(p.segments, segment{part[1 : len(part)-1], true})
		default:
			literal, fault := cleanLiteral(part)
			if fault != "" {
				return p, "can never match: " + fault
			}
			p.segments = append(p.segments, segment{literal, false})
		}
	}
	return p, ""
}

// cleanLiteral is a literal segment as it stands in a cleaned path.
func cleanLiteral(part string) (literal, fault string) {
	c, open, fault := clean("/"+part, 0, cleaned{})
	switch {
	case fault != "":
		return "", "a path that " + fault + " is refused"
	case open != 0:
		return "", `a segment with an encoded slash or a ";" is read in more than one way`
	case len(c.ends) != 1:
		return "", `empty and "." segments are dropped`
	}
	return string(c.segment(0)), ""
}

// String is the pattern over cleaned paths in ServeMux's language.
func (p pattern) String() string {
	var b strings.Builder
	if p.method != "" {
		b.WriteString(p.method + " ")
	}
	for _, s := range p.segments {
		if s.wild {
			b.WriteString("/{" + s.text + "}")
		} else {
			b.WriteString("/" + url.PathEscape(s.text))
		}
	}
	switch {
	case p.subtree:
		b.WriteString("/")
	case len(p.segments) == 0:
		b.WriteString("/{$}")
	}
	return b.String()
}
