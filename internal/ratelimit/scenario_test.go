package ratelimit

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/quotad/quotad"
)

// TestScenarios runs every file of testdata/scenarios over memory and Redis. A
// file is a list of lines:
//
//	limit api algorithm=token_bucket rate=1/1s burst=3 [shadow]
//	quota day units=10 from=0s until=1d
//	at 0s take cost=2 -> allow remaining=1 reset=2s
//	at 0s take cost=2 -> deny  remaining=1 retry=1s
//	at 1s take api,day -> allow api.remaining=2 day.remaining=9
//	at 1s take cost=11 -> error cost_exceeds_limit
//	at 1s times=50 take -> deny
//	at 1d take day -> period
//
// A limit line with a name that is already there edits that limit. Times are
// since a moment at which windows of a minute, an hour and a day begin. "#" begins
// a comment.
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/scenarios/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			eachStore(t, func(t *testing.T, store Store, clock *clock) {
				s := scenario{t: t, store: store, clock: clock, limits: map[string]Charge{}}
				lines := bufio.NewScanner(strings.NewReader(string(text)))
				for n := 1; lines.Scan(); n++ {
					if line, _, _ := strings.Cut(lines.Text(), "#"); strings.TrimSpace(line) != "" {
						s.where = fmt.Sprintf("%s:%d: %s", filepath.Base(file), n, strings.TrimSpace(line))
						s.run(strings.Fields(line))
					}
				}
			})
		})
	}
}

type scenario struct {
	t      *testing.T
	store  Store
	clock  *clock
	limits map[string]Charge
	order  []string
	where  string
}

func (s *scenario) fail(format string, args ...any) {
	s.t.Helper()
	s.t.Fatalf("%s\n\t%s", s.where, fmt.Sprintf(format, args...))
}

func (s *scenario) run(words []string) {
	s.t.Helper()
	switch words[0] {
	case "limit":
		s.limit(words[1], quotad.SlidingWindowCounter, words[2:])
	case "quota":
		s.limit(words[1], quotad.CalendarQuota, words[2:])
	case "at":
		s.clock.ms.Store(epoch + s.duration(words[1]).Milliseconds())
		s.take(words[2:])
	default:
		s.fail("unknown word %q", words[0])
	}
}

func (s *scenario) limit(name string, algorithm quotad.Algorithm, words []string) {
	c := Charge{Counter: CounterOf(name), Limit: Limit{Algorithm: algorithm}}
	for _, w := range words {
		k, v, _ := strings.Cut(w, "=")
		switch k {
		case "algorithm":
			c.Limit.Algorithm = quotad.Algorithm(v)
		case "rate":
			units, window, _ := strings.Cut(v, "/")
			c.Limit.Units, c.Limit.Window = s.number(units), s.duration(window)
		case "burst":
			c.Limit.Burst = s.number(v)
		case "delay":
			c.Limit.MaxDelay = s.duration(v)
		case "units":
			c.Limit.Units = s.number(v)
		case "from":
			c.Limit.From = epoch + s.duration(v).Milliseconds()
		case "until":
			c.Limit.Until = epoch + s.duration(v).Milliseconds()
		case "shadow":
			c.Shadow = true
		default:
			s.fail("unknown limit word %q", w)
		}
	}
	if _, ok := s.limits[name]; !ok {
		s.order = append(s.order, name)
	}
	s.limits[name] = c
}

func (s *scenario) take(words []string) {
	s.t.Helper()
	c, names, times := Call{Cost: 1}, s.order, 1
	i := 0
	for ; i < len(words) && words[i] != "->"; i++ {
		k, v, found := strings.Cut(words[i], "=")
		switch {
		case k == "take":
		case k == "cost":
			c.Cost = s.number(v)
		case k == "times":
			times = int(s.number(v))
		case !found:
			names = strings.Split(k, ",")
		default:
			s.fail("unknown take word %q", words[i])
		}
	}
	for _, n := range names {
		charge, ok := s.limits[n]
		if !ok {
			s.fail("no limit %q", n)
		}
		c.Charges = append(c.Charges, charge)
	}
	status := make([]Status, len(names))
	for n := range times {
		out, err := s.store.Take(context.Background(), c, status)
		if n == times-1 || err != nil || out.Allowed != (words[i+1] == "allow") {
			s.check(words[i+1], words[i+2:], names, out, status, err)
		}
	}
}

func (s *scenario) check(verdict string, wants, names []string, out Outcome, status []Status, err error) {
	s.t.Helper()
	var failure *quotad.Error
	switch {
	case verdict == "period":
		if !errors.Is(err, ErrPeriod) || out.Now != s.clock.Now().UTC() {
			s.fail("got %+v %v", out, err)
		}
		return
	case verdict == "error":
		if !errors.As(err, &failure) || string(failure.Code) != wants[0] {
			s.fail("got error %v", err)
		}
		return
	case err != nil:
		s.fail("got error %v", err)
	case out.Allowed != (verdict == "allow"):
		s.fail("got allowed=%v %+v", out.Allowed, status)
	}
	for _, want := range wants {
		field, value, _ := strings.Cut(want, "=")
		st := status[0]
		if name, f, ok := strings.Cut(field, "."); ok {
			field = f
			for i, n := range names {
				if n == name {
					st = status[i]
				}
			}
		}
		var got string
		switch field {
		case "remaining":
			got = strconv.FormatInt(st.Remaining, 10)
		case "reset":
			got, value = st.Reset.String(), s.duration(value).String()
		case "retry":
			got, value = st.Retry.String(), s.duration(value).String()
		case "delay":
			got, value = st.Delay.String(), s.duration(value).String()
		case "wait":
			got, value = out.Delay.String(), s.duration(value).String()
		case "allowed":
			got = strconv.FormatBool(st.Allowed)
		default:
			s.fail("unknown field %q", want)
		}
		if got != value {
			s.fail("got %s=%s in %+v", field, got, status)
		}
	}
}

func (s *scenario) duration(text string) time.Duration {
	if days, ok := strings.CutSuffix(text, "d"); ok {
		return time.Duration(s.number(days)) * 24 * time.Hour
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		s.fail("%v", err)
	}
	return d
}

func (s *scenario) number(text string) int64 {
	n, err := strconv.ParseInt(strings.ReplaceAll(text, "_", ""), 10, 64)
	if err != nil {
		s.fail("%v", err)
	}
	return n
}
