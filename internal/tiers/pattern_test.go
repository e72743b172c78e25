package tiers

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/quotad/quotad"
)

func TestWhatIsNoPatternIsRefused(t *testing.T) {
	t.Parallel()
	for pattern, want := range map[string]string{
		"":                       "is not a pattern",
		"v1":                     "is not a pattern",
		"GET":                    "is not a pattern",
		"GET  ":                  "is not a pattern",
		"/a b":                   "is not a pattern",
		"G=T /a":                 "is not a pattern",
		"/{":                     "is not a pattern",
		"/{}":                    "is not a pattern",
		"/{x}y":                  "is not a pattern",
		"/{x...}/y":              "is not a pattern",
		"/{x}/{x}":               "is not a pattern",
		"/{$}/y":                 "is not a pattern",
		"GET /a//b":              "is not a pattern",
		"GET /a/../b":            "is not a pattern",
		" /a":                    "must not start with a space",
		"example.com/a":          "must not name a host",
		"GET example.com/a":      "must not name a host",
		"/a//b":                  "can never match",
		"/./b":                   "can never match",
		"/a/%2E/b":               "can never match",
		"CONNECT /a/../b":        "can never match",
		"/a/%2e%2E":              "can never match",
		"/a%2Fb":                 "can never match",
		"/a;b":                   "can never match",
		"/a%00":                  "can never match",
		"/a\x00":                 "can never match",
		"/a\n":                   "can never match",
		"/a%zz":                  "can never match",
		"/a%ff":                  "can never match",
		"/a\\b":                  "can never match",
		"/a?b":                   "can never match",
		"/a#b":                   "can never match",
		"/" + repeat("a", 10000): "must be at most 1024 bytes",
	} {
		faults := checkMatch("g", []string{"/ok", pattern}, nil)
		if len(faults) != 1 || !strings.HasPrefix(faults["match[1]"], want) {
			t.Errorf("pattern %.50q: faults %.200v, want match[1] %s", pattern, faults, want)
		}
		if _, err := NewMatcher([]quotad.RouteGroup{group("g", "/ok", pattern)}); err == nil || !strings.Contains(err.Error(), `"g": match[1]`) {
			t.Errorf("NewMatcher with pattern %.50q: %v", pattern, err)
		}
	}
}

func repeat(s string, n int) string { return strings.Repeat(s, n) }

func TestConflictsAreRefusedByName(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		mine, other string
		conflict    bool
	}{
		{"/a", "/a", true},
		{"/A", "/a", true},
		{"/%61", "/a", true},
		{"/caf%C3%A9", "/CAFÉ", true},
		{"/a/{$}", "/a", true},
		{"/a/{x}", "/A/{y}", true},
		{"/a/{x...}", "/a/", true},
		{"/a/{x}/c", "/a/b/{y}", true},
		{"GET /a/", "/a/b", true},
		{"get /a", "GET /a", true},
		{"GET  /a", "GET\t/a", true},

		{"GET /a", "/a", false},
		{"GET /a", "HEAD /a", false},
		{"GET /a", "POST /a", false},
		{"/a", "/a/", false},
		{"/a/{x}", "/a/b", false},
		{"/a/{x}", "/a/b/", false},
		{"GET /a/b/", "/a/{x}", false},
		{"/", "/{$}", false},
		{"/", "/a/{x...}", false},
	} {
		for _, pair := range [][2]string{{c.mine, c.other}, {c.other, c.mine}} {
			faults := checkMatch("mine", []string{"/fine", pair[0]}, []quotad.RouteGroup{group("elsewhere", "/z"), group("other", "/y", pair[1])})
			var want quotad.Faults
			if c.conflict {
				want = quotad.Faults{"match[1]": fmt.Sprintf(
					"conflicts with %q of route group %q: both match some calls, and neither is the more specific", pair[1], "other")}
			}
			if diff := cmp.Diff(want, faults); diff != "" {
				t.Errorf("%q beside %q (-want +got):\n%s", pair[0], pair[1], diff)
			}
		}
	}
}

