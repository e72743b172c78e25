// Package admintokens keeps the tokens of the admin API and of services.
//
// # What is stored
//
// Of each token its SHA-256, under the id that stands in its text. The text is
// in the answer that created it and nowhere else.
//
// # The bootstrap token
//
// One token, of id "bootstrap" and role owner, is how the first owner comes in.
// Its text is what the operator gave (QUOTAD_ADMIN_TOKEN, any form), or else is
// minted when there is no token at all, to be printed once. A given text that
// differs from the stored one takes its place, and the old one stops working:
// that is also the way back in when every owner token is lost. A text that is
// no longer given goes on working until the token is deleted or replaced.
//
// # Owners
//
// The last owner token that has not expired can't be deleted: quotad.ErrInUse.
// Deletions take one lock in the database for that, so that two at once can't
// each count on the token that the other one deletes.
//
// # Errors
//
// quotad.ErrNotFound for a token that does not exist,
// quotad.ErrPreconditionFailed for an old ifMatch, quotad.ErrInvalidFields with
// all faults by field, quotad.ErrStoreUnavailable while the database is away.
//
// # Failure modes
//
// A write and its event are one transaction: both happen or neither. Where the
// database is lost between the commit of a minted token and its answer, nobody
// has its text: give one.
//
// # Units
//
// Times are UTC, cut to microseconds.
//
// # Example
//
//	tokens := admintokens.NewStore(db, log, admintokens.Options{})
//	minted, err := tokens.EnsureBootstrap(ctx, os.Getenv("QUOTAD_ADMIN_TOKEN"))
//	if minted != "" {
//		fmt.Println("admin token:", minted)
//	}
//
//	found, err := tokens.Find(ctx, presented)
//	if err == nil && found.Admits(presented, now) {
//		// found.Token.Role says what may be done
//	}
package admintokens
