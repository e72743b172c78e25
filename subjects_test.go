package quotad_test

import (
	"strings"
	"testing"

	"github.com/quotad/quotad"
)

func TestValidSubject(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]bool{
		"u1": true, "user@example.com": true, "a b": true, "日本語": true, "مرحبا": true, "e\u0301": true, "👩‍👩‍👧": true, "'; DROP": true,
		"{a}|b:c/d%3A": true, "\u200b": true, strings.Repeat("x", 255): true, strings.Repeat("é", 127): true,
		"": false, strings.Repeat("x", 256): false, strings.Repeat("é", 128): false,
		"a\x00b": false, "a\nb": false, "a\tb": false, "a\x7fb": false, "a\u0085b": false, "a\u2028b": false, "a\u2029b": false,
		" a": false, "a ": false, "a\u00a0": false, "\u3000a": false, " ": false,
		"a\xff": false, "\xed\xa0\x80": false, "a\ufffd": false,
	} {
		if got := quotad.ValidSubject(s); got != want {
			t.Errorf("%q: got %v, want %v", s, got, want)
		}
	}
}
