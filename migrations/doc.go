// Package migrations brings the schema of a database to the version that this build needs.
//
// Each engine has its own numbered pairs of files, NNNN_name.up.sql and NNNN_name.down.sql, the same versions in both;
// golang-migrate runs them and keeps the version, with a mark "dirty" while a file is at work, in schema_migrations.
// Each file runs as one transaction and, inside it, enters or removes its version in schema_history: whatever becomes of
// the process, that table says what the schema really holds. A file that cannot run in a transaction (CREATE INDEX
// CONCURRENTLY) stands alone, tolerates being run again, and is entered by the file after it.
//
// # Many at once
//
// Whoever changes the schema holds a lock for as long: of all nodes and commands that start together one works and the
// others wait, then find nothing left to do. Waiting ends with the context; work that has begun is finished, because
// a file that is cut off leaves the mark. Postgres must be reached directly, not through a pooler in transaction mode:
// the lock belongs to the session.
//
// # Failures
//
// A file that fails, or whose node is killed, leaves nothing of itself behind but the mark (in SQLite not even that
// when the node was killed; Postgres from version 14 on notices the end of a node within a second, older ones finish
// the file first, and the next node waits for that). From then on Up fails with *DirtyError, which names the version and
// the command to run; the version is never rewritten without being asked to. Repair is that command: under the lock it sets the version to
// what schema_history says. A schema newer than this build fails with *NewerError; nothing is ever downgraded by itself.
//
// # Example
//
//	if err := migrations.Up(ctx, "postgres://localhost/quotad"); err != nil {
//		return err // not ready to serve
//	}
package migrations
