package messages

import (
	"strconv"
	"strings"

	"golang.org/x/text/feature/plural"
	"golang.org/x/text/language"
	"golang.org/x/text/message"
	"golang.org/x/text/message/catalog"

	"github.com/quotad/quotad"
)

// Messages are the texts in all languages. They are safe for concurrent use.
type Messages struct {
	matcher         language.Matcher
	english, arabic *Language
}

// Language is one language and its texts.
type Language struct {
	tag     string
	texts   map[quotad.Code]string
	printer *message.Printer
}

// again is the catalog's key of the sentence that names a wait. Its arguments
// are the seconds as a number, which chooses the plural form, and as digits.
const again = "again"

// New returns the texts.
func New() *Messages {
	b := catalog.NewBuilder(catalog.Fallback(language.English))
	b.Set(language.English, again, plural.Selectf(1, "%d",
		plural.One, "Try again in %[2]s second.",
		plural.Other, "Try again in %[2]s seconds."))
	b.Set(language.Arabic, again, plural.Selectf(1, "%d",
		plural.One, "حاول مرة أخرى بعد ثانية واحدة.",
		plural.Two, "حاول مرة أخرى بعد ثانيتين.",
		plural.Few, "حاول مرة أخرى بعد %[2]s ثوانٍ.",
		plural.Many, "حاول مرة أخرى بعد %[2]s ثانية.",
		plural.Other, "حاول مرة أخرى بعد %[2]s ثانية."))
	printer := func(tag language.Tag) *message.Printer {
		return message.NewPrinter(tag, message.Catalog(b))
	}
	english := make(map[quotad.Code]string, len(arabic))
	for code := range arabic {
		english[code] = quotad.ProblemOf(&quotad.Error{Code: code}).Message
	}
	return &Messages{
		matcher: language.NewMatcher([]language.Tag{language.English, language.Arabic}),
		english: &Language{tag: "en", texts: english, printer: printer(language.English)},
		arabic:  &Language{tag: "ar", texts: arabic, printer: printer(language.Arabic)},
	}
}

// maxAcceptLanguage is the longest Accept-Language that is read, in bytes.
const maxAcceptLanguage = 512

// Pick returns the language that an Accept-Language header asks for most.
func (m *Messages) Pick(acceptLanguage string) *Language {
	switch {
	case acceptLanguage == "", len(acceptLanguage) > maxAcceptLanguage:
		return m.english
	case acceptLanguage == "en":
		return m.english
	case acceptLanguage == "ar":
		return m.arabic
	}
	tags, _, err := language.ParseAcceptLanguage(acceptLanguage)
	if err != nil {
		tags = readable(acceptLanguage)
	}
	_, i, confidence := m.matcher.Match(tags...)
	// The matcher's last resort is a language of the same script, such as Arabic
	// for Persian, with no confidence at all.
	if i == 1 && confidence > language.No {
		return m.arabic
	}
	return m.english
}

// readable are the languages of a header of which some can't be read, in the
// order of their weights as far as each can tell.
func readable(acceptLanguage string) []language.Tag {
	var kept []string
	for part := range strings.SplitSeq(acceptLanguage, ",") {
		if _, _, err := language.ParseAcceptLanguage(part); err == nil {
			kept = append(kept, part)
		}
	}
	tags, _, err := language.ParseAcceptLanguage(strings.Join(kept, ","))
	if err != nil {
		return nil
	}
	return tags
}

// Tag is the language as Content-Language names it.
func (l *Language) Tag() string { return l.tag }

// Text is what the code means. retryAfter, in seconds, is named where the code
// is a refusal by a limit or a quota and the wait is not 0.
func (l *Language) Text(code quotad.Code, retryAfter int64) string {
	text, ok := l.texts[code]
	if !ok {
		text = l.texts[quotad.CodeInternal]
	}
	if retryAfter <= 0 || (code != quotad.CodeRateLimitExceeded && code != quotad.CodeQuotaExceeded) {
		return text
	}
	return text + " " + l.printer.Sprintf(again, retryAfter, strconv.FormatInt(retryAfter, 10))
}
