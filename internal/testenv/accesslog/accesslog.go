// Package accesslog gives tests access logs to replay, with answers that were
// computed independently of this project's code. Test-only.
//
// The logs are those of the directory that QUOTAD_TEST_LOGS names, else the small
// samples beside this package. Either holds answers.json: per log and order, what
// each algorithm allows and denies at Limit per minute and client, and the clients
// denied most.
package accesslog

import (
	"bufio"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// Request is one line that yields a client and a time.
type Request struct {
	Line   int // from 1
	Client string
	Time   time.Time
}

// Log is an access log and its answers.
type Log struct {
	Name     string
	Requests []Request // in file order
	// Answers by mode ("sorted", "file_order_clamped", "sorted_limit_10") and by
	// algorithm ("fixed_window", "sliding_counter", "sliding_log", "token_bucket").
	Answers map[string]map[string]Answer
}

// Answer is what an algorithm makes of a log. A denied request is not counted.
type Answer struct {
	Allowed       int      `json:"allowed"`
	Denied        int      `json:"denied"`
	ClientsDenied int      `json:"clients_denied"`
	Top           []Client `json:"top10_denied"` // most denied first
}

// Client is what an algorithm makes of one client's requests.
type Client struct {
	Client      string `json:"client"`
	Denied      int    `json:"denied"`
	Requests    int    `json:"requests"`
	FirstDenied Moment `json:"first_denied"`
	LastDenied  Moment `json:"last_denied"`
}

// Moment is a request of a log.
type Moment struct {
	Line int       `json:"line"`
	Time time.Time `json:"time"`
}

// Limits of a mode: units per minute and client, and the bucket that refills at
// one unit a second.
func Limits(mode string) (limit, burst int64) {
	if mode == "sorted_limit_10" {
		return 10, 5
	}
	return 60, 20
}

// Logs reads all logs.
func Logs(t testing.TB) []Log {
	t.Helper()
	dir := os.Getenv("QUOTAD_TEST_LOGS")
	if dir == "" {
		_, here, _, _ := runtime.Caller(0)
		dir = filepath.Join(filepath.Dir(here), "testdata")
	}
	text, err := os.ReadFile(filepath.Join(dir, "answers.json"))
	if err != nil {
		t.Fatalf("read the answers: %v", err)
	}
	var answers struct {
		Logs map[string]struct {
			File     string                                `json:"file"`
			Requests int                                   `json:"requests"`
			Skipped  int                                   `json:"skipped_lines"`
			Modes    map[string]map[string]json.RawMessage `json:"modes"`
		} `json:"logs"`
	}
	if err := json.Unmarshal(text, &answers); err != nil {
		t.Fatalf("read the answers: %v", err)
	}
	var logs []Log
	for name, a := range answers.Logs {
		l := Log{Name: name, Answers: map[string]map[string]Answer{}}
		var skipped int
		l.Requests, skipped = read(t, filepath.Join(dir, a.File))
		if len(l.Requests) != a.Requests || skipped != a.Skipped {
			t.Fatalf("%s has %d requests and %d other lines, want %d and %d", name, len(l.Requests), skipped, a.Requests, a.Skipped)
		}
		for mode, byAlgorithm := range a.Modes {
			l.Answers[mode] = map[string]Answer{}
			for _, algorithm := range []string{"fixed_window", "sliding_counter", "sliding_log", "token_bucket"} {
				var answer Answer
				if err := json.Unmarshal(byAlgorithm[algorithm], &answer); err != nil {
					t.Fatalf("read the answers of %s, %s, %s: %v", name, mode, algorithm, err)
				}
				l.Answers[mode][algorithm] = answer
			}
		}
		logs = append(logs, l)
	}
	if len(logs) == 0 {
		t.Fatal("no logs")
	}
	slices.SortFunc(logs, func(a, b Log) int { return cmp.Compare(a.Name, b.Name) })
	return logs
}

// Ordered is the requests as a mode takes them: by time, those of one time in file
// order; or in file order, with a clock that never goes back.
func (l Log) Ordered(mode string) []Request {
	requests := slices.Clone(l.Requests)
	if mode == "file_order_clamped" {
		for i := 1; i < len(requests); i++ {
			if requests[i].Time.Before(requests[i-1].Time) {
				requests[i].Time = requests[i-1].Time
			}
		}
		return requests
	}
	slices.SortStableFunc(requests, func(a, b Request) int { return a.Time.Compare(b.Time) })
	return requests
}

// Judge takes the requests in order, each at its time, and sums up what allow says.
func Judge(requests []Request, allow func(Request) bool) Answer {
	a := Answer{Top: []Client{}}
	clients := map[string]*Client{}
	for _, r := range requests {
		c := clients[r.Client]
		if c == nil {
			c = &Client{Client: r.Client}
			clients[r.Client] = c
		}
		c.Requests++
		if allow(r) {
			a.Allowed++
			continue
		}
		a.Denied++
		c.LastDenied = Moment{r.Line, r.Time}
		if c.Denied == 0 {
			c.FirstDenied = c.LastDenied
			a.ClientsDenied++
		}
		c.Denied++
	}
	for _, c := range clients {
		if c.Denied > 0 {
			a.Top = append(a.Top, *c)
		}
	}
	slices.SortFunc(a.Top, func(x, y Client) int {
		return cmp.Or(cmp.Compare(y.Denied, x.Denied), cmp.Compare(x.Client, y.Client))
	})
	a.Top = a.Top[:min(10, len(a.Top))]
	return a
}

// common is the beginning of a line of the common log format and its extensions.
var common = regexp.MustCompile(`^(\S+) .*?\[(\d\d/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d:\d\d [+-]\d{4})\]`)

const commonTime = "02/Jan/2006:15:04:05 -0700"

func read(t testing.TB, path string) (requests []Request, skipped int) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	var r io.Reader = f
	if strings.HasSuffix(path, ".gz") {
		if r, err = gzip.NewReader(f); err != nil {
			t.Fatalf("read %s: %v", path, err)
		}
	}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		client, text := parse(lines.Text())
		at, err := time.Parse(commonTime, text)
		if client == "" || err != nil {
			skipped++
			continue
		}
		requests = append(requests, Request{Line: n, Client: client, Time: at.UTC()})
	}
	if err := lines.Err(); err != nil {
		t.Fatalf("read %s: %v", path, err)
	}
	return requests, skipped
}

func parse(line string) (client, at string) {
	if strings.HasPrefix(line, "{") {
		var fields struct {
			Client string `json:"remote_ip"`
			Time   string `json:"time"`
		}
		if json.Unmarshal([]byte(line), &fields) != nil {
			return "", ""
		}
		return fields.Client, fields.Time
	}
	m := common.FindStringSubmatch(line)
	if m == nil {
		return "", ""
	}
	return m[1], m[2]
}
