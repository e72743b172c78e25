package secret_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"

	"github.com/quotad/quotad/internal/secret"
)

// holder has a secret and a sum where fmt, slog and JSON look for them: by value,
// by pointer, in a list, in a map, and in unexported fields.
type holder struct {
	Secret  secret.Secret
	Pointer *secret.Secret
	List    []secret.Secret
	Map     map[string]any
	Sum     secret.Sum
	hidden  secret.Secret
	deep    struct{ s []secret.Secret }
}

func TestNothingPrintsASecret(t *testing.T) {
	t.Parallel()
	s, _ := secret.Mint(secret.APIKey, noon)
	sum := s.Sum()
	h := holder{Secret: s, Pointer: &s, List: []secret.Secret{s}, Map: map[string]any{"s": s, "sum": sum}, Sum: sum, hidden: s}
	h.deep.s = []secret.Secret{s}

	var out bytes.Buffer
	for _, v := range []any{s, &s, sum, &sum, h, &h, []any{s, sum}, map[string]secret.Secret{"k": s}, errors.Join(fmt.Errorf("with %v", s))} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%t", "%10.4s"} {
			fmt.Fprintf(&out, verb+"\n", v)
		}
		fmt.Fprintln(&out, v)
		for _, handler := range []slog.Handler{slog.NewTextHandler(&out, nil), slog.NewJSONHandler(&out, nil)} {
			log := slog.New(handler)
			log.Info("message", "value", v, slog.Group("group", "inner", v))
			log.With("value", v).Error("message", slog.Any("pair", []any{v}))
		}
		raw, err := json.MarshalIndent(v, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		out.Write(raw)
	}
	raw, err := json.Marshal(map[secret.Sum]int{sum: 1})
	if err != nil {
		t.Fatal(err)
	}
	out.Write(raw)

	printed := strings.ToLower(out.String())
	for what, part := range map[string]string{
		"the secret":            s.Reveal(),
		"its random part":       s.Reveal()[20:52],
		"its end":               s.Reveal()[52:],
		"the secret in hex":     hex.EncodeToString([]byte(s.Reveal())),
		"the sum in hex":        hex.EncodeToString(sum[:]),
		"the sum as numbers":    strings.Trim(fmt.Sprint([32]byte(sum)), "[]"),
		"the sum as JSON":       strings.ReplaceAll(strings.Trim(fmt.Sprint([32]byte(sum)), "[]"), " ", ","),
		"the sum as Go numbers": strings.TrimSuffix(strings.TrimPrefix(fmt.Sprintf("%#v", [32]byte(sum)), "[32]uint8{"), "}"),
	} {
		if strings.Contains(printed, strings.ToLower(part)) {
			t.Errorf("%s was printed", what)
		}
	}
	if n := strings.Count(printed, "[redacted]"); n < 100 {
		t.Errorf("only %d times [redacted]: the test prints nothing", n)
	}
	for _, direct := range []string{s.String(), s.GoString(), s.LogValue().String(), sum.String(), sum.LogValue().String()} {
		if direct != "[redacted]" {
			t.Errorf("a direct call says %q", direct)
		}
	}
	fmt.Fprint(io.Discard, h.hidden, h.deep)
}

func TestHint(t *testing.T) {
	t.Parallel()
	key, _ := secret.Mint(secret.APIKey, noon)
	token, _ := secret.Mint(secret.AdminToken, noon)
	for text, want := range map[string]string{
		key.Hint():   "qk_…" + key.Reveal()[len(key.Reveal())-4:],
		token.Hint(): "qa_…" + token.Reveal()[len(token.Reveal())-4:],
		secret.Given("correct horse battery staple").Hint(): "…",
		secret.Given("qk_short").Hint():                     "…",
		secret.Secret{}.Hint():                              "…",
	} {
		if text != want {
			t.Errorf("hint %q, want %q", text, want)
		}
	}
}

func TestSumIsTheSHA256OfTheWholeText(t *testing.T) {
	t.Parallel()
	const abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" // FIPS 180-4, "abc"
	sum := secret.Given("abc").Sum()
	if got := hex.EncodeToString(sum[:]); got != abc {
		t.Errorf("sum %s, want %s", got, abc)
	}
	if !sum.Equal(secret.Hash("abc")) {
		t.Error("equal sums are not equal")
	}
	for i := range sum {
		other := sum
		other[i] ^= 1
		if sum.Equal(other) {
			t.Errorf("sums that differ in byte %d are equal", i)
		}
	}
	if (secret.Secret{}).Reveal() != "" {
		t.Error("the zero secret reveals something")
	}
}
