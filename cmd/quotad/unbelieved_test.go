package main

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// spoofed are the headers in which a client may claim to be somebody else.
func spoofed(i int) []string {
	var lines []string
	for _, name := range []string{"X-Forwarded-For", "X-Real-IP", "True-Client-IP", "CF-Connecting-IP", "X-Client-IP", "X-Envoy-External-Address"} {
		lines = append(lines, fmt.Sprintf("%s: 203.0.113.%d", name, i))
	}
	return append(lines, fmt.Sprintf("Forwarded: for=203.0.113.%d", i), fmt.Sprintf("X-Quotad-Subject: user-%d", i))
}

// Where no proxy is trusted, no header makes a client another one, at any door.
func TestClientsAreNotBelieved(t *testing.T) {
	t.Parallel()
	// The rate limit service has no headers: its Envoy says where a call came from.
	for _, name := range []string{"ping", "check", "authorize", "authorize with headers", "gateway", "ext_authz", "ext_authz with raw headers"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			upstream := func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("X-Route-Group-Seen", r.Header.Get("X-Quotad-Route-Group"))
				if subject := r.Header.Get("X-Quotad-Subject"); subject != "" {
					t.Errorf("the upstream is told of subject %q", subject)
				}
			}
			n := behind(t, embedded(t), upstream, "--ip-limit=25/86400", "--failed-key-limit=5/86400", "--grpc-listen=127.0.0.1:0")
			n.furnishDoors()
			all, k := doors(n), &keyring{n: n, made: map[string]string{}}
			d := all[slices.IndexFunc(all, func(d door) bool { return d.name == name })]
			left := 25
			count := func(c asked, calls int) map[string]int {
				got := map[string]int{}
				for i := range calls {
					c := k.fill(c)
					c.address, c.subject, c.header = "", "", spoofed(i)
					if d.can(c) {
						words := strings.Fields(d.ask(t, c))
						got[words[0]+" "+words[len(words)-1]]++
						left--
					}
				}
				return got
			}
			if d.name == "authorize with headers" { // it is not believed itself
				if got := count(metered, 3); got["400 -"] != 3 {
					t.Errorf("a gateway that is not trusted: %v", got)
				}
				return
			}
			// Five failed keys of the one address that all of them have.
			if got := count(metered.with("unknown"), 8); got["401 -"] != 5 || got["429 failed-keys"] != 3 {
				t.Errorf("failed keys: %v", got)
			}
			// The subject is nobody's, so that the base limit speaks: of three units of its own, each subject would have two left.
			if got := count(users, 5); got["200 2"] != 0 {
				t.Errorf("subjects of a client's own choice: %v", got)
			}
			// 25 calls in all, whatever they claim.
			want := left
			if got := count(metered.with(), 40); got["401 -"] != want || got["429 address"] != 40-want {
				t.Errorf("calls of one address: %v, want %d", got, want)
			}
			if got := count(metered, 20); got["429 address"] != 20 {
				t.Errorf("after that: %v", got)
			}
		})
	}
}

// Keys that can't be any are refused without asking anybody, at every door.
func TestOddKeysAskNobody(t *testing.T) {
	each(t, func(t *testing.T, stores []string) {
		n, doors := openDoors(t, stores)
		n.furnishDoors()
		before, keys := n.asksOf(t, stores)
		for _, d := range doors {
			for name, key := range map[string]string{
				"empty": "", "one byte": "k", "only the prefix": "qk_", "8 kB": strings.Repeat("k", 8<<10), "8 kB of ours": "qk_" + strings.Repeat("a", 8<<10),
				"1 MB": strings.Repeat("k", 1<<20), "high bytes": "qk_\x80\xff\xfe", "a tab": "qk_a\tb", "a space": "qk_a b", "Unicode": "qk_ключ",
			} {
				c := metered
				c.keys = []string{key}
				if !d.can(c) {
					continue
				}
				switch status, _, _ := strings.Cut(d.ask(tolerant{t}, c), " "); status {
				case "400", "401", "431":
				default:
					t.Errorf("%s through %s: %s", name, d.name, status)
				}
			}
		}
		// The node's own probe may have ended meanwhile.
		if after, now := n.asksOf(t, stores); after != before || now > keys {
			t.Errorf("somebody was asked: %s, before %s; %d keys in Redis, before %d", after, before, now, keys)
		}
	})
}

// tolerant is a test that lets an answer be net/http's own, which is not in our shape.
type tolerant struct{ testing.TB }

func (tolerant) Errorf(string, ...any) {}

// asksOf is how often the node looked a key up, and how many keys it has in Redis.
func (n *testNode) asksOf(t *testing.T, stores []string) (lookups string, keys int) {
	t.Helper()
	a, err := send(testClient, http.MethodGet, n.admin+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	var asks []string
	for line := range strings.Lines(a.body) {
		if strings.HasPrefix(line, `quotad_cache_requests_total{cache="keys"`) {
			asks = append(asks, strings.TrimSpace(line))
		}
	}
	if len(asks) == 0 {
		t.Fatal("the metric is gone")
	}
	var url, prefix string
	for _, variable := range stores {
		if value, ok := strings.CutPrefix(variable, "QUOTAD_REDIS_URL="); ok {
			url = value
		}
		if value, ok := strings.CutPrefix(variable, "QUOTAD_REDIS_PREFIX="); ok {
			prefix = value
		}
	}
	if url != "" {
		options, err := redis.ParseURL(url)
		if err != nil {
			t.Fatal(err)
		}
		client := redis.NewClient(options)
		defer client.Close()
		names, err := client.Keys(t.Context(), prefix+"*").Result()
		if err != nil {
			t.Fatal(err)
		}
		keys = len(names)
	}
	return strings.Join(asks, "; "), keys
}
