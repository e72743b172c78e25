package database_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/database"
	"github.com/quotad/quotad/internal/database/databasetest"
)

func TestTransactionIsAllOrNothing(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		ctx := t.Context()
		var told []string
		write := func(name string, outcome error) error {
			return db.InTx(ctx, func(tx *database.Tx) error {
				tx.AfterCommit(func() {
					told = append(told, fmt.Sprintf("%s: %d tiers", name, countTiers(t, db))) // committed by now
				})
				tx.AfterCommit(func() { told = append(told, name+" again") })
				if _, err := tx.ExecContext(ctx, insertTier, name, 1, false, noon); err != nil {
					return err
				}
				var n int
				if err := tx.QueryRowContext(ctx, "SELECT count(*) FROM tiers WHERE name = $1", name).Scan(&n); err != nil || n != 1 {
					t.Errorf("inside the transaction: %d rows and %v, want 1", n, err)
				}
				return outcome
			})
		}
		refused := errors.New("no")
		if err := write("rolled-back", refused); !errors.Is(err, refused) {
			t.Errorf("got %v, want the function's own error", err)
		}
		if err := write("committed", nil); err != nil {
			t.Fatal(err)
		}
		if err := write("committed", nil); !errors.Is(err, quotad.ErrExists) {
			t.Errorf("got %v, want %v", err, quotad.ErrExists)
		}
		if diff := cmp.Diff([]string{"committed: 1 tiers", "committed again"}, told); diff != "" {
			t.Errorf("told after commits (-want +got):\n%s", diff)
		}
	})
}

func TestTransactionOfAPanicIsRolledBack(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		func() {
			defer func() {
				if p := recover(); p != "out of order" {
					t.Errorf("the panic became %v", p)
				}
			}()
			_ = db.InTx(t.Context(), func(tx *database.Tx) error {
				tx.AfterCommit(func() { t.Error("told of a commit") })
				if _, err := tx.ExecContext(t.Context(), insertTier, "pro", 1, false, noon); err != nil {
					t.Error(err)
				}
				panic("out of order")
			})
		}()
		if n := countTiers(t, db); n != 0 {
			t.Errorf("%d tiers, want 0", n)
		}
		mustAddTier(t, db, "next") // the connection came back
	})
}

func TestCommitThatFailsTellsNobody(t *testing.T) {
	t.Parallel()
	db := databasetest.Postgres(t)
	ctx := t.Context()
	err := db.InTx(ctx, func(tx *database.Tx) error {
		tx.AfterCommit(func() { t.Error("told of a commit") })
		if _, err := tx.ExecContext(ctx, "CREATE TABLE late (x int UNIQUE DEFERRABLE INITIALLY DEFERRED)"); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, "INSERT INTO late VALUES (1), (1)") // refused at commit
		return err
	})
	if !errors.Is(err, quotad.ErrExists) {
		t.Errorf("got %v, want %v", err, quotad.ErrExists)
	}
}

// conflict runs two serializable transactions that each read what the other one writes, at the same moment.
func conflict(ctx context.Context, db *database.DB, tries, told *atomic.Int32) error {
	var together sync.WaitGroup
	together.Add(2)
	var first [2]sync.Once
	failed := make([]error, 2)
	var both sync.WaitGroup
	for i := range 2 {
		both.Go(func() {
			failed[i] = db.InTx(ctx, func(tx *database.Tx) error {
				tries.Add(1)
				tx.AfterCommit(func() { told.Add(1) })
				if _, err := tx.ExecContext(ctx, "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE"); err != nil {
					return err
				}
				var n int
				if err := tx.QueryRowContext(ctx, "SELECT count(*) FROM tiers").Scan(&n); err != nil {
					return err
				}
				first[i].Do(func() { together.Done(); together.Wait() })
				_, err := tx.ExecContext(ctx, insertTier, fmt.Sprintf("tier-%d-of-%d", i, n), 1, false, noon)
				return err
			})
		})
	}
	both.Wait()
	return errors.Join(failed...)
}

func TestSerializationFailureIsRetried(t *testing.T) {
	t.Parallel()
	db := databasetest.Postgres(t)
	var tries, told atomic.Int32
	if err := conflict(t.Context(), db, &tries, &told); err != nil {
		t.Fatal(err)
	}
	if tries.Load() < 3 || told.Load() != 2 {
		t.Errorf("%d tries and %d commits told, want at least 3 and 2", tries.Load(), told.Load())
	}
	// The loser read again what the winner had written.
	if n := countTiers(t, db); n != 2 {
		t.Errorf("%d tiers, want 2", n)
	}
}

func TestDeadlockIsRetried(t *testing.T) {
	t.Parallel()
	db := databasetest.Postgres(t)
	ctx := t.Context()
	names := []string{"a", "b"}
	for _, name := range names {
		mustAddTier(t, db, name)
	}
	var together, both sync.WaitGroup
	together.Add(2)
	var tries atomic.Int32
	for i := range 2 {
		both.Go(func() {
			var first sync.Once
			err := db.InTx(ctx, func(tx *database.Tx) error {
				tries.Add(1)
				for _, name := range []string{names[i], names[1-i]} {
					if _, err := tx.ExecContext(ctx, "UPDATE tiers SET version = version + 1 WHERE name = $1", name); err != nil {
						return err
					}
					first.Do(func() { together.Done(); together.Wait() })
				}
				return nil
			})
			if err != nil {
				t.Errorf("transaction %d: %v", i, err)
			}
		})
	}
	both.Wait()
	if tries.Load() < 3 {
		t.Errorf("%d tries, want at least 3: there was no deadlock", tries.Load())
	}
	var sum int
	if err := db.QueryRowContext(ctx, "SELECT sum(version) FROM tiers").Scan(&sum); err != nil || sum != 6 {
		t.Errorf("versions add up to %d (%v), want 6: each transaction once", sum, err)
	}
}

