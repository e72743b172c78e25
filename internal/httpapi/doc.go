// Package httpapi is the metered front doors over HTTP.
//
// Each door decodes a request into one quota.Call, asks the Checker, and answers
// through the one header writer (headers.go) and the one problem writer
// (problems.go).
//
// # Doors
//
//   - GET /v1/ping: a metered call that answers {"pong":true}. It takes the cost
//     of its route group, or that of the query parameter "cost".
//   - POST /v1/check: the question asked outright, with X-API-Key, or with
//     Authorization: Bearer <service token> and a tenant.
//   - POST /v1/checks: up to a hundred such questions of one credential, each with a
//     result of its own: the status and the body that /v1/check would have answered.
//     An answer of 200 has no headers of a limit, as each check has its own.
//   - ANY /v1/authorize, /v1/authorize/*: forward-auth for gateways.
//   - the Gateway, a listener of its own: every path, passed on to an upstream.
//   - GET /v1/limits: what is left, charging nothing.
//   - GET /healthz, /readyz: for those who watch the process.
//
// HEAD is answered as GET is, without the body.
//
// # Credentials
//
// A call has one credential. More than one X-API-Key, a list in one, a key in
// the query, or X-API-Key beside Authorization is refused with 400. The
// exceptions are /v1/authorize and the gateway: they see the headers and the
// query of a call that is meant for somebody else, so an Authorization header or
// a query parameter there belongs to the upstream, unless it holds a credential
// of quotad's own form (qk_… or qa_…).
//
// # Forward-auth
//
// Who is among Options.TrustedProxies says the original method and URI in
// X-Forwarded-Method and X-Forwarded-Uri, or in X-Original-Method and
// X-Original-URI. For everybody else they are the request's own method and what
// follows /v1/authorize in its path, undecoded; where nothing follows, a URI in
// these headers is refused with 400, because the call that it names can't be
// judged. The query is dropped: it belongs to the original call, and a cost in it
// would be the end user's to choose.
// An answer of 200 has no body and always carries X-Quotad-Tenant,
// X-Quotad-Key-Id, X-Quotad-Tier and X-Quotad-Route-Group, empty where there is
// nothing to say, so that a gateway which copies them overwrites what its client sent.
//
// With /v1/authorize?deny_status=403, for nginx's auth_request, every refusal that
// nginx does not know becomes 403: 400, 429 and 503, with the status that was meant
// in X-Quotad-Status. 401 and 403 are passed on by nginx and stay, and so does 500,
// which is no decision: what happens then is for nginx to say. nginx passes on no
// body either, so X-Quotad-Problem has the refusal's, in ASCII. Behind a path the
// query is the client's, and says nothing of this.
//
// X-Quotad-Subject, from trusted proxies, names the tenant's end user. They must drop
// what their clients send of it: who names its own subject chooses its own counter.
//
// Preflights (OPTIONS with Origin and Access-Control-Request-Method, and without
// Upgrade) are let through, need no key and are not counted.
//
// # Gateway
//
// The upstream gets the path as it was judged, undecoded, with the query, the Host
// and the body as they came; without X-API-Key and X-Quotad-*, whatever Connection
// names and with underscores for dashes too; with X-Quotad-Tenant, -Key-Id, -Tier
// and -Route-Group, and -Subject where a trusted proxy names one. X-Forwarded-For,
// -Host and -Proto are the gateway's own, added to what a trusted proxy says.
// Websockets and other protocols to upgrade to pass; HTTP and TLS as such do not, as
// calls in them would be nobody's to judge. A preflight with a body is a call like others.
//
// Nothing is buffered but the first 8 KiB of a body while its call waits for a
// leaky bucket (gateway_queue.go): net/http notices a hang-up only while somebody
// reads. No timeout bounds a call as a whole: a client may stall for a minute in a
// body or an answer, and an upstream has GatewayOptions.UpstreamTimeout for the
// headers of its answer. A client that neither sends the rest of its body nor hangs
// up is told of an upstream that died only when it stalled for that minute.
//
// What was admitted stays charged, whatever becomes of it: the upstream may have
// done its work. An answer that breaks off breaks off for the client as well.
//
// # Limits on addresses
//
// The Checker limits client addresses before authentication. It is told of what a
// metered door refuses by itself, too (exchange.fail), so that nonsense counts like
// any other call. Preflights, health checks and what has no route are no calls.
//
// # Units
//
// Retry-After, RateLimit and JSON carry whole seconds, rounded up;
// X-RateLimit-Reset is seconds of Unix time. RateLimit and RateLimit-Policy are
// those of draft-ietf-httpapi-ratelimit-headers-10, of enforced limits only; the
// window of a quota is the length of its current period. An admitted call that a
// leaky bucket asks to wait carries X-Quotad-Delay-Ms, in milliseconds, which the
// doors without a decision in their body would else keep to themselves.
//
// # Errors
//
// Every refusal is one quotad.Problem. Its message follows Accept-Language, its
// media type is application/problem+json where Accept names that. What is not a
// *quotad.Error is a 500 that shows nothing of its text and is logged.
//
// # Failure modes
//
// Of the metered API, a body is read only by /v1/check, up to 64 KiB, and /v1/checks,
// up to 1 MiB; the other doors answer without waiting for one, and close the
// connection of a client that sent it. A panic is a 500. A header section above
// 64 KiB is refused with 431 by net/http before any of this code runs, in plain text.
// When the client hangs up first the call is counted under status 499.
//
// # Example
//
//	s := httpapi.New(checker, httpapi.Options{Logger: logger, Registerer: registry})
//	server := s.HTTPServer()
//	go server.Serve(listener)
//	…
//	s.Drain() // readiness fails; then server.Shutdown(ctx)
package httpapi
