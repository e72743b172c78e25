package quotad

import (
	"fmt"
	"io"
	"log/slog"
)

// Credential is an API key or a service token as a client holds it. It prints
// as [redacted] in every way that fmt, log/slog and encoding/json know, so that
// no log of a question tells it; string(c) is the text.
type Credential string

const redacted = "[redacted]"

// shown is what may be seen of a credential: whether there is one.
func (c Credential) shown() string {
	if c == "" {
		return ""
	}
	return redacted
}

// String is "[redacted]", or "" where there is none.
func (c Credential) String() string { return c.shown() }

// Format writes what String says, whatever the verb.
func (c Credential) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, c.shown()) }

// LogValue is what String says.
func (c Credential) LogValue() slog.Value { return slog.StringValue(c.shown()) }

// MarshalText is what String says.
func (c Credential) MarshalText() ([]byte, error) { return []byte(c.shown()), nil }