func TestRetriesEnd(t *testing.T) {
	t.Parallel()
	db := databasetest.Postgres(t)
	ctx := t.Context()
	tries := 0
	err := db.InTx(ctx, func(tx *database.Tx) error {
		tries++
		_, err := tx.ExecContext(ctx, "DO $$ BEGIN RAISE EXCEPTION 'always' USING ERRCODE = 'serialization_failure'; END $$")
		return err
	})
	if !errors.Is(err, quotad.ErrConflict) {
		t.Errorf("got %v, want %v", err, quotad.ErrConflict)
	}
	if tries < 2 || tries > 10 {
		t.Errorf("%d tries, want 2 to 10", tries)
	}
	tries = 0
	mine := db.InTx(ctx, func(tx *database.Tx) error { tries++; return quotad.ErrConflict })
	if !errors.Is(mine, quotad.ErrConflict) || tries != 1 {
		t.Errorf("a conflict of the function's own: %v after %d tries, want 1", mine, tries)
	}
}

func TestManyWritersAtOnce(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) { manyWriters(t, db, db) })
}

func TestManyWritersInTwoProcessesOnOneFile(t *testing.T) {
	t.Parallel()
	url := "sqlite://" + t.TempDir() + "/quotad.db"
	migrate(t, url)
	manyWriters(t, databasetest.Open(t, url), databasetest.Open(t, url))
}

// manyWriters has 50 writers count one row up at once, half of them through each database, while others read.
func manyWriters(t *testing.T, dbs ...*database.DB) {
	ctx := t.Context()
	const writers, each = 50, 4
	mustAddTier(t, dbs[0], "pro")
	var all sync.WaitGroup
	for i := range writers {
		db := dbs[i%len(dbs)]
		all.Go(func() {
			for range each {
				write := func(tx *database.Tx) error {
					// In SQLite, reading first is what keeps a transaction that is not a writer's from becoming one.
					if err := tx.QueryRowContext(ctx, "SELECT count(*) FROM tiers").Scan(new(int)); err != nil {
						return err
					}
					var version int64
					if err := tx.QueryRowContext(ctx, "UPDATE tiers SET version = version + 1 WHERE name = $1 RETURNING version", "pro").Scan(&version); err != nil {
						return err
					}
					_, err := tx.ExecContext(ctx, insertTier, fmt.Sprintf("v%d", version), 1, false, noon)
					return err
				}
				err := db.InTx(ctx, write)
				for len(dbs) > 1 && database.Busy(err) {
					// Two processes are in no order: on a busy machine one can have the file again and again, for longer
					// than a statement of the other waits.
					err = db.InTx(ctx, write)
				}
				if err != nil {
					t.Errorf("writer %d: %v", i, err)
				}
			}
		})
		all.Go(func() {
			if err := db.QueryRowContext(ctx, "SELECT count(*) FROM tiers").Scan(new(int)); err != nil {
				t.Errorf("reader %d: %v", i, err)
			}
		})
	}
	all.Wait()
	var version int64
	if err := dbs[0].QueryRowContext(ctx, "SELECT version FROM tiers WHERE name = 'pro'").Scan(&version); err != nil {
		t.Fatal(err)
	}
	if want := int64(1 + writers*each); version != want || countTiers(t, dbs[0]) != int(want) {
		t.Errorf("version %d with %d tiers, want %d of both", version, countTiers(t, dbs[0]), want)
	}
}

func TestLockLetsOneDecide(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		ctx := t.Context()
		var all sync.WaitGroup
		for i := range 10 {
			all.Go(func() {
				// Each may add a tier only if there is none yet: without the lock several would see none.
				err := db.InTx(ctx, func(tx *database.Tx) error {
					if err := tx.Lock(ctx, "route_groups"); err != nil {
						return err
					}
					var n int
					if err := tx.QueryRowContext(ctx, "SELECT count(*) FROM tiers").Scan(&n); err != nil || n > 0 {
						return err
					}
					_, err := tx.ExecContext(ctx, insertTier, fmt.Sprintf("tier-%d", i), 1, false, noon)
					return err
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if n := countTiers(t, db); n != 1 {
			t.Errorf("%d tiers, want 1", n)
		}
		if err := db.InTx(ctx, func(tx *database.Tx) error { return tx.Lock(ctx, "no-such") }); err == nil {
			t.Error("a lock that does not exist was taken")
		}
	})
}

func TestTransactionAsAWholeIsBounded(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		began := time.Now()
		err := db.InTx(ctx, func(tx *database.Tx) error {
			tx.AfterCommit(func() { t.Error("told of a commit") })
			for {
				if _, err := tx.ExecContext(ctx, "UPDATE tiers SET version = version + 1"); err != nil {
					return err
				}
			}
		})
		wantUnavailable(t, "a transaction beyond its bound", err)
		if took := time.Since(began); took > time.Minute {
			t.Errorf("it took %v, want about 300ms", took)
		}
		mustAddTier(t, db, "next")
	})
}
