package secret

import "strings"

// Redact returns text with every credential in it, of whatever prefix, replaced by "[redacted]": for texts that others
// wrote and that are kept. A text without one comes back as it is.
func Redact(text string) string {
	var b strings.Builder
	kept := 0 // what of text is in b already
	for i := 0; i < len(text); i++ {
		n := credentialAt(text[i:])
		if n == 0 {
			continue
		}
		b.WriteString(text[kept:i])
		b.WriteString(redacted)
		kept = i + n
		i = kept - 1
	}
	if kept == 0 {
		return text
	}
	b.WriteString(text[kept:])
	return b.String()
}

// credentialAt is the length of the credential that text begins with, 0 where it begins with none.
func credentialAt(text string) int {
	for _, prefix := range []string{APIKey, AdminToken} {
		n := len(prefix) + 1 + IDLen + 1 + randomLen + checkLen
		if len(text) < n || !strings.HasPrefix(text, prefix+"_") {
			continue
		}
		if _, ok := Parse(prefix, text[:n]); ok {
			return n
		}
	}
	return 0
}
