// Package testenv gives tests their surroundings: real Postgres and Redis servers, a Clock that they set, and the
// Patience of a busy machine. Test-only: nothing that ships imports it.
//
// A test asks for what it needs and owns it alone, so every test may run in parallel:
//
//	func TestTiers(t *testing.T) {
//		t.Parallel()
//		db, err := sql.Open("pgx", testenv.Postgres(t)) // a fresh, empty database on a shared server
//		...
//		url, prefix := testenv.Redis(t)                 // a shared server, keys under a prefix of this test
//		...
//		own := testenv.OwnRedis(t)                      // a server of its own, to freeze and to kill
//		own.Freeze()
//
// # Where the shared servers come from
//
// Each of the two is found on its own, the first way that works, and the choice is said on standard error:
//
//  1. QUOTAD_TEST_DATABASE_URL, QUOTAD_TEST_REDIS_URL: a server that somebody else runs. The Postgres user must be
//     allowed to create databases. What a test made is dropped again, except templates (quotad_template_…).
//  2. Docker, through testcontainers-go, when a daemon answers and has the images of docker-compose.yml or can pull them.
//  3. Server programs of this machine, on temporary directories and free ports of 127.0.0.1. Missing ones are
//     installed on Debian by root; the packages' own services are neither started nor used.
//
// QUOTAD_TEST_SERVERS=docker or =local leaves one way only. QUOTAD_TEST_REDIS_PROGRAM=valkey-server, or the path of any
// program that takes the arguments of redis-server, leaves way 3 for Redis, with that program. Own servers prefer way
// 3, because a process starts faster than a container. The command withservers finds both shared servers once for a
// whole run of many packages.
//
// Other programs, such as gateways, run as processes of this machine, which installs them where it can, and else in
// containers (OwnProgram).
//
// # Failures
//
// A missing server fails the test with a message that says what to do; nothing is ever skipped. Servers end with the
// process that started them, even when it is killed: a keeper process waits for that and clears up.
package testenv
