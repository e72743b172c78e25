package quotad

import "strings"

// SubjectHeader is where a trusted proxy names the subject of the call that it
// passes on or asks about.
const SubjectHeader = "X-Quotad-Subject"

// MaxSubject is the longest subject, in bytes.
const MaxSubject = 255

// SubjectRule says what a subject must be, as it stands behind "must be".
const SubjectRule = "1 to 255 bytes of UTF-8 without control characters, line separators, U+FFFD, and white space at either end"

// ValidSubject reports whether s can name a subject, by the one rule for all
// front doors: what a header, a JSON string and a descriptor carry alike, and a log
// shows on one line. Subjects are compared byte for byte, so that those that
// differ in case, or in Unicode form alone, are different ones.
func ValidSubject(s string) bool {
	return s != "" && len(s) <= MaxSubject && strings.TrimSpace(s) == s && printable(s)
}
