// Package tiers keeps what decides a call's limits: tiers, tenants, and the route
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
// refused as CodeInvalidPath: ".." segments in any spelling, control characters,
// backslashes, broken percent-encoding, what is not UTF-8, a query or a fragment,
// more than 8 KiB. An encoded slash may end a segment or be part of one, and a
// ";" may begin parameters or be part of the name: such a path passes only where
// all readings of it belong to one group.
//
// # Example
//
//	m, err := tiers.NewMatcher([]quotad.RouteGroup{{RouteGroupSpec: quotad.RouteGroupSpec{
//		Name: "exports", Match: []string{"POST /v1/exports", "GET /v1/exports/{id...}"},
//	}}})
//	m.Match("GET", "/v1/Exports/17/")   // "exports", nil
//	m.Match("GET", "/v1/imports")       // "default", nil
//	m.Match("GET", "/v1/x/../exports")  // "", invalid_path
package tiers
