package ratelimit

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quotad/quotad/internal/testenv"
)

// TestNodesWithClocksApart: two nodes share a Redis; the clock of the second says that
// it is the year 2000. Together they admit what one would, and say the same of it.
func TestNodesWithClocksApart(t *testing.T) {
	url, prefix := testenv.Redis(t)
	for _, a := range everyAlgorithmAndQuotas {
		c := Call{Cost: 1, Charges: []Charge{{Counter: CounterOf("clocks", string(a)), Limit: yearly(a, 4)}}}
		ask := func(store *Redis, calls int) (admitted int, out Outcome, status []Status) {
			status = make([]Status, 1)
			for range calls {
				var err error
				if out, err = store.Take(context.Background(), c, status); err != nil {
					t.Fatalf("%s: %v", a, err)
				}
				if out.Allowed {
					admitted++
				}
			}
			return admitted, out, status
		}
		node := func() (*Redis, func() error) {
			client, err := Connect(url, ConnectOptions{Timeout: patience})
			if err != nil {
				t.Fatal(err)
			}
			return NewRedis(client, RedisOptions{Prefix: prefix, Timeout: patience}), client.Close
		}
		one, closeOne := node()
		if n, _, _ := ask(one, 3); n != 3 {
			t.Errorf("%s: %d of the first 3 admitted", a, n)
		}
		var there Outcome
		var theirs []Status
		synctest.Test(t, func(t *testing.T) {
			if time.Now().Year() != 2000 {
				t.Fatalf("the clock says %v", time.Now())
			}
			other, closeOther := node()
			var n int
			if n, there, theirs = ask(other, 2); n != 1 {
				t.Errorf("%s: %d of 2 admitted where 1 is left", a, n)
			}
			if err := closeOther(); err != nil {
				t.Error(err)
			}
		})
		n, here, ours := ask(one, 5)
		if n != 0 {
			t.Errorf("%s: %d admitted beyond the limit", a, n)
		}
		if d := here.Now.Sub(there.Now); d < 0 || d > time.Hour {
			t.Errorf("%s: the nodes decide %v apart", a, d)
		}
		for what, d := range map[string]time.Duration{"resets": theirs[0].Reset - ours[0].Reset, "waits": theirs[0].Retry - ours[0].Retry} {
			if d < 0 || d > time.Hour {
				t.Errorf("%s: the %s differ by %v", a, what, d)
			}
		}
		if err := closeOne(); err != nil {
			t.Error(err)
		}
	}
}
