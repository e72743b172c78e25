package callers

import (
	"errors"
	"testing"

	"github.com/quotad/quotad"
)

func TestAForwardedCallHasOneCredential(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		keys, authorization []string
		query, want         string
		ambiguous           bool
	}{
		"none":                      {},
		"an empty one":              {keys: []string{""}},
		"one":                       {keys: []string{"qk_a"}, want: "qk_a"},
		"beside the upstream's own": {keys: []string{"qk_a"}, authorization: []string{"Bearer x", "Basic eA=="}, query: "api_key=x&a=b", want: "qk_a"},
		"no key beside ours":        {authorization: []string{"Bearer qk_b"}, query: "key=qk_b"},
		"two":                       {keys: []string{"qk_a", "qk_b"}, ambiguous: true},
		"the same twice":            {keys: []string{"qk_a", "qk_a"}, ambiguous: true},
		"a list":                    {keys: []string{"qk_a, qk_b"}, ambiguous: true},
		"a list with an empty end":  {keys: []string{",qk_a"}, ambiguous: true},
		"empty and not":             {keys: []string{"", "qk_a"}, ambiguous: true},
		"a key as bearer":           {keys: []string{"qk_a"}, authorization: []string{"Bearer   qk_b"}, ambiguous: true},
		"a token, bare":             {keys: []string{"qk_a"}, authorization: []string{"qa_b"}, ambiguous: true},
		"a key in a joined line":    {keys: []string{"qk_a"}, authorization: []string{"Basic eA==,Bearer qk_b"}, ambiguous: true},
		"a key in the query":        {keys: []string{"qk_a"}, query: "a=b&key=qk_b", ambiguous: true},
	} {
		got, err := Forwarded(c.keys, c.authorization, c.query)
		if ambiguous := errors.Is(err, &quotad.Error{Code: quotad.CodeAmbiguousCredentials}); got != c.want || ambiguous != c.ambiguous || err != nil && !ambiguous {
			t.Errorf("%s: got %q, %v", name, got, err)
		}
	}
}
