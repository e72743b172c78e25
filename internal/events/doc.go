// Package events keeps the one append-only table of what was written, and tells every node of it.
//
// Each successful write calls Record in its own transaction: the row, the change and the notification are committed
// together or not at all. Readers of the table are the audit log (Events) and the nodes' caches (Subscribe).
//
// # Delivery
//
// The node that made a change hears of it when the transaction has been committed, before InTx returns. Other nodes hear
// of it by Postgres's LISTEN/NOTIFY, or, where several processes share one SQLite file, by looking for new rows twice a
// second; [Log.Run] does either. A [Notice] says only what changed, never how, and may come more than once: whoever
// hears it forgets what he knew.
//
// Nothing is stored for a node that does not listen. So, whenever Run begins to listen, at its start and after each
// interruption, it calls every resync function: what a subscriber knew before may be old. While Connected is false,
// notices of other nodes do not arrive, and whoever caches relies on his time to live.
//
// # Failures
//
//	listening connection ends            noticed at once, another one within 2 s of the server's return
//	server or network silent             noticed within about 3 s: an idle connection is pinged every 2 s, for 1 s
//	address is a transaction pooler's    noticed at the start: a probe does not arrive; Connected stays false
//	value with a secret                  Record refuses it, and with it the write
//
// # Example
//
//	log := events.NewLog(db, events.Options{})
//	cancel := log.Subscribe(func(n events.Notice) { cache.Forget(n.Resource, n.ID) }, cache.Flush)
//	defer cancel()
//	go log.Run(ctx)
//	err := db.InTx(ctx, func(tx *database.Tx) error {
//		…
//		return log.Record(ctx, tx, by, "tier.updated", quotad.ResourceTier, "pro", "", 4, before, after)
//	})
package events