func TestAllFaultsOfPatternsAreToldAtOnce(t *testing.T) {
	t.Parallel()
	faults := checkMatch("g", []string{"/ok", "nonsense", "/a;b", "/ok", "/taken", "/fine"}, []quotad.RouteGroup{group("other", "/taken")})
	var fields []string
	for f := range faults {
		fields = append(fields, f)
	}
	slices.Sort(fields)
	if diff := cmp.Diff([]string{"match[1]", "match[2]", "match[3]", "match[4]"}, fields); diff != "" {
		t.Errorf("faults (-want +got):\n%s", diff)
	}
}

// TestMatchAgreesWithServeMux draws sets of patterns and calls. Where the call
// is not that of a subtree's root, whose redirect has no counterpart here, the
// group is the one of the pattern that ServeMux finds.
func TestMatchAgreesWithServeMux(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	pick := func(list ...string) string { return list[r.IntN(len(list))] }
	checked, found := 0, 0
	for range 3000 {
		b, mux, groups := newBuilder(), http.NewServeMux(), map[string]string{}
		var roots []string
		for i := range 12 {
			pattern := pick("", "", "GET ", "HEAD ", "POST ")
			for j := range r.IntN(4) {
				pattern += "/" + pick("a", "b", "a", "b", fmt.Sprintf("{w%d}", j))
			}
			if strings.HasSuffix(pattern, " ") || pattern == "" {
				pattern += "/"
			} else if r.IntN(3) == 0 {
				pattern += pick("/", "/{rest...}")
			}
			accepted := b.add(fmt.Sprintf("g%d", i), pattern) == ""
			if accepted != (handle(mux, pattern) == nil) {
				t.Fatalf("pattern %q after %v: accepted is %v, and ServeMux says otherwise", pattern, groups, accepted)
			}
			if accepted {
				groups[pattern] = fmt.Sprintf("g%d", i)
				if strings.HasSuffix(pattern, "/") || strings.HasSuffix(pattern, "...}") {
					roots = append(roots, pattern[strings.Index(pattern, "/"):strings.LastIndex(pattern, "/")])
				}
			}
		}
		for range 30 {
			method, path := pick("GET", "HEAD", "POST", "PUT"), ""
			for range 1 + r.IntN(4) {
				path += "/" + pick("a", "b", "c")
			}
			if slices.ContainsFunc(roots, func(root string) bool { return matches(root, path) }) {
				continue
			}
			_, pattern := mux.Handler(httptest.NewRequest(method, path, nil))
			want := quotad.DefaultGroup
			if pattern != "" {
				want = groups[pattern]
				found++
			}
			if got, err := b.matcher.Match(method, path); err != nil || got != want {
				t.Fatalf("Match(%s %s) = %q, %v; ServeMux finds %q of %q in %v", method, path, got, err, pattern, want, groups)
			}
			checked++
		}
	}
	if checked < 20000 || found < checked/4 {
		t.Errorf("only %d calls compared, %d of them found a pattern", checked, found)
	}
}

// matches reports whether a pattern's path without its tail matches the path.
func matches(pattern, path string) bool {
	ps, ss := strings.Split(pattern, "/"), strings.Split(path, "/")
	return slices.EqualFunc(ps, ss, func(p, s string) bool { return p == s || strings.HasPrefix(p, "{") })
}

func BenchmarkNewMatcher(b *testing.B) {
	for _, each := range []int{4, 200} {
		var groups []quotad.RouteGroup
		for i := range 50 {
			g := group(fmt.Sprintf("g%d", i))
			for j := range each {
				g.Match = append(g.Match, fmt.Sprintf("GET /v1/{tenant}/r%d/p%d/{x...}", i, j))
			}
			groups = append(groups, g)
		}
		b.Run(fmt.Sprintf("patterns=%d", 50*each), func(b *testing.B) {
			for b.Loop() {
				newMatcher(b, groups...)
			}
		})
	}
}
