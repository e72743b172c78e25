package tiers

import (
	"net/url"
	"path"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

func segments(p cleaned) []string {
	list := make([]string, len(p.ends))
	for i := range p.ends {
		list[i] = string(p.segment(i))
	}
	return list
}

func TestCleanPath(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		raw  string
		want []string
		open reading
	}{
		{"/", []string{}, 0},
		{"//", []string{}, 0},
		{"/./.", []string{}, 0},
		{"/v1/exports", []string{"v1", "exports"}, 0},
		{"/v1///exports//", []string{"v1", "exports"}, 0},
		{"/.//v1/exports", []string{"v1", "exports"}, 0},
		{"//v1///exports//", []string{"v1", "exports"}, hostDrops},
		{"///v1%2F;", []string{"v1/;"}, hostDrops | slashSplits | paramsDrop},
		{"/v1/./exports/.", []string{"v1", "exports"}, 0},
		{"/v1/%2e/exports", []string{"v1", "exports"}, 0},
		{"/V1/Exports", []string{"v1", "exports"}, 0},
		{"/v1/%65xports", []string{"v1", "exports"}, 0},
		{"/v1/%45xports", []string{"v1", "exports"}, 0},
		{"/v1/a%20b", []string{"v1", "a b"}, 0},
		{"/v1/a b", []string{"v1", "a b"}, 0},
		{"/v1/a+b", []string{"v1", "a+b"}, 0},
		{"/v1/100%25", []string{"v1", "100%"}, 0},
		{"/v1/%252F", []string{"v1", "%2f"}, 0},
		{"/v1/%3Fq%23f", []string{"v1", "?q#f"}, 0},
		{"/v1/...", []string{"v1", "..."}, 0},
		{"/v1/..a/a..", []string{"v1", "..a", "a.."}, 0},
		{"/v1/a%2Fb", []string{"v1", "a/b"}, slashSplits},
		{"/v1/a;v=1/b", []string{"v1", "a;v=1", "b"}, paramsDrop},
		{"/v1/a%3Bv%2f", []string{"v1", "a;v/"}, slashSplits | paramsDrop},
		{"/日本/É", []string{"日本", "É"}, 0},
		{"/%E6%97%A5%e6%9c%ac/é", []string{"日本", "É"}, 0},
		{"/\u212aey/\u017fum", []string{"key", "sum"}, 0},
	} {
		p, open, fault := clean(c.raw, 0, cleaned{})
		if fault != "" {
			t.Errorf("clean(%q): fault %q", c.raw, fault)
			continue
		}
		if diff := cmp.Diff(c.want, segments(p)); diff != "" || open != c.open {
			t.Errorf("clean(%q) leaves open %d, want %d; segments (-want +got):\n%s", c.raw, open, c.open, diff)
		}
	}
}

func TestCleanPathInOtherReadings(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		raw  string
		as   reading
		want []string
	}{
		{"/v1/a%2Fb", slashSplits, []string{"v1", "a", "b"}},
		{"/v1%2F%2fa%2F", slashSplits, []string{"v1", "a"}},
		{"/v1/a;v=1/b", paramsDrop, []string{"v1", "a", "b"}},
		{"/v1/;v=1/b", paramsDrop, []string{"v1", "b"}},
		{"/v1/a;x=%2Fb/c", paramsDrop, []string{"v1", "a", "c"}},
		{"/v1/a;x=%2Fb/c", slashSplits, []string{"v1", "a;x=", "b", "c"}},
		{"/v1/a;x=%2Fb/c", slashSplits | paramsDrop, []string{"v1", "a", "b", "c"}},
		{"/v1/É;É", paramsDrop, []string{"v1", "É"}},
		{"//v1/exports", hostDrops, []string{"exports"}},
		{"///user@host:80//v1/exports/", hostDrops, []string{"v1", "exports"}},
		{"//host", hostDrops, []string{}},
		{"//a%2Fb;c/d%2Fe;f", hostDrops | slashSplits | paramsDrop, []string{"d", "e"}},
	} {
		p, _, fault := clean(c.raw, c.as, cleaned{})
		if fault != "" {
			t.Errorf("clean(%q, %d): fault %q", c.raw, c.as, fault)
			continue
		}
		if diff := cmp.Diff(c.want, segments(p)); diff != "" {
			t.Errorf("clean(%q, %d) (-want +got):\n%s", c.raw, c.as, diff)
		}
	}
}

// refusedPaths are refused in the first reading of them.
var refusedPaths = []string{
	"", "*", "v1/exports", "http://host/v1/exports", "\\v1",
	"/v1/exports?x=1", "/v1/exports#x",
	"/v1/x/../exports", "/..", "/../", "/v1/..", "/v1/%2e%2e/exports", "/v1/.%2E/exports", "/v1/%2e./exports",
	"/v1/exports%00", "/v1/exports\x00", "/v1/ex\nports", "/v1/ex%0aports", "/v1/ex%0dports", "/v1/ex%7Fports", "/v1/\t",
	"/v1\\exports", "/v1%5Cexports", "/v1%5cexports",
	"/v1/%", "/v1/%2", "/v1/%zz", "/v1/%u002f", "/v1/%2%66",
	"/v1/\xff", "/v1/%ff", "/v1/%c0%ae%c0%ae/exports", "/v1/%c0%afexports", "/v1/%C3/%A9", "/v1/%ed%a0%80",
	"/v1/%c2%85", "/v1/\u0085",
	"/" + strings.Repeat("a", maxPath),
}

func TestCleanPathRefuses(t *testing.T) {
	t.Parallel()
	for _, raw := range refusedPaths {
		if p, _, fault := clean(raw, 0, cleaned{}); fault == "" {
			t.Errorf("clean(%.60q) = %q, want a fault", raw, segments(p))
		}
	}
	if _, _, fault := clean("/"+strings.Repeat("a", maxPath-1), 0, cleaned{}); fault != "" {
		t.Errorf("a path of the greatest length is refused: %s", fault)
	}
}

func FuzzCleanPath(f *testing.F) {
	for _, raw := range refusedPaths {
		f.Add(raw)
	}
	for _, raw := range []string{"/", "//v1/./Exports/", "/v1/a%2Fb;c/%C3%A9", "/\u212a/%e1%ba%9e", "/a/..;/b"} {
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		p, open, fault := clean(raw, 0, cleaned{})
		if fault != "" {
			return
		}
		escaped := ""
		for i, s := range segments(p) {
			if s == "" || s == "." || s == ".." || !utf8.ValidString(s) || strings.ContainsAny(s, "\\\x00\n\r\x7f") {
				t.Fatalf("clean(%q): segment %d is %q", raw, i, s)
			}
			escaped += "/" + url.PathEscape(s)
		}
		again, _, fault := clean("/"+escaped, 0, cleaned{})
		if len(escaped) < maxPath && (fault != "" || !cmp.Equal(segments(again), segments(p))) {
			t.Fatalf("clean(%q) = %q, cleaned again %q %s", raw, segments(p), segments(again), fault)
		}
		unescaped, err := url.PathUnescape(raw)
		if err != nil {
			t.Fatalf("clean(%q) took what is no percent-encoding: %v", raw, err)
		}
		if open&slashSplits == 0 && !strings.EqualFold(path.Clean(unescaped), "/"+strings.Join(segments(p), "/")) {
			t.Fatalf("clean(%q) = %q, want the segments of %q", raw, segments(p), path.Clean(unescaped))
		}
	})
}
