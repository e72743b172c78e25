package deploy

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the table of README.md")

// outcome is what a client gets in a situation.
type outcome struct {
	status int
	retry  bool  // Retry-After
	rates  bool  // X-RateLimit-*, RateLimit, RateLimit-Policy
	or     []int // other statuses, where it depends on what the gateway has noticed yet
}

func (o outcome) String() string {
	s := fmt.Sprint(o.status)
	for _, status := range o.or {
		s += fmt.Sprint(" or ", status)
	}
	if o.retry {
		s += ", `Retry-After`"
	}
	if o.rates {
		s += ", rate headers"
	}
	return s
}

// situation is a row of the table: what happens, and what comes of it at each gateway.
type situation struct {
	what   string
	usual  outcome
	except map[string]outcome // by the gateway's name
}

func (s *situation) at(g gateway) outcome {
	if o, ok := s.except[g.name]; ok {
		return o
	}
	return s.usual
}

var (
	within = situation{what: "within the limit: the API answers, and it gets `X-Quotad-Tenant`, `-Key-Id`, `-Tier` and `-Route-Group`",
		usual: outcome{200, false, true, nil}, except: map[string]outcome{"Traefik": {200, false, false, nil}}}
	unlimited   = situation{what: "an unlimited key, a group that needs no key, a CORS preflight", usual: outcome{200, false, false, nil}}
	noKey       = situation{what: "no key", usual: outcome{401, false, false, nil}}
	unknownKey  = situation{what: "an unknown, malformed, revoked or expired key", usual: outcome{401, false, false, nil}}
	ambiguous   = situation{what: "two credentials, or a path that servers read in different ways", usual: outcome{400, false, false, nil}}
	notAllowed  = situation{what: "a route group that the key may not call", usual: outcome{403, false, false, nil}}
	exhausted   = situation{what: "a limit or a quota is used up", usual: outcome{429, true, true, nil}}
	storeAway   = situation{what: "Redis is away and the policy is `closed`", usual: outcome{503, true, false, nil}}
	slowClosed  = situation{what: "quotad does not answer in time, fail closed", usual: outcome{503, true, false, nil}, except: map[string]outcome{"Traefik": {504, false, false, []int{503}}}}
	slowOpen    = situation{what: "quotad does not answer in time, fail open", usual: outcome{200, false, false, nil}}
	deadClosed  = situation{what: "quotad is dead, fail closed", usual: outcome{503, true, false, nil}, except: map[string]outcome{"Traefik": {502, false, false, []int{503}}}}
	deadOpen    = situation{what: "quotad is dead, fail open", usual: outcome{200, false, false, nil}}
	apisRefusal = situation{what: "the API itself refuses (here: 403 with its own `Retry-After`)",
		usual: outcome{403, true, true, nil}, except: map[string]outcome{"Traefik": {403, true, false, nil}}}

	situations = []*situation{&within, &unlimited, &apisRefusal, &noKey, &unknownKey, &ambiguous, &notAllowed, &exhausted,
		&storeAway, &slowClosed, &deadClosed, &slowOpen, &deadOpen}
)

var rateHeaders = []string{"X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset", "Ratelimit", "Ratelimit-Policy"}

// check checks an answer against the table.
func (s *situation) check(t testing.TB, g gateway, a answer) {
	t.Helper()
	want := s.at(g)
	if a.status != want.status && !slices.Contains(want.or, a.status) {
		t.Fatalf("%s: got %d, want %d: %v %s", s.what, a.status, want.status, a.header, a.body)
	}
	if got := a.header.Get("Retry-After"); (got != "") != want.retry {
		t.Errorf("%s: Retry-After %q", s.what, got)
	}
	for _, name := range rateHeaders {
		values := a.header.Values(name)
		if g.name == "Traefik" && !want.rates && len(values) == 1 && values[0] == "777" {
			continue // the API's own
		}
		if want.rates && (len(values) != 1 || values[0] == "" || values[0] == "777") || !want.rates && len(values) > 0 {
			t.Errorf("%s: %s %q", s.what, name, values)
		}
	}
	if want.status >= 400 && want.or == nil && s != &apisRefusal && !strings.Contains(a.header.Get("Cache-Control"), "no-store") {
		t.Errorf("%s: Cache-Control %q", s.what, a.header.Get("Cache-Control"))
	}
}

const begin, end = "<!-- outcomes -->\n", "<!-- /outcomes -->"

func TestOutcomesAreThoseOfREADME(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(raw), begin)
	old, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatal("README.md has no place for the table")
	}
	table := table()
	if *update {
		if err := os.WriteFile("README.md", []byte(before+begin+table+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if old != table {
		t.Errorf("the table of README.md is not what the gateways do: run go test ./deploy -run Outcomes -update. Want:\n%s", table)
	}
}

// table is the table in Markdown.
func table() string {
	var b strings.Builder
	b.WriteString("| what happens |")
	for _, g := range all {
		b.WriteString(" " + g.name + " |")
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(all)) + "\n")
	for _, s := range situations {
		b.WriteString("| " + s.what + " |")
		for _, g := range all {
			fmt.Fprintf(&b, " %s |", s.at(g))
		}
		b.WriteString("\n")
	}
	return b.String()
}
