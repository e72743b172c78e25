package tiers

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/quotad/quotad"
)

// Matcher finds the route group of a call. It never changes once made, and may
// be used by any number of goroutines.
type Matcher struct{ root node }

// NewMatcher returns a Matcher of the groups' patterns. It fails on the first
// pattern that is not one, or that conflicts with another; a set of groups that
// a Store returned has none.
func NewMatcher(groups []quotad.RouteGroup) (*Matcher, error) {
	b := newBuilder()
	for _, g := range groups {
		for i, p := range g.Match {
			if fault := b.add(g.Name, p); fault != "" {
				return nil, fmt.Errorf("route group %q: match[%d] %q %s", g.Name, i, p, fault)
			}
		}
	}
	return b.matcher, nil
}

// Match returns the group whose pattern is the most specific that matches the
// call, quotad.DefaultGroup where none does. The path is as it stood on the
// request line: still encoded, without the query. The error is CodeInvalidPath
// where servers would not agree on what the path names; see the package's doc.
//
// A HEAD is matched as a GET unless a pattern names HEAD. An empty method
// matches only patterns of any method.
func (m *Matcher) Match(method, path string) (group string, err error) {
	var text [256]byte
	var ends [32]int
	room := cleaned{text[:0], ends[:0]}
	method = upper(method)

	p, open, fault := clean(path, 0, room)
	if fault != "" {
		return "", invalidPath(fault)
	}
	group = m.find(method, p)
	for as := reading(1); as < readings && open != 0; as++ {
		if as&^open != 0 {
			continue
		}
		p, _, fault := clean(path, as, room)
		if fault != "" {
			return "", invalidPath(fault)
		}
		other := m.find(method, p)
		if as&hostDrops != 0 && other == quotad.DefaultGroup {
			continue // "//v1/exports" is how clients write that join two slashes
		}
		if other != group {
			return "", invalidPath(`begins with two slashes, or has an encoded one or a ";", and belongs to another route group where servers read it otherwise`)
		}
	}
	return group, nil
}

func (m *Matcher) find(method string, p cleaned) string {
	if group, ok := m.root.find(method, p, 0); ok {
		return group
	}
	return quotad.DefaultGroup
}

func invalidPath(fault string) error {
	return quotad.NewError(quotad.CodeInvalidPath, "the path "+fault)
}

// upper is the method in upper case: a server that takes "get" for GET is not
// to be asked under another group.
func upper(method string) string {
	for i := range len(method) {
		if c := method[i]; 'a' <= c && c <= 'z' {
			return strings.ToUpper(method)
		}
	}
	return method
}

// node is where the patterns stand that agree on their first segments.
type node struct {
	literal map[string]*node
	wild    *node
	exact   leaf // patterns that end here
	subtree leaf // patterns that also match all that is below
}

// leaf is the groups of patterns with one path, by method; "" is any method.
type leaf map[string]string

func (l leaf) find(method string) (group string, ok bool) {
	if l == nil {
		return "", false
	}
	if group, ok = l[method]; ok {
		return group, true
	}
	if method == http.MethodHead {
		if group, ok = l[http.MethodGet]; ok {
			return group, true
		}
	}
	group, ok = l[""]
	return group, ok
}

// find looks for the most specific pattern first: at each segment the literal
// before the wildcard before what also matches everything below. Because no two
// patterns conflict, those that match one call are each more specific than the
// next, and this order meets the most specific of them first.
//
// The one call that ServeMux would not judge is that of a subtree's own root
// ("/a/b" for "/a/b/") beside a pattern of equal length ("/a/{x}"). There, too,
// the earlier literal wins.
func (n *node) find(method string, p cleaned, i int) (group string, ok bool) {
	if i == len(p.ends) {
		if group, ok = n.exact.find(method); ok {
			return group, true
		}
		return n.subtree.find(method)
	}
	if next := n.literal[string(p.segment(i))]; next != nil {
		if group, ok = next.find(method, p, i+1); ok {
			return group, true
		}
	}
	if n.wild != nil {
		if group, ok = n.wild.find(method, p, i+1); ok {
			return group, true
		}
	}
	return n.subtree.find(method)
}
