package quotad

import (
	"unicode"
	"unicode/utf8"
)

// printable reports whether s is valid UTF-8 free of control characters, so
// that every store keeps it and a log line stays one line.
func printable(s string) bool {
	if !utf8.ValidString(s) {
		return false
	}
	for _, r := range s {
		if unicode.IsControl(r) || r == '\u2028' || r == '\u2029' || r == utf8.RuneError {
			return false
		}
	}
	return true
}
