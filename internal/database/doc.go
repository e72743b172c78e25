// Package database opens Postgres or SQLite behind one face: the same SQL text runs on both, transactions retry what is
// worth retrying, and every failure comes back as one of the root's kinds of error.
//
// # Addresses
//
//	postgres://user:password@host:5432/quotad      pool_max_conns and its siblings are understood
//	sqlite://quotad-data/quotad.db                 relative to the working directory
//	sqlite:///var/lib/quotad/quotad.db             absolute
//
// A SQLite file is made on first use, readable by its owner alone, in a directory that is made likewise. Through a pooler
// in transaction mode Postgres works too: no statement is ever prepared under a name unless default_query_exec_mode in
// the address says so.
//
// # One text for both engines
//
// Placeholders are $1, $2; ON CONFLICT, RETURNING and row comparison work alike. JSON is text. Times are written and read
// as time.Time, through [Time], which cuts them to the microseconds that Postgres keeps. In SQLite only a plain column,
// in SELECT or RETURNING, comes back as a time: max(created_at) is a string there, ORDER BY … LIMIT 1 is not.
// DB.QueryContext and DB.QueryRowContext only read (SQLite has other connections for that); what writes is in [DB.InTx].
// SQLite has one writer at a time, so a transaction must not open a second one inside.
//
// # Bounds
//
// Every statement and every transaction as a whole takes at most Options.Timeout, 4 s unless said otherwise, waiting for
// a connection included: a server that does not answer costs no more than that. A caller who hangs up (whose context is
// cancelled) is not served if his statement has not begun; one that has begun ends by itself, because a cancelled one
// costs its connection, and many of those cost more connections than the server has. A deadline of the caller holds.
//
// # Errors
//
//	no row                             quotad.ErrNotFound
//	unique                             quotad.ErrExists
//	foreign key, in DELETE             quotad.ErrInUse
//	foreign key, else                  quotad.ErrInvalidFields, and ErrMissingReference
//	CHECK, NOT NULL, a value too long  quotad.ErrInvalidFields
//	serialization, deadlock            retried by InTx, then quotad.ErrConflict
//	refused, frozen, closed, busy      quotad.ErrStoreUnavailable
//	cancelled by the caller            context.Canceled
//	anything else                      as the driver said it: a fault of ours
//
// The driver's own error stays behind each as its cause. After ErrStoreUnavailable from InTx the transaction may have
// been committed or not, if the connection was lost in that moment.
//
// # Example
//
//	db, err := database.Open(ctx, "sqlite://quotad-data/quotad.db", database.Options{})
//	…
//	err = db.InTx(ctx, func(tx *database.Tx) error {
//		_, err := tx.ExecContext(ctx, "UPDATE tiers SET shadow = $1, version = version + 1 WHERE name = $2", true, "pro")
//		return err
//	})
package database
