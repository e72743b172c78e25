package quotad

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// printable reports whether s is UTF-8 without control characters, line separators
// and U+FFFD, so that every store keeps it and a log line stays one line.
func printable(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool {
		return unicode.IsControl(r) || r == '\u2028' || r == '\u2029' || r == utf8.RuneError // of bytes that are not UTF-8, too
	})
}
