package messages

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"strings"
	"sync"
	"testing"
	"unicode"

	"github.com/quotad/quotad"
)

// codes are all constants of type quotad.Code, read from the source that
// declares them, so that a new one can't be forgotten here.
func codes(t *testing.T) []quotad.Code {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "../../errors.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var all []quotad.Code
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if name, ok := spec.Type.(*ast.Ident); ok && name.Name == "Code" {
			text, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, quotad.Code(text))
		}
		return true
	})
	if len(all) < 20 {
		t.Fatalf("found %d codes only", len(all))
	}
	return all
}

func TestEveryCodeHasATextInEveryLanguage(t *testing.T) {
	t.Parallel()
	m := New()
	for _, code := range codes(t) {
		english, arabic := m.english.texts[code], m.arabic.texts[code]
		if english == "" || english != quotad.ProblemOf(&quotad.Error{Code: code}).Message {
			t.Errorf("%s: English text is %q", code, english)
		}
		if !strings.ContainsFunc(arabic, func(r rune) bool { return unicode.Is(unicode.Arabic, r) }) {
			t.Errorf("%s: Arabic text is %q", code, arabic)
		}
	}
	if m.english.Text("no_such_code", 0) != m.english.texts[quotad.CodeInternal] {
		t.Error("a code without a text does not read as an internal error")
	}
}

func TestPickFollowsAcceptLanguage(t *testing.T) {
	t.Parallel()
	m := New()
	for header, want := range map[string]string{
		"":                                "en",
		"ar":                              "ar",
		"AR":                              "ar",
		"ar-EG":                           "ar",
		"ar-SA,ar;q=0.9,en;q=0.8":         "ar",
		"en-GB,en;q=0.9":                  "en",
		"ar;q=0.5, en;q=0.9":              "en",
		"fr, ar;q=0.5":                    "ar",
		"fr":                              "en",
		"fa":                              "en",
		"ur":                              "en",
		"*":                               "en",
		"ar;q=0":                          "en",
		"ar;q=0, fr":                      "en",
		"en;q=0, ar":                      "ar",
		"xx-bogus, ar":                    "ar",
		"not a header at all":             "en",
		"\xff\xfe":                        "en",
		strings.Repeat("ar,", 400):        "en",
		strings.Repeat("-", 500):          "en",
		"ar;q=0.9, xx-bogus;q=7, en;q=.1": "ar",
	} {
		if got := m.Pick(header).Tag(); got != want {
			t.Errorf("%.40q: got %s, want %s", header, got, want)
		}
	}
}

func TestWaitsHaveTheirPluralForms(t *testing.T) {
	t.Parallel()
	m := New()
	for seconds, want := range map[int64][2]string{
		1:     {"in 1 second.", "بعد ثانية واحدة."},
		2:     {"in 2 seconds.", "بعد ثانيتين."},
		3:     {"in 3 seconds.", "بعد 3 ثوانٍ."},
		10:    {"in 10 seconds.", "بعد 10 ثوانٍ."},
		11:    {"in 11 seconds.", "بعد 11 ثانية."},
		99:    {"in 99 seconds.", "بعد 99 ثانية."},
		100:   {"in 100 seconds.", "بعد 100 ثانية."},
		102:   {"in 102 seconds.", "بعد 102 ثانية."},
		103:   {"in 103 seconds.", "بعد 103 ثوانٍ."},
		86400: {"in 86400 seconds.", "بعد 86400 ثانية."},
	} {
		for i, lang := range []*Language{m.english, m.arabic} {
			for _, code := range []quotad.Code{quotad.CodeRateLimitExceeded, quotad.CodeQuotaExceeded} {
				if got := lang.Text(code, seconds); !strings.HasPrefix(got, lang.texts[code]+" ") || !strings.HasSuffix(got, " "+want[i]) {
					t.Errorf("%d s, %s: got %q", seconds, lang.Tag(), got)
				}
			}
		}
	}
}

func TestNoWaitIsNamedWhereThereIsNone(t *testing.T) {
	t.Parallel()
	m := New()
	for _, lang := range []*Language{m.english, m.arabic} {
		if got := lang.Text(quotad.CodeRateLimitExceeded, 0); got != lang.texts[quotad.CodeRateLimitExceeded] {
			t.Errorf("got %q", got)
		}
		if got := lang.Text(quotad.CodeLimiterUnavailable, 7); strings.Contains(got, "7") {
			t.Errorf("got %q", got)
		}
	}
}

func TestTextsAreSafeForConcurrentUse(t *testing.T) {
	t.Parallel()
	m := New()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for seconds := range int64(100) {
				got := m.Pick("ar-EG").Text(quotad.CodeRateLimitExceeded, seconds+11)
				if !strings.Contains(got, strconv.FormatInt(seconds+11, 10)) {
					t.Errorf("%d: got %q", seconds+11, got)
				}
			}
		})
	}
	wg.Wait()
}
