// Package messages says in the caller's language what an error code means.
//
// The languages are English and Arabic; whoever asks for another one reads
// English. The English texts are those of the root package (quotad.ProblemOf);
// the Arabic ones stand here, one for each code.
//
// # Units
//
// Waits are whole seconds and are written in the digits 0 to 9 in both
// languages, so that a message shows the same number as Retry-After. Their
// plural forms are CLDR's: Arabic tells one, two, few (3 to 10), many (11 to 99)
// and other apart.
//
// # Errors
//
// There are none: a language that can't be read is English, and a code without
// a text reads as quotad.CodeInternal does.
//
// # Example
//
//	texts := messages.New()
//	lang := texts.Pick("ar-EG, en;q=0.5")
//	lang.Tag()                                      // "ar"
//	lang.Text(quotad.CodeRateLimitExceeded, 2)      // "… حاول مرة أخرى بعد ثانيتين."
package messages
