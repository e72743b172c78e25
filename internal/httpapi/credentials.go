package httpapi

import (
	"strings"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/callers"
)

// keyHeader is X-API-Key as net/http spells it, however the client did.
const keyHeader = "X-Api-Key"

// onlyKey is the API key of a call that takes nothing else for a credential.
func (x *exchange) onlyKey() (string, error) {
	key, err := callers.APIKey(x.r.Header[keyHeader])
	if err != nil {
		return "", err
	}
	if key != "" && len(x.r.Header["Authorization"]) > 0 {
		return "", quotad.NewError(quotad.CodeAmbiguousCredentials, "X-API-Key and Authorization are both sent.")
	}
	return key, nil
}

// keyOrToken is the API key, or else the service token, of a check.
func (x *exchange) keyOrToken() (key, token string, err error) {
	if key, err = x.onlyKey(); err != nil {
		return "", "", err
	}
	switch values := x.r.Header["Authorization"]; len(values) {
	case 0:
		return key, "", nil
	case 1:
		scheme, token, _ := strings.Cut(values[0], " ")
		token = strings.TrimSpace(token)
		if !strings.EqualFold(scheme, "Bearer") || token == "" {
			return "", "", quotad.NewError(quotad.CodeAPIKeyRequired,
				"Authorization must be Bearer and a service token, where no X-API-Key is sent.")
		}
		if strings.Contains(token, ",") {
			return "", "", quotad.NewError(quotad.CodeAmbiguousCredentials, "Authorization holds a list.")
		}
		if strings.HasPrefix(token, "qk_") {
			return "", "", quotad.NewError(quotad.CodeAPIKeyRequired, "An API key is sent as X-API-Key; Authorization is for service tokens.")
		}
		return "", token, nil
	default:
		return "", "", quotad.NewError(quotad.CodeAmbiguousCredentials, "Authorization is sent more than once.")
	}
}

// forwardedKey is the API key of a call that is meant for an upstream.
func (x *exchange) forwardedKey(query string) (string, error) {
	return callers.Forwarded(x.r.Header[keyHeader], x.r.Header["Authorization"], query, x.r.URL.RawQuery)
}

// credentialNames are the query parameters that other services read keys from.
var credentialNames = map[string]bool{
	"api_key": true, "apikey": true, "api-key": true, "x-api-key": true, "x_api_key": true, "access_token": true,
}

// inQuery is the refusal of a call with a key in its query.
func (x *exchange) inQuery() error {
	if len(x.r.Header[keyHeader]) > 0 || len(x.r.Header["Authorization"]) > 0 {
		return quotad.NewError(quotad.CodeAmbiguousCredentials, "A header and the query both hold a credential.")
	}
	return quotad.NewError(quotad.CodeAPIKeyRequired, "An API key is read from the X-API-Key header, never from the query.")
}
