package callers

import (
	"strings"

	"github.com/quotad/quotad"
)

// APIKey is the key that the lines of X-API-Key hold; "" when there is none, or an
// empty one, as gateways leave behind that clear the header.
func APIKey(lines []string) (string, error) {
	switch len(lines) {
	case 0:
		return "", nil
	case 1:
		if strings.Contains(lines[0], ",") {
			return "", quotad.NewError(quotad.CodeAmbiguousCredentials, "X-API-Key holds a list.")
		}
		return lines[0], nil
	default:
		return "", quotad.NewError(quotad.CodeAmbiguousCredentials, "X-API-Key is sent more than once.")
	}
}

// Forwarded is the API key of a call that is meant for an upstream. Its
// Authorization and its queries are the upstream's, so they make the call
// ambiguous only where they hold a credential of quotad's own form.
func Forwarded(keys, authorization []string, queries ...string) (string, error) {
	key, err := APIKey(keys)
	if err != nil || key == "" {
		return "", err
	}
	for _, line := range authorization {
		for value := range strings.SplitSeq(line, ",") { // some proxies join lines
			value = strings.TrimSpace(value)
			_, token, _ := strings.Cut(value, " ")
			if Ours(value) || Ours(strings.TrimSpace(token)) {
				return "", quotad.NewError(quotad.CodeAmbiguousCredentials, "X-API-Key and Authorization both hold a credential.")
			}
		}
	}
	for _, query := range queries {
		if strings.Contains(query, "=qk_") || strings.Contains(query, "=qa_") {
			return "", quotad.NewError(quotad.CodeAmbiguousCredentials, "X-API-Key and the query both hold a credential.")
		}
	}
	return key, nil
}

// Ours reports whether the text begins as quotad's credentials do.
func Ours(text string) bool { return strings.HasPrefix(text, "qk_") || strings.HasPrefix(text, "qa_") }
