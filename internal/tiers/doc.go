// Package tiers keeps what decides a call's limits: tiers, tenants, and route
// groups with the Matcher that finds a call's group.
//
// # Matching
//
// A route group's patterns are those of net/http's ServeMux without a host; the
// most specific one wins, and patterns of which neither is the more specific are
// refused when they are written. They are compared with the cleaned path, without
// regard to case: a path is decoded once, empty and "." segments and a trailing
// slash are dropped, and letters are the same where strings.EqualFold says so.
// Because cleaned paths have no trailing slash,
//
//   - a subtree pattern ("/v1/exports/", "/v1/exports/{id...}") also matches its
//     own root, "/v1/exports";
//   - "/v1/exports/{$}" is "/v1/exports";
//   - a pattern that no cleaned path can match is refused.
//
// Methods are compared without regard to case as well, and HEAD counts as GET.
//
// A path that servers read in different ways is a way around a limit, so it is
// refused as quotad.CodeInvalidPath: ".." segments in any spelling, control characters,
// backslashes, broken percent-encoding, what is not UTF-8, a query or a fragment,
// more than 8 KiB. An encoded slash may end a segment or be part of one, and a
// ";" may begin parameters or be part of the name: such a path passes only where
// all readings of it belong to one group. What follows two slashes at the beginning
// may be a host ("//host/v1/exports", as in Node's new URL(req.url, base)): such a
// path passes unless it then belongs to another group that has a name.
//
//	m, err := tiers.NewMatcher([]quotad.RouteGroup{{RouteGroupSpec: quotad.RouteGroupSpec{
//		Name: "exports", Match: []string{"POST /v1/exports", "GET /v1/exports/{id...}"},
//	}}})
//	m.Match("GET", "/v1/Exports/17/")   // "exports", nil
//	m.Match("GET", "/v1/imports")       // "default", nil
//	m.Match("GET", "/v1/x/../exports")  // "", invalid_path
//
// # Storing
//
// A write locks its row, so edits of different fields both survive, and an edit
// for an old version (If-Match) is quotad.ErrPreconditionFailed; it leaves one
// event, in its own transaction, and an edit that changes nothing leaves none.
// Route groups are written one at a time on all nodes together, because whether
// patterns conflict is decided over all of them. Versions start at 1 and grow by
// one with each write. Times are UTC in whole microseconds.
//
// A group or tier that a row refers to is kept by the schema's foreign keys:
// deleting it is quotad.ErrInUse, referring to one that has gone is a fault of
// the field. A tenant goes with its revoked keys, and stays while it has others,
// expired ones included. The group "default" is always there.
//
// # Errors
//
//	a spec's faults, all at once           quotad.ErrInvalidFields
//	a name that is taken                   quotad.ErrExists
//	no such thing, or no possible name     quotad.ErrNotFound
//	deleted while in use                   quotad.ErrInUse
//	If-Match names an old version          quotad.ErrPreconditionFailed
//	a page or cursor that can't be         quotad.CodeInvalidRequest
//	the database is away                   quotad.ErrStoreUnavailable
//
//	tier, err := store.UpdateTier(ctx, actor, "pro", nil, func(t *quotad.TierSpec) error {
//		t.RateLimit = quotad.Units(2000)
//		return nil
//	})
package tiers
