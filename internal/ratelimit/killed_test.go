package ratelimit

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/testenv"
)

// victim is the variable that makes this test binary a process that takes until it is
// killed; its value is the URL of a Redis.
const victim = "RATELIMIT_TEST_VICTIM_OF"

// victimCallers call at a time, of one victim.
const victimCallers = 32

// victimCharges are counters of every algorithm, charged by all victims.
func victimCharges() (charges []Charge) {
	for _, a := range everyAlgorithmAndQuotas {
		for i := range 5 {
			charges = append(charges, Charge{Counter: CounterOf("victim", string(a), fmt.Sprint(i)), Limit: yearly(a, 100_000)})
		}
	}
	return charges
}

// TestVictim is no test but the process that TestKilledWhileTaking kills. It tells each
// charge that it was told of, as a line with the number of the counter and the cost.
func TestVictim(t *testing.T) {
	address := os.Getenv(victim)
	if address == "" {
		return
	}
	client, err := Connect(address, ConnectOptions{Timeout: patience})
	if err != nil {
		t.Fatal(err)
	}
	store := NewRedis(client, RedisOptions{Timeout: patience})
	charges := victimCharges()
	inParallel(victimCallers, func(int) bool {
		for {
			n, cost := rand.IntN(len(charges)), 1+rand.Int64N(3)
			out, err := store.Take(context.Background(), Call{Cost: cost, Charges: charges[n : n+1]}, make([]Status, 1))
			if err != nil || !out.Allowed {
				t.Errorf("%+v %v", out, err)
				return false
			}
			fmt.Fprintf(os.Stdout, "took %d %d\n", n, cost)
		}
	})
}

// TestKilledWhileTaking kills a process in the midst of its calls, twenty times. What it
// was told of is charged, and little more; every counter can be read, and expires.
func TestKilledWhileTaking(t *testing.T) {
	t.Parallel()
	own := newOwnRedis(t)
	store := NewRedis(own.client, RedisOptions{Timeout: patience})
	charges := victimCharges()
	var mu sync.Mutex
	told := make([]int64, len(charges))
	const kills = 20
	inParallel(4, func(int) bool {
		for range kills / 4 {
			if err := killOnce(t.Context(), own.server, func(n int, cost int64) {
				mu.Lock()
				defer mu.Unlock()
				told[n] += cost
			}); err != nil {
				t.Errorf("a victim: %v", err)
			}
		}
		return true
	})
	all, kept := int64(0), values(t, own.client, "q:", 2*long)
	for n, c := range charges {
		used := usedOf(t, store, 0, c)
		if used < told[n] {
			t.Errorf("%s: %d charged, %d told", c.Limit.Algorithm, used, told[n])
		}
		all += used - told[n]
		k, most := key("q:", 0, c.Counter), 2*c.Limit.Window
		if c.Limit.Algorithm == quotad.CalendarQuota {
			most = time.Until(time.UnixMilli(c.Limit.Until+periodMoves)) + patience
		}
		if ttl, err := own.client.PTTL(t.Context(), k).Result(); err != nil || ttl <= 0 || ttl > most {
			t.Errorf("%s: TTL %v %v, want one of at most %v", c.Limit.Algorithm, ttl, err, most)
		}
		delete(kept, k)
	}
	if len(kept) > 0 {
		t.Errorf("keys that are no counters: %v", kept)
	}
	if most := int64(kills * victimCallers * 3); all > most {
		t.Errorf("%d units charged beside those told, want at most the %d under way", all, most)
	}
}

// killOnce starts a victim, kills it once it has taken a while, and passes on what it told.
func killOnce(ctx context.Context, server *testenv.Server, took func(n int, cost int64)) error {
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestVictim$", "-test.timeout="+(2*patience).String())
	cmd.Env = append(os.Environ(), victim+"="+server.URL())
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	lines, killAt := 0, 100+rand.IntN(300)
	var rest []string
	for s := bufio.NewScanner(out); s.Scan(); {
		var n int
		var cost int64
		if _, err := fmt.Sscanf(s.Text(), "took %d %d", &n, &cost); err != nil {
			rest = append(rest, s.Text()) // the last may be cut short
			continue
		}
		took(n, cost)
		if lines++; lines == killAt {
			if err := cmd.Process.Kill(); err != nil {
				return err
			}
		}
	}
	_ = cmd.Wait() // killed
	if lines < killAt {
		return fmt.Errorf("it ended by itself: %s", strings.Join(rest, "\n"))
	}
	return nil
}
