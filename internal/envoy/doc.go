// Package envoy is the one question over Envoy's gRPC.
//
// It serves envoy.service.ratelimit.v3.RateLimitService, which counts,
// envoy.service.auth.v3.Authorization (ext_authz), which also authenticates,
// grpc.health.v1 and reflection.
//
// # Who is believed
//
// The listener is for the operator's own Envoys. What they say of a call (its address,
// route group, subject and cost) is believed, so nobody else may reach it. A peer that
// sends a service token in the metadata, as authorization: Bearer, may also name
// tenants. Options.Trust says what one without a token may do. A token that does not
// work is refused, whatever is trusted.
//
// # Rate limit service
//
// The domain is required, and otherwise without meaning. Of a descriptor these entries
// count, each at most once; entries of other keys are passed over:
//
//	api_key, or tenant               whose call it is
//	route_group, or method and path  where it goes; neither is the group default
//	subject                          the tenant's own end user
//	remote_address                   where it came from
//
// A descriptor that names neither a caller nor a route is OK, counts nowhere, and is
// counted in quotad_grpc_unknown_descriptors_total. One that names a route and no caller
// is a call without a key, so an Envoy that sets skip_if_absent for api_key has calls
// without one refused, rather than passed without a question.
//
// Hits are units. Without hits_addend, or with 0 in the request, a call costs what its
// route group says, 1 by default. A descriptor's own hits_addend goes before the
// request's, and 0 there peeks. Negative hits and a descriptor's own limit are refused
// with InvalidArgument: what was charged can't be given back, and limits are the tier's.
//
// Of a request with several descriptors all are charged or none is; see
// quota.Checker.CheckTogether for how, and for what remains where tenants or costs
// differ. What several of them count alike, such as a quota of the tenant, one request
// counts once.
//
// There are two answers only, so everything that another door refuses, whatever its
// status, is OVER_LIMIT here: a key that does not work, too. To let it pass would let
// revoked keys pass. The body says what is wrong and has the status that was meant;
// whoever wants clients to see 401 uses ext_authz.
//
// A status shows the strictest limit. Its unit is that of a window of exactly one
// second, minute, hour, day or week, or of a quota's period; other windows are UNKNOWN.
// Numbers above 2^32-1 are told as that.
//
// Headers reach the client of an allowed call, too. Envoy adds them to those of the
// upstream, which should send none of these names.
//
// # ext_authz
//
// The call is judged by its own method and path, or by context_extensions of the route:
//
//	route_group     in place of method and path
//	cost            units, in place of the group's own
//	subject         the same for all calls of the route
//	subject_header  the name of a header that an earlier filter sets, such as jwt_authn
//
// The client's address is the source that Envoy names, or, where that is among
// Options.TrustedProxies, the right-most hop of X-Forwarded-For that is not.
//
// An admitted call goes on with X-Quotad-Tenant, -Key-Id, -Tier, -Route-Group and
// -Subject as far as there is something to say, without the client's own headers of that
// prefix and without X-API-Key, also where they are written with underscores. Preflights
// pass and count nowhere. A leaky bucket's delay is told in X-Quotad-Delay-Ms, to the
// upstream, too, which may wait: nobody else does.
//
// # Errors
//
// An error of gRPC makes Envoy do as its failure mode says, by default to let the call
// pass. So nothing that a client sends ends in one, be it no UTF-8 (codec.go):
//
//	InvalidArgument   what only a wrong configuration of Envoy's sends
//	Unauthenticated   the service token is missing or does not work
//	PermissionDenied  a descriptor names a tenant, and the peer may not
//	Unavailable       a store is away, and no policy of quotad's answers (RateLimitService)
//	Internal          a defect of ours
//
// ext_authz answers 503 where a store is away: there the contract has a status for it.
//
// # Failure modes
//
// A panic is Internal and ends nothing else. Messages above 1 MiB are refused by gRPC.
// Drain makes the health service say NOT_SERVING, while calls are still answered;
// Shutdown lets those in flight finish.
//
// # Example
//
//	s := envoy.New(checker, envoy.Options{Logger: logger, Registerer: registry})
//	go s.Serve(listener)
//	…
//	s.Drain()
//	cut := s.Shutdown(ctx)
package envoy
