package tiers

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/quotad/quotad"
)

func group(name string, match ...string) quotad.RouteGroup {
	return quotad.RouteGroup{RouteGroupSpec: quotad.RouteGroupSpec{Name: name, Match: match}}
}

func newMatcher(t testing.TB, groups ...quotad.RouteGroup) *Matcher {
	t.Helper()
	m, err := NewMatcher(groups)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// shop is a set of groups with every kind of pattern.
func shop(t testing.TB) *Matcher {
	return newMatcher(t,
		group("exports", "POST /v1/exports", "GET /v1/exports/{id...}"),
		group("reports", "/v1/reports/export", "/v1/Reports/{id}/PDF"),
		group("login", "POST /login", "/otp/"),
		group("files", "/files/{name}", "/files/{name}/meta"),
		group("file-list", "/files"),
		group("popular", "GET /files/popular"),
		group("heads", "HEAD /files/popular"),
		group("home", "/{$}"),
		group("intl", "/日本/{x}", "/caf%C3%A9", "/a%20b/%7Bc%7D"),
		group("odd", "PURGE /cache/", "get /lower"),
	)
}

func TestMatch(t *testing.T) {
	t.Parallel()
	m := shop(t)
	for _, c := range []struct{ method, path, want string }{
		{"POST", "/v1/exports", "exports"},
		{"GET", "/v1/exports", "exports"},
		{"GET", "/v1/exports/17/rows", "exports"},
		{"HEAD", "/v1/exports/17", "exports"},
		{"DELETE", "/v1/exports", "default"},
		{"POST", "/v1/exports/17", "default"},
		{"", "/v1/exports", "default"},
		{"", "/v1/reports/export", "reports"},
		{"PATCH", "/v1/reports/7/pdf", "reports"},
		{"GET", "/v1/reports/7", "default"},
		{"GET", "/v1/reports/export/pdf", "reports"},
		{"POST", "/login", "login"},
		{"GET", "/login", "default"},
		{"GET", "/otp", "login"},
		{"GET", "/otp/", "login"},
		{"GET", "/otp/a/b/c", "login"},
		{"GET", "/otpx", "default"},
		{"GET", "/files", "file-list"},
		{"GET", "/files/a", "files"},
		{"GET", "/files/a/meta", "files"},
		{"GET", "/files/popular", "popular"},
		{"HEAD", "/files/popular", "heads"},
		{"POST", "/files/popular", "files"},
		{"GET", "/files/popular/meta", "files"},
		{"GET", "/files/popular/x", "default"},
		{"GET", "/", "home"},
		{"GET", "//", "home"},
		{"GET", "/x", "default"},
		{"GET", "/%E6%97%A5%E6%9C%AC/1", "intl"},
		{"GET", "/日本/1", "intl"},
		{"GET", "/CAFÉ", "intl"},
		{"GET", "/a b/{C}", "intl"},
		{"PURGE", "/cache/x", "odd"},
		{"purge", "/cache", "odd"},
		{"GET", "/lower", "odd"},
		{"get", "/LOWER", "odd"},
		{"🎉", "/cache/x", "default"},
		{"GET /x", "/cache/x", "default"},
		{"{", "/files/a", "files"},
	} {
		got, err := m.Match(c.method, c.path)
		if err != nil || got != c.want {
			t.Errorf("Match(%q, %q) = %q, %v; want %q", c.method, c.path, got, err, c.want)
		}
	}
}

func TestNoSpellingOfAPathEscapesItsGroup(t *testing.T) {
	t.Parallel()
	m := newMatcher(t, group("export", "/v1/reports/export"))
	for _, path := range []string{
		"/v1/reports/export", "//v1/reports//export", "///v1/reports/export", "/.//v1/reports/export", "/v1/./reports/export", "/v1/reports/export/", "/v1/reports/export//.",
		"/V1/Reports/Export", "/v1/reports/%65xport", "/%76%31/reports/export", "/v1/%2e/reports/export",
		"/v1/report\u017f/export", "/v1/reports/exporT",
	} {
		if got, err := m.Match("GET", path); err != nil || got != "export" {
			t.Errorf("Match(%q) = %q, %v; want the same group", path, got, err)
		}
	}
	for _, path := range []string{
		"/v1/x/../reports/export", "/v1/reports%2Fexport", "/v1/reports%2fexport", "/v1%2Freports%2Fexport", "/v1/reports/export%2F",
		"/v1/reports/export%00", "/v1/reports/export;a=b", "/v1/reports;a=b/export", "/v1/reports/export%3B", "/v1/..;/v1/reports/export",
		"/v1/x/..%2freports/export", "/v1/x%2f../reports/export", "/v1/reports\\export", "/v1/reports%5Cexport",
		"/v1/reports/export?x", "/v1/reports/%c0%aexport",
		"//host/v1/reports/export", "///host//v1/reports/export", "//u@host:80/v1/reports/export",
	} {
		got, err := m.Match("GET", path)
		var e *quotad.Error
		if !errors.As(err, &e) || e.Code != quotad.CodeInvalidPath || e.Detail == "" || got != "" {
			t.Errorf("Match(%q) = %q, %v; want invalid_path", path, got, err)
		}
	}
}

func TestWhatServersReadDifferentlyPassesWhereItMakesNoDifference(t *testing.T) {
	t.Parallel()
	m := newMatcher(t, group("proxy", "/proxy/"), group("names", "/names/{name}", "/names/{a}/{b}"))
	for path, want := range map[string]string{
		"/proxy/https%3A%2F%2Fexample.com%2Fa": "proxy",
		"/proxy;v=1/a":                         "", // without the parameter in the group, with it outside
		"/proxy/a;v=1":                         "proxy",
		"/names/a%2Fb":                         "names",
		"/names/a%2Fb%2Fc":                     "", // one name, or three of which no pattern speaks
		"/names/a;b":                           "names",
		"/other/a%2Fb;c":                       "default",
		"/proxy/a%2F..":                        "",
		"/proxy/..;/other":                     "",
		"//proxy/a":                            "proxy",
		"//host/proxy/a":                       "",
		"//proxy/proxy/a;b":                    "proxy",
		"//proxy/proxy/a":                      "proxy",
		"//other/a":                            "default",
	} {
		got, err := m.Match("GET", path)
		if got != want || (err != nil) != (want == "") {
			t.Errorf("Match(%q) = %q, %v; want %q", path, got, err, want)
		}
	}
}

func TestASubtreeOwnsItsRoot(t *testing.T) {
	t.Parallel()
	// Both orders of registration, since a matcher must not depend on it.
	groups := []quotad.RouteGroup{
		group("subtree", "GET /v1/exports/"), group("one", "/v1/{name}"), group("all", "/v1/{rest...}"), group("everything", "/"),
	}
	for range 2 {
		m := newMatcher(t, groups...)
		for path, want := range map[string]string{
			"/v1/exports": "subtree", "/v1/exports/": "subtree", "/v1/exports/a/b": "subtree",
			"/v1/a": "one", "/v1/a/": "one", "/v1/a/b": "all", "/v1": "all", "/": "everything", "/v2/x": "everything",
		} {
			if got, err := m.Match("GET", path); err != nil || got != want {
				t.Errorf("Match(%q) = %q, %v; want %q", path, got, err, want)
			}
		}
		if got, _ := m.Match("POST", "/v1/exports"); got != "one" {
			t.Errorf("POST /v1/exports is in %q, want the pattern of any method", got)
		}
		groups[0], groups[1], groups[2], groups[3] = groups[3], groups[2], groups[1], groups[0]
	}
}

func TestMatchOfManySegments(t *testing.T) {
	t.Parallel()
	m := newMatcher(t, group("deep", "/a/{x}/"+strings.Repeat("a/", 200)), group("all", "/all/"))
	if got, err := m.Match("GET", "/"+strings.Repeat("a/", 4000)); err != nil || got != "deep" {
		t.Errorf("a path of 4000 segments: %q, %v", got, err)
	}
	if got, err := m.Match("GET", "/all"+strings.Repeat("/b", 4000)); err != nil || got != "all" {
		t.Errorf("a path of 4000 segments: %q, %v", got, err)
	}
}

// respell writes the path otherwise without changing what it names.
func respell(r *rand.Rand, path string) string {
	var b strings.Builder
	for i := 0; i < len(path); i++ {
		c := path[i]
		switch {
		case c == '/':
			slashes := []string{"/", "/./", "/%2e/", "/.//", "//"}
			if i == 0 {
				slashes = slashes[:4] // a host may follow two of them
			}
			b.WriteString(slashes[r.IntN(len(slashes))])
		case c == '%':
			b.WriteString(path[i:min(i+3, len(path))])
			i += 2
		case r.IntN(4) == 0:
			fmt.Fprintf(&b, []string{"%%%02x", "%%%02X"}[r.IntN(2)], c)
		case r.IntN(2) == 0 && 'a' <= c|0x20 && c|0x20 <= 'z':
			b.WriteByte(c ^ 0x20)
		default:
			b.WriteByte(c)
		}
	}
	return b.String() + []string{"", "/", "/.", "//"}[r.IntN(4)]
}

func FuzzMatch(f *testing.F) {
	for _, path := range append([]string{
		"/v1/exports", "/v1/exports/17", "/v1/reports/export", "/files/popular", "/files/a%2Fmeta", "/otp;x", "/日本/é", "/caf%C3%A9", "/a b/{c}", "/",
	}, refusedPaths...) {
		f.Add("GET", path, uint64(1))
	}
	m := shop(f)
	f.Fuzz(func(t *testing.T, method, path string, seed uint64) {
		group, err := m.Match(method, path)
		if err != nil && (!errors.Is(err, &quotad.Error{Code: quotad.CodeInvalidPath}) || group != "") {
			t.Fatalf("Match(%q, %q) = %q, %v", method, path, group, err)
		}
		if !strings.HasPrefix(path, "/") || strings.HasPrefix(path, "//") || strings.ContainsAny(path, "?#") {
			return
		}
		other := respell(rand.New(rand.NewPCG(seed, 0)), path)
		if len(other) > maxPath {
			return
		}
		again, err2 := m.Match(method, other)
		if again != group || (err == nil) != (err2 == nil) {
			t.Fatalf("Match(%q, %q) = %q, %v, but %q = %q, %v", method, path, group, err, other, again, err2)
		}
	})
}

func BenchmarkMatch(b *testing.B) {
	var groups []quotad.RouteGroup
	for i := range 50 {
		groups = append(groups, group(fmt.Sprintf("g%d", i),
			fmt.Sprintf("POST /v1/resource%d", i), fmt.Sprintf("GET /v1/resource%d/{id...}", i),
			fmt.Sprintf("GET /v1/resource%d/{id}/parts/{part}", i), fmt.Sprintf("/v2/{tenant}/area%d/", i)))
	}
	m := newMatcher(b, groups...)
	for _, c := range []struct{ name, method, path, want string }{
		{"literal", "POST", "/v1/resource25", "g25"},
		{"wildcards", "GET", "/v1/resource25/1d3ab9f0-7a2c/parts/17", "g25"},
		{"subtree", "GET", "/v2/acme/area49/some/thing/below", "g49"},
		{"default", "GET", "/v3/something/else", "default"},
		{"encoded", "GET", "/v1/Resource25/%C3%A9t%C3%A9%20x/Parts/", "g25"},
		{"two_readings", "GET", "/v1/resource25/a%2Fb", "g25"},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if got, err := m.Match(c.method, c.path); err != nil || got != c.want {
					b.Fatalf("Match(%s %s) = %q, %v", c.method, c.path, got, err)
				}
			}
		})
	}
}
