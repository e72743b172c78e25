package accesslog

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestJudge holds the summing up against the fixed window answers, which are
// simple enough to count here.
func TestJudge(t *testing.T) {
	for _, l := range Logs(t) {
		for mode, answers := range l.Answers {
			limit, _ := Limits(mode)
			type window struct {
				client string
				minute int64
			}
			used := map[window]int64{}
			got := Judge(l.Ordered(mode), func(r Request) bool {
				w := window{r.Client, r.Time.Unix() / 60}
				if used[w] >= limit {
					return false
				}
				used[w]++
				return true
			})
			if diff := cmp.Diff(answers["fixed_window"], got); diff != "" {
				t.Errorf("%s, %s (-want +got):\n%s", l.Name, mode, diff)
			}
		}
	}
}

func TestParse(t *testing.T) {
	for line, want := range map[string][2]string{
		`192.0.2.1 - - [12/May/2024:00:08:28 +0000] "GET / HTTP/1.1" 200 5`:  {"192.0.2.1", "12/May/2024:00:08:28 +0000"},
		`{"time": "17/May/2015:08:05:32 +0200", "remote_ip": "2001:db8::1"}`: {"2001:db8::1", "17/May/2015:08:05:32 +0200"},
		` "curl/7.54.0"`: {},
		``:               {},
		`{`:              {},
	} {
		client, at := parse(line)
		if got := [2]string{client, at}; got != want {
			t.Errorf("%q: got %q, want %q", line, got, want)
		}
	}
	if at, err := time.Parse(commonTime, "22/Jan/2019:03:56:14 +0330"); err != nil || at.UTC().Format(time.RFC3339) != "2019-01-22T00:26:14Z" {
		t.Errorf("%v %v", at, err)
	}
}
