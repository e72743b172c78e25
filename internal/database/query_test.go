package database_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/quotad/quotad/internal/database"
	"github.com/quotad/quotad/internal/database/databasetest"
	"github.com/quotad/quotad/internal/testenv"
)

func TestCallerWhoHungUpIsNotServed(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		for name, err := range map[string]error{
			"query":       ask(gone, db),
			"transaction": addTier(gone, db, "pro"),
		} {
			if !errors.Is(err, context.Canceled) {
				t.Errorf("%s: got %v, want %v", name, err, context.Canceled)
			}
		}
		if n := countTiers(t, db); n != 0 {
			t.Errorf("%d tiers, want 0", n)
		}
	})
}

// Cancelled statements cost their connections; the server then has more of them than the pool may.
func TestCallersWhoHangUpCostNoConnections(t *testing.T) {
	t.Parallel()
	url := databasetest.PostgresURL(t)
	const most = 4
	db, err := database.Open(t.Context(), url, database.Options{MaxConns: most})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	watch := databasetest.Open(t, url)
	stop := make(chan struct{})
	var watched sync.WaitGroup
	var peak int
	watched.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			var n int
			if err := watch.QueryRowContext(t.Context(),
				"SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()").Scan(&n); err != nil {
				t.Error(err)
				return
			}
			peak = max(peak, n)
		}
	})
	var all sync.WaitGroup
	for range 40 {
		all.Go(func() {
			for range 10 {
				ctx, cancel := context.WithCancel(t.Context())
				hangUp := time.AfterFunc(5*time.Millisecond, cancel)
				_ = db.QueryRowContext(ctx, "SELECT 1 FROM pg_sleep(0.01)").Scan(new(int)) // some were cancelled before they began
				hangUp.Stop()
				cancel()
			}
		})
	}
	all.Wait()
	close(stop)
	watched.Wait()
	if peak > most {
		t.Errorf("up to %d connections, want %d at most", peak, most)
	}
	if peak == 0 {
		t.Error("no connection was seen")
	}
}

func TestStatementThatBeganEndsByItself(t *testing.T) {
	t.Parallel()
	url := databasetest.PostgresURL(t)
	holder, err := database.OpenDirect(url)
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Close()
	lock, err := holder.BeginTx(t.Context(), nil) // which the statement waits for
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lock.ExecContext(t.Context(), "SELECT pg_advisory_xact_lock(1)"); err != nil {
		t.Fatal(err)
	}
	db := databasetest.Open(t, url)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	answered := make(chan error, 1)
	go func() {
		var one int
		answered <- db.QueryRowContext(ctx, "SELECT 1 FROM pg_advisory_xact_lock(1)").Scan(&one)
	}()
	eventually(t, "the statement begins", func() error {
		return lock.QueryRowContext(t.Context(), "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND database = "+
			"(SELECT oid FROM pg_database WHERE datname = current_database())").Scan(new(int))
	})
	cancel()
	time.Sleep(50 * time.Millisecond) // for what would end it
	if err := lock.Rollback(); err != nil {
		t.Fatal(err)
	}
	if err := <-answered; err != nil {
		t.Errorf("got %v, want the answer", err)
	}
}

func TestDeadlineOfTheCallerHolds(t *testing.T) {
	t.Parallel()
	db := databasetest.Postgres(t)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	began := time.Now()
	wantUnavailable(t, "query", db.QueryRowContext(ctx, "SELECT 1 FROM pg_sleep(600)").Scan(new(int)))
	if took := time.Since(began); took > time.Minute {
		t.Errorf("it took %v, want about 100ms", took)
	}
}

func TestWaitForAConnectionIsBounded(t *testing.T) {
	for engine, url := range map[string]func(testing.TB) string{
		"postgres": databasetest.PostgresURL,
		"sqlite": func(t testing.TB) string {
			url := "sqlite://" + t.TempDir() + "/quotad.db"
			migrate(t, url)
			return url
		},
	} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			db, err := database.Open(t.Context(), url(t), database.Options{MaxConns: 1, Timeout: testenv.Patience})
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			err = db.InTx(t.Context(), func(*database.Tx) error {
				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				defer cancel()
				wantUnavailable(t, "a second transaction", addTier(ctx, db, "second")) // there is no second connection
				return nil
			})
			if err != nil {
				t.Errorf("the first transaction: %v", err)
			}
			if err := addTier(t.Context(), db, "next"); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestReadsCannotWriteSQLite(t *testing.T) {
	t.Parallel()
	db := databasetest.SQLite(t)
	if err := db.QueryRowContext(t.Context(), "INSERT INTO locks (name) VALUES ('x') RETURNING name").Scan(new(string)); err == nil {
		t.Error("a query outside a transaction wrote")
	}
}

func TestTimesComeBackAsTheyWent(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		ctx := t.Context()
		berlin := time.FixedZone("UTC+1", 3600)
		times := []time.Time{ // in order
			time.Date(1970, 1, 1, 0, 0, 0, 0, time.UTC),
			time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC),
			time.Date(2026, 11, 30, 12, 0, 0, 1000, time.UTC),
			time.Date(2026, 11, 30, 12, 0, 0, 500e6, time.UTC),
			time.Date(2026, 11, 30, 12, 0, 0, 512345e3, time.UTC),
			time.Date(2026, 11, 30, 13, 0, 1, 999, berlin), // 999 ns are less than is kept
			time.Date(2026, 11, 30, 12, 0, 10, 0, time.UTC),
			time.Date(9999, 12, 31, 23, 59, 59, 999999e3, time.UTC),
		}
		err := db.InTx(ctx, func(tx *database.Tx) error {
			for i := range times {
				at := database.Time(times[len(times)-1-i])
				var back time.Time
				name := string(rune('a' + i))
				if err := tx.QueryRowContext(ctx, insertTier+" RETURNING created_at", name, 1, false, at).Scan(&back); err != nil {
					return err
				}
				if !back.Equal(at) || back.Location() != time.UTC {
					t.Errorf("RETURNING: got %v, want %v", back, at)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		rows, err := db.QueryContext(ctx, "SELECT created_at, shadow, rate_limit FROM tiers WHERE created_at >= $1 ORDER BY created_at", database.Time(times[0]))
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		for _, want := range times {
			want = want.Truncate(time.Microsecond)
			var got time.Time
			var shadow bool
			var limit *int64
			if !rows.Next() {
				t.Fatalf("no row for %v: %v", want, rows.Err())
			}
			if err := rows.Scan(&got, &shadow, &limit); err != nil {
				t.Fatal(err)
			}
			if !got.Equal(want) || got.Location() != time.UTC {
				t.Errorf("got %v, want %v in UTC", got, want)
			}
		}
		if rows.Next() {
			t.Error("more rows than times")
		}
	})
}
