package secret

import (
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"io"
	"log/slog"
	"strings"
)

// redacted stands wherever a secret or a sum would be printed.
const redacted = "[redacted]"

// Secret is a credential in the clear. It prints as "[redacted]" in every verb
// of fmt, in slog and in JSON; Reveal is the only way out. The zero Secret is
// that of nobody.
type Secret struct {
	// A pointer, because fmt does not call the methods of a value that it finds
	// in an unexported field: of a pointer it prints the address there.
	text *string
}

// Given is a credential that an operator chose, in whatever form.
func Given(text string) Secret { return Secret{text: &text} }

// Reveal returns the text; "" for the zero Secret.
func (s Secret) Reveal() string {
	if s.text == nil {
		return ""
	}
	return *s.text
}

// Hint shows which credential is meant and no more: the prefix and the last
// four characters, such as "qk_…wxyz". Of a text that was not minted it shows
// nothing, because a chosen one may be guessed from its end.
func (s Secret) Hint() string {
	text := s.Reveal()
	prefix, _, _ := strings.Cut(text, "_")
	if _, ok := Parse(prefix, text); !ok {
		return "…"
	}
	return prefix + "_…" + text[len(text)-4:]
}

// Sum is the form in which the credential may be stored.
func (s Secret) Sum() Sum { return Hash(s.Reveal()) }

// String, GoString, Format, LogValue and MarshalText all say "[redacted]".
func (s Secret) String() string { return redacted }

// GoString is for %#v.
func (s Secret) GoString() string { return redacted }

// Format answers every verb, %x and %d as well.
func (s Secret) Format(f fmt.State, _ rune) { io.WriteString(f, redacted) }

// LogValue is for slog.
func (s Secret) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalText is for JSON, as a value or as the key of an object.
func (s Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// Sum is the SHA-256 of a credential's whole text. It prints as "[redacted]"
// too: it is no secret, but has no business in a log or an answer.
type Sum [sha256.Size]byte

// Hash returns the sum of a text.
func Hash(text string) Sum { return sha256.Sum256([]byte(text)) }

// Equal compares in constant time.
func (s Sum) Equal(other Sum) bool { return subtle.ConstantTimeCompare(s[:], other[:]) == 1 }

// String, Format, LogValue and MarshalText all say "[redacted]".
func (s Sum) String() string { return redacted }

// Format answers every verb.
func (s Sum) Format(f fmt.State, _ rune) { io.WriteString(f, redacted) }

// LogValue is for slog.
func (s Sum) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalText is for JSON.
func (s Sum) MarshalText() ([]byte, error) { return []byte(redacted), nil }
