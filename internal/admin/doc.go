// Package admin is the admin REST API: what operators say of tiers, tenants,
// route groups, keys and admin tokens, and what was done to them.
//
// # Ways in
//
// All routes stand in routes.go, each with the least role that may call it;
// openapi.yaml describes them, and the metered API beside them. The tests hold
// every answer they get against it.
//
//	viewer     reads all but admin tokens
//	operator   writes too
//	owner      manages admin tokens as well
//	service    nothing here; it speaks for tenants on the metered API
//
// # Bodies
//
// A body is held against the Go type that it is to fill (strict.go), and all its
// faults are reported at once: first of its shape and of what it says by itself;
// the store adds what only it can know (a tier that does not exist, a pattern
// that conflicts) to bodies whose shape is right. A PATCH is a JSON merge patch
// (patch.go), applied in the store's transaction to what is stored then.
//
// # Edits that meet
//
// Each resource has a strong entity tag of its creation time and version. With
// If-Match a write goes ahead on that version only, which the database decides;
// without it edits of different fields all last.
//
// # Units
//
// Bodies have at most 64 KiB, windows and grace are in seconds, times RFC 3339 in
// UTC. A key is revoked by DELETE, which answers 204 and leaves it readable.
//
// # Errors
//
// They have the shape of quotad.Problem; statuses follow quotad.Code.Status.
// Errors that are not a *quotad.Error are 500 and show nothing of themselves.
//
// # Failures
//
//	the database is away, or silent    503 store_unavailable within Options.Timeout; never 401
//	too many wrong tokens from one     429 for every token from there, so that a right guess among
//	address                            them does not stand out; 10 at once and a minute by default
//	the client hangs up                the write is rolled back, or done as a whole
//	a handler panics                   500, and the stack in the log
//
// # Example
//
//	server := admin.New(admin.Stores{Tiers: tiers, Keys: keys, …}, admin.Options{Logger: logger, Metrics: promhttp.Handler()})
//	listener := server.HTTPServer()
//	listener.Addr = "127.0.0.1:8081"
//	err := listener.ListenAndServe()
package admin
