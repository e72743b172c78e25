// Package replies says in HTTP's words what was decided: headers and problems.
//
// It is pure, so that every front door, whatever it speaks, gives the same answer
// to the same call.
//
// # Headers
//
// Values gathers them. Values.Decision are those of every metered answer, refused or
// not; names are spelt as people read them, and doors that need lower case lower them.
//
// # Units
//
// Retry-After, RateLimit and JSON carry whole seconds, rounded up;
// X-RateLimit-Reset is seconds of Unix time; X-Quotad-Delay-Ms is milliseconds.
// RateLimit and RateLimit-Policy are those of draft-ietf-httpapi-ratelimit-headers-10,
// of enforced limits only.
//
// # Errors
//
// Denial is the problem of a refused decision, Failure that of an error. Nothing
// here fails.
//
// # Example
//
//	var v replies.Values
//	v.Decision(&decision, now, true)
//	if !decision.Allowed {
//		p := replies.Denial(&decision)
//		v.Refusal(&p)
//		body = p.AppendJSON(nil)
//	}
//	v.Flush(w.Header())
package replies
