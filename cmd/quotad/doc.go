// Command quotad answers one question for every call that a business meters: may this caller do this now?
//
//	quotad serve              run a node
//	quotad serve --demo       the same on an empty store with a tenant and a key to try things with
//	quotad migrate up         bring the schema to the version that this quotad needs (down, status)
//	quotad keys create acme   make an API key through the admin API of a running node (list, rotate, revoke)
//	quotad version
//
// # Configuration
//
// Flags over environment (QUOTAD_*; an empty variable is as good as none) over the file that --config names over
// defaults. options is the one table of all of it. Everything that is wrong is refused at once, each line naming the
// field, and the exit code is 2; passwords and tokens are never repeated.
//
// # Exit codes
//
//	0  done
//	1  failed: the reason is the last line on standard error
//	2  wrong usage or configuration
//
// # Shutdown
//
// SIGTERM or SIGINT: /readyz fails at once; calls are still taken for --shutdown-delay, each answer asking the client to
// close its connection; then calls in flight finish, what is in memory and belongs into the database is written, and the
// pools close: exit code 0. A second signal, or --shutdown-grace, cuts this short: what was left is logged and the exit
// code is 1.
package main
