// Package idempotency keeps the first answer to each request that names itself
// with an Idempotency-Key, so that a client who saw none can send it again.
//
// A request is reserved before it is done (Begin) and its answer kept after
// (Finish). Keys belong to the actor who sent them: two actors never meet.
//
// # Units
//
// Keys are 1 to MaxKey bytes. Answers are kept for Options.Keep, 24 hours by
// default; Run deletes older ones.
//
// # Errors
//
// Another request under the same key is quotad.CodeIdempotencyMismatch, one that
// is still being answered quotad.CodeConflict.
//
// # Failures
//
//	the request fails                  Forget: it changed nothing, and may be sent again
//	the node dies before Finish        the key is taken for Options.Abandoned; then the request is done again,
//	                                   even where the node had written what it asked for
//	the database is away               quotad.CodeStoreUnavailable; the request is not begun
//
// # Example
//
//	kept, err := store.Begin(ctx, actor, key, sum)
//	switch {
//	case err != nil:
//		return err
//	case kept != nil:
//		return repeat(*kept)
//	}
//	answer := do()
//	err = store.Finish(ctx, actor, key, answer)
package idempotency
