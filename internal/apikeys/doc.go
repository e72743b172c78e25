// Package apikeys keeps API keys: it makes, finds, edits, rotates and revokes
// them, and says when they were last used.
//
// # What is stored
//
// A key is a row under its public id, with the SHA-256 of each of its secrets
// beside it. The text of a secret exists in the answer that made it and nowhere
// else. One secret at a time is current; Rotate makes a new one for the same id
// (and so for the same usage) and lets the others work for a grace period.
//
// # Life of a key
//
//	active ⇄ disabled      Update
//	  → revoked            Revoke, final
//	  → expired            reached expires_at, final
//
// A revoked or expired key can neither be edited nor rotated: make a new one.
// Expiry is reached by the clock of whoever asks, at the very instant, whatever
// is cached. A revoked key stays listed; it goes with its tenant.
//
// # Concurrency
//
// Every write locks the key's row first, so that edits of one key come one after
// the other and none is lost; ifMatch, the version that the caller has seen,
// refuses an edit of anything else. A write that changes nothing leaves the
// version alone and no event.
//
// # Units
//
// Times are UTC, cut to microseconds. Grace periods are whole seconds.
//
// # Errors
//
// quotad.ErrNotFound for a key or tenant that does not exist,
// quotad.ErrPreconditionFailed for an old ifMatch, quotad.ErrConflict for a key
// whose state forbids the write, quotad.ErrInvalidFields with all faults by
// field, quotad.ErrStoreUnavailable while the database is away.
//
// # Failure modes
//
// A write and its event are one transaction: both happen or neither. Where the
// database is lost between a Create and its answer, a key may exist whose secret
// nobody has; it can be rotated or revoked. Last uses are kept in memory for up
// to a flush's interval and lost with the process; they only ever go forward.
//
// # Example
//
//	keys := apikeys.NewStore(db, log, apikeys.Options{})
//	key, err := keys.Create(ctx, actor, "acme", quotad.KeySpec{Name: "ci"})
//	// key.Secret is shown once.
//
//	id, ok := secret.Parse(secret.APIKey, presented) // junk ends here
//	found, err := keys.Find(ctx, []string{id})
//	if k, ok := found[id]; ok && k.Admits(presented, now) && k.Key.StatusAt(now) == quotad.KeyActive {
//		touches.Note(id, now)
//	}
package apikeys
