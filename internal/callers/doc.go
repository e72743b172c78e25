// Package callers reads who makes a call: its one credential, and the address that it
// comes from.
//
// It is pure, so that every front door, whatever it speaks, takes the same caller
// from the same headers. Header values are given as lines, in the order in which they
// came.
//
// # Credentials
//
// A call has one API key. Two of them, or a list in one, are ambiguous, whichever is
// valid: else guesses could ride along with a good key.
//
// # Addresses
//
// The client is the peer, or, where the peer is a trusted proxy, the right-most hop of
// X-Forwarded-For that is none.
//
// # Errors
//
// A *quotad.Error of ambiguous_credentials. An address that can't be told is the zero
// netip.Addr, which is no error.
//
// # Example
//
//	key, err := callers.Forwarded(h["X-Api-Key"], h["Authorization"], query)
//	client := proxies.Client(peer, h["X-Forwarded-For"])
package callers
