// Package deploy holds configuration for gateways that ask quotad, and the tests that run each of them in the real
// gateway. It has no code: what users copy is in its folders, and README.md says what to expect of it.
//
// # Tests
//
// A world is a real quotad, a real gateway on the shipped configuration, and an API behind it that writes down what
// reaches it. What a client gets in which situation is one table, in outcomes_test.go; the table in README.md is written
// from it (go test ./deploy -run Outcomes -update).
//
// # Failure modes
//
// A gateway that is not installed is installed on Debian by root; elsewhere it runs in a container, and without Docker
// the test fails and says what to install.
package deploy
