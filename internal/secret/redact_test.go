package secret

import (
	"strings"
	"testing"
	"time"
)

func TestRedactFindsEveryCredential(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	key, _ := Mint(APIKey, at)
	token, _ := Mint(AdminToken, at)
	k, a := key.Reveal(), token.Reveal()
	mistyped := k[:len(k)-1] + map[bool]string{true: "1", false: "0"}[strings.HasSuffix(k, "0")]
	for text, want := range map[string]string{
		"":                       "",
		"nothing to hide":        "nothing to hide",
		k:                        "[redacted]",
		k + a:                    "[redacted][redacted]",
		`{"a":"` + a + `"} ` + k: `{"a":"[redacted]"} [redacted]`,
		"qk_" + k + "x":          "qk_[redacted]x",
		"é" + k + "é":            "é[redacted]é",
		k[:len(k)-1]:             k[:len(k)-1], // a part of one opens nothing
		mistyped:                 mistyped,
		"qk_qa_":                 "qk_qa_",
	} {
		if got := Redact(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}
