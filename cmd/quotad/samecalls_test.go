package main

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quotad/quotad/internal/secret"
)

// step is a call and what must come of it; times is 1 where it is 0.
type step struct {
	asked
	want  string
	times int
}

// The calls of the table.
var (
	metered = asked{path: "/v1/ping", group: "metered", keys: []string{"good"}}
	exports = asked{path: "/v1/exports/7", group: "exports", keys: []string{"good"}}
	heavy   = asked{method: "POST", path: "/v1/heavy", group: "heavy", keys: []string{"good"}}
	report  = asked{path: "/v1/reports/export", group: "report", keys: []string{"good"}}
	users   = asked{path: "/v1/users", group: "users", keys: []string{"good"}}
	places  = asked{path: "/v1/places", group: "places", keys: []string{"good"}}
	login   = asked{method: "POST", path: "/login", group: "login"}
	none    = asked{path: "/v1/nowhere", group: "default", keys: []string{"good"}}
)

func (c asked) with(keys ...string) asked     { c.keys = keys; return c }
func (c asked) of(subject string) asked       { c.subject = subject; return c }
func (c asked) from(address string) asked     { c.address = address; return c }
func (c asked) at(path string) asked          { c.path, c.group = path, ""; return c }
func (c asked) by(method string) asked        { c.method = method; return c }
func (c asked) costing(units int) asked       { c.cost = &units; return c }
func (c asked) saying(header ...string) asked { c.header = header; return c }
func (c asked) is(want string, times ...int) step {
	return step{asked: c, want: want, times: append(times, 1)[0]}
}

// sameCalls are calls that are decided alike at every door that has words for them. Keys, and {keys} in header lines,
// are named by what they are (keyring); each case has its own tenants at each door. Addresses are numbers of a client: 1
// is meant where there is none, and 6/2/1 is the first of its second IPv6 network.
var sameCalls = map[string][]step{
	"one key": {
		metered.is("200 metered 9"), metered.is("200 metered 8"), metered.by("HEAD").is("200 metered 7"), exports.is("200 exports 9"),
		none.is("200 default 9"), metered.is("200 metered ?", 7), metered.is("429 rate_limit_exceeded base"), metered.by("HEAD").is("429 ? ?"),
		metered.with("other").is("200 metered 9"), exports.is("200 exports 8"),
	},
	"no key, and keys that fail": {
		metered.with().is("401 api_key_required -"), metered.with("").is("401 api_key_required -"),
		metered.with("junk").is("401 invalid_api_key -"), metered.with("unknown").is("401 invalid_api_key -"),
		metered.with("disabled").is("401 invalid_api_key -"), metered.with("revoked").is("401 invalid_api_key -"),
		metered.with("suspended").from("2").is("401 invalid_api_key -"), metered.with("forged").from("2").is("401 invalid_api_key -"),
		metered.is("200 metered 9"),
	},
	"a key of some route groups": {
		exports.with("exports only").is("200 exports 9"), metered.with("exports only").is("403 route_not_allowed -"),
		none.with("exports only").is("403 route_not_allowed -"), exports.with("exports only").is("200 exports 8"),
	},
	"a key of some addresses": {
		exports.with("local").from("77").is("200 exports 9"), exports.with("local").from("78").is("401 invalid_api_key -"),
		exports.with("local").from("77").is("200 exports 8"),
	},
	"two keys": {
		metered.with("good", "junk").is("400 ambiguous_credentials -"), metered.with("junk", "good").is("400 ambiguous_credentials -"),
		metered.with("good", "other").is("400 ambiguous_credentials -"), metered.with("good", "good").is("400 ambiguous_credentials -"),
		metered.with("good, other").from("2").is("400 ambiguous_credentials -"), metered.with("good,").from("2").is("400 ambiguous_credentials -"),
		metered.with("good", "").from("2").is("400 ambiguous_credentials -"),
		metered.with(slices.Repeat([]string{"unknown"}, 100)...).from("3").is("400 ambiguous_credentials -"),
		metered.saying("Authorization: Bearer {other}").from("3").is("400 ambiguous_credentials -"),
		metered.saying("Authorization: {token}").from("3").is("400 ambiguous_credentials -"),
		metered.is("200 metered 9"), metered.with("other").is("200 metered 9"),
	},
	"a key in the query": {
		exports.at("/v1/exports/7?key={other}").is("400 ambiguous_credentials -"), exports.at("/v1/exports/7?api_key=theirs").is("200 exports 9"),
		exports.at("/v1/exports/7?key={good}").with().is("401 api_key_required -"), exports.with("other").is("200 exports 9"),
	},
	"how a header is written": {
		metered.with().saying("x-api-key: {good}").is("200 metered 9"), metered.with().saying("X-API-KEY: {good}").is("200 metered 8"),
		metered.with().saying("x-API-key:{good}  ").is("200 metered 7"), metered.saying("x-api-key: {other}").is("400 ambiguous_credentials -"),
		metered.saying("Connection: X-API-Key").is("200 metered 6"), metered.with().saying("Connection: X-API-Key").is("401 api_key_required -"),
		metered.saying("Authorization: Basic dTpw").is("200 metered 5"),
	},
	"cost": {
		heavy.is("200 heavy 5"), heavy.is("200 heavy 0"), heavy.is("429 rate_limit_exceeded base"), none.is("200 default 9"),
		metered.costing(3).is("200 metered 7"), metered.costing(0).is("200 metered 7"), metered.costing(8).is("429 rate_limit_exceeded base"),
		metered.costing(11).is("400 cost_exceeds_limit -"), metered.costing(7).is("200 metered 0"),
	},
	"costs that are none": {
		metered.costing(-1).is("400 invalid_cost -"), metered.costing(1 << 53).is("400 invalid_cost -"), metered.costing(1<<53 - 1).is("400 cost_exceeds_limit -"),
		metered.costing(10).is("200 metered 0"), metered.costing(-1).is("400 invalid_cost -"), metered.costing(0).is("200 metered 0", 20),
		metered.is("429 rate_limit_exceeded base"),
	},
	"what is wrong is told in one order": {
		// The credential's form, the credential, the call, what the key may do, its limits.
		metered.with("good", "other").costing(-1).is("400 ambiguous_credentials -"),
		metered.with().costing(-1).is("401 api_key_required -"), metered.with("junk").costing(-1).is("401 invalid_api_key -"),
		metered.with("unknown").from("2").costing(-1).is("401 invalid_api_key -"), metered.costing(-1).is("400 invalid_cost -"),
		none.with("exports only").costing(-1).is("400 invalid_cost -"), none.with("exports only").is("403 route_not_allowed -"),
		report.at("/v1/x/../reports/export").with().is("401 api_key_required -"), report.at("/v1/reports%2Fexport").with("junk").is("401 invalid_api_key -"),
		report.at("/v1/x/../reports/export").with("exports only").is("400 invalid_path -"),
		users.of("a\tb").with().is("401 api_key_required -"), users.of("a\tb").with("disabled").from("2").is("401 invalid_api_key -"),
		users.of("a\tb").with("exports only").is("400 invalid_request -"),
		login.costing(-1).is("400 invalid_cost -"), login.with("junk").costing(-1).is("400 invalid_cost -"), login.of("a\tb").is("400 invalid_request -"),
		metered.is("200 metered 9"), login.is("200 login 9"),
	},
	"none and without end": {
		metered.with("nothing").is("429 rate_limit_exceeded base", 3), metered.with("unlimited").is("200 metered -", 20),
	},
	"spellings of a path": {
		report.is("200 report 1"), report.is("200 report 0"), report.is("429 rate_limit_exceeded report"),
		report.by("HEAD").is("429 ? ?"), report.by("POST").is("429 rate_limit_exceeded report"), report.by("PURGE").is("429 rate_limit_exceeded report"),
		report.at("/v1//reports//export").is("429 rate_limit_exceeded report"), report.at("//v1/reports/export").is("429 rate_limit_exceeded report"),
		report.at("//host/v1/reports/export").is("400 invalid_path -"),
		report.at("/v1/./reports/export").is("429 rate_limit_exceeded report"), report.at("/v1/reports/export/").is("429 rate_limit_exceeded report"),
		report.at("/V1/Reports/Export").is("429 rate_limit_exceeded report"), report.at("/v1/%72eports/export").is("429 rate_limit_exceeded report"),
		report.at("/v1/x/../reports/export").is("400 invalid_path -"), report.at("/v1/reports%2Fexport").is("400 invalid_path -"),
		report.at("/v1/reports/export%00").is("400 invalid_path -"), report.at("/v1/reports/export;x").is("400 invalid_path -"),
		report.at("/v1/%2e%2e/v1/reports/export").is("400 invalid_path -"), report.at("/v1/reports%5Cexport").is("400 invalid_path -"),
		report.at("/v1/reports/export?x=1").is("429 rate_limit_exceeded report"),
		none.is("200 default 9"),
	},
	"preflights": {
		exports.with().by("OPTIONS").saying("Origin: https://app.example.com", "Access-Control-Request-Method: POST").is("200 ? -", 12),
		login.by("OPTIONS").saying("Origin: https://app.example.com", "Access-Control-Request-Method: POST").is("200 ? -", 12),
		exports.with().by("OPTIONS").saying("Origin: https://app.example.com").is("401 api_key_required -"),
		exports.is("200 exports 9"), login.is("200 login 9"),
	},
	"subjects": {
		users.is("200 users 9"), users.of("a").is("200 users 2"), users.of("a").is("200 users 1"), users.of("a").is("200 users 0"),
		users.of("a").is("429 rate_limit_exceeded user"), users.of("A").is("200 users 2"), users.of("b").is("200 users 2"),
		users.of("a").with("second").is("429 rate_limit_exceeded user"), users.of("a").with("other").is("200 users 2"),
		users.of("日本語 {x}|y:z'").is("200 users 2"), users.is("200 users 2"), exports.of("a").is("200 exports 9"),
	},
	"subjects that are none": {
		users.of("a\tb").is("400 invalid_request -"), users.of(strings.Repeat("é", 128)).is("400 invalid_request -"),
		users.of(strings.Repeat("é", 127) + "x").is("200 users 2"), users.of("a\u2028b").is("400 invalid_request -"), users.is("200 users 8"),
	},
	"addresses": {
		places.is("200 places 2"), places.is("200 places 1"), places.with("second").is("200 places 0"), places.is("429 rate_limit_exceeded place"),
		places.from("2").is("200 places 2"), places.with("other").is("200 places 2"),
		places.from("6/1/1").is("200 places 2"), places.from("6/1/2").is("200 places 1"), places.from("6/1/3").is("200 places 0"),
		places.from("6/1/4").is("429 rate_limit_exceeded place"), places.from("6/2/1").is("200 places 2"),
	},
	"login": {
		login.is("200 login 9"), login.with("junk").is("200 login 8"), login.with("good").is("200 login 7"), login.is("200 login ?", 7),
		login.is("429 rate_limit_exceeded tries", 3), login.with("good").is("429 rate_limit_exceeded tries"), login.from("2").is("200 login 9"),
		login.at("/otp").is("200 otp 9"), login.at("/LOGIN/").is("429 rate_limit_exceeded tries"),
		login.from("6/1/1").is("200 login 9"), login.from("6/1/ffff").is("200 login 8"), login.from("6/2/1").is("200 login 9"),
		login.by("GET").at("/login").is("401 api_key_required -"), none.is("200 default 9"),
	},
	"failed keys of an address": {
		metered.with("junk").is("401 invalid_api_key -"), metered.with("junk", "good").is("400 ambiguous_credentials -"),
		metered.with("unknown").is("401 invalid_api_key -"), metered.is("200 metered 9"), metered.with("disabled").is("401 invalid_api_key -"),
		metered.with().is("401 api_key_required -"), metered.with("unknown").is("401 invalid_api_key -"),
		metered.with("junk").is("429 rate_limit_exceeded failed-keys"), metered.with("unknown").is("429 rate_limit_exceeded failed-keys"),
		metered.with("good", "good").is("429 rate_limit_exceeded failed-keys"), metered.with("junk").by("HEAD").is("429 ? ?"),
		metered.is("200 metered 8"), metered.with().is("401 api_key_required -"), metered.with("junk").from("2").is("401 invalid_api_key -"),
	},
	"calls of an address": {
		metered.with().is("401 api_key_required -", 40), metered.is("429 rate_limit_exceeded address"), metered.with().is("429 rate_limit_exceeded address"),
		login.is("429 rate_limit_exceeded address"), metered.with("junk").is("429 rate_limit_exceeded address"),
		metered.from("2").is("200 metered 9"), login.from("2").is("200 login 9"),
	},
	"calls of an IPv6 network": {
		metered.with().from("6/1/1").is("401 api_key_required -", 40), metered.from("6/1/2").is("429 rate_limit_exceeded address"),
		metered.from("6/2/1").is("200 metered 9"),
	},
}

func TestSameCallsSameDecisions(t *testing.T) {
	each(t, func(t *testing.T, stores []string) {
		n, doors := openDoors(t, stores, "--ip-limit=40/86400", "--failed-key-limit=5/86400")
		n.furnishDoors()
		number := 0
		for name, steps := range sameCalls {
			for i, s := range steps {
				if !slices.ContainsFunc(doors, func(d door) bool { return d.can(s.asked) }) {
					t.Errorf("%s: no door has words for step %d", name, i+1)
				}
			}
			for _, d := range doors {
				if !slices.ContainsFunc(steps, func(s step) bool { return d.can(s.asked) }) {
					continue
				}
				number++
				k := &keyring{n: n, number: number, made: map[string]string{}}
				t.Run(name+"/"+d.name, func(t *testing.T) { k.run(t, d, steps) })
			}
		}
	})
}

// run puts the calls, in order, that the door has words for. One that it has none for may have been needed for what
// follows to come out as expected, so it is put by POST /v1/authorize instead: the doors share what they count.
func (k *keyring) run(t *testing.T, d door, steps []step) {
	for i, s := range steps {
		through := d
		if !d.can(s.asked) {
			if through = authorizeDoor(k.n); !through.can(s.asked) {
				through = checkDoor(k.n)
			}
		}
		c := k.fill(s.asked)
		for at := range s.times {
			if got := through.ask(t, c); !agrees(got, s.want) {
				t.Errorf("step %d (%s %s, %d. time) through %s: %s, want %s", i+1, method(c), c.path, at+1, through.name, got, s.want)
			}
		}
	}
}

// furnishDoors makes the route groups and tiers of the table.
func (n *testNode) furnishDoors() {
	n.t.Helper()
	limit := func(name, group, scope string, units int) map[string]any {
		return map[string]any{"name": name, "route_group": group, "scope": scope, "rate_limit": units, "rate_window": lasting}
	}
	for name, match := range map[string][]string{
		"metered": {"GET /v1/ping"}, "exports": {"POST /v1/exports", "GET /v1/exports/{id...}"}, "heavy": {"POST /v1/heavy"},
		"report": {"/v1/reports/export"}, "users": {"GET /v1/users"}, "places": {"GET /v1/places"}, "login": {"POST /login"}, "otp": {"POST /otp"},
	} {
		group := map[string]any{"name": name, "match": match}
		switch name {
		case "heavy":
			group["cost"] = 5
		case "login", "otp":
			group["auth"], group["limits"] = "none", []any{limit("tries", name, "ip", 10)}
		}
		n.must(http.MethodPost, "/route-groups", group)
	}
	n.tier("ten", 10, map[string]any{"limits": []any{
		limit("report", "report", "key", 2), limit("user", "users", "subject", 3), limit("place", "places", "ip", 3),
	}})
	n.tier("nothing", 0, nil)
	n.must(http.MethodPost, "/tiers", map[string]any{"name": "unlimited", "rate_limit": nil, "rate_window": 60})
}

// keyring makes the keys of one case at one door when they are first named.
type keyring struct {
	n      *testNode
	number int
	made   map[string]string
}

// fill puts real keys and addresses in the place of their names.
func (k *keyring) fill(c asked) asked {
	c.keys = slices.Clone(c.keys)
	for i, name := range c.keys {
		first, second, list := strings.Cut(name, ",")
		c.keys[i] = k.key(first)
		if list {
			c.keys[i] += "," + k.key(strings.TrimSpace(second))
		}
	}
	c.header = slices.Clone(c.header)
	for i := range c.header {
		c.header[i] = k.named(c.header[i])
	}
	c.path = k.named(c.path)
	c.address = k.address(c.address)
	return c
}

// named replaces {a key's name} by the key.
func (k *keyring) named(text string) string {
	before, rest, found := strings.Cut(text, "{")
	name, after, _ := strings.Cut(rest, "}")
	if !found {
		return text
	}
	return before + k.key(name) + after
}

func (k *keyring) address(name string) string {
	if v6, ok := strings.CutPrefix(name, "6/"); ok {
		network, host, _ := strings.Cut(v6, "/")
		return fmt.Sprintf("2001:db8:%x:%s::%s", k.number, network, host)
	}
	if name == "" {
		name = "1"
	}
	return fmt.Sprintf("10.%d.%d.%s", k.number/250, k.number%250, name)
}

func (k *keyring) key(name string) string {
	if name == "" || k.made[name] != "" {
		return k.made[name]
	}
	k.made[name] = k.mint(name)
	return k.made[name]
}

func (k *keyring) mint(name string) string {
	tenant := fmt.Sprintf("t%d", k.number)
	spec := map[string]any{"name": name}
	switch name {
	case "junk":
		return "qk_guess"
	case "unknown":
		text, _ := secret.Mint(secret.APIKey, time.Now())
		return text.Reveal()
	case "forged": // of a key that exists
		id, _ := secret.Parse(secret.APIKey, k.key("good"))
		return secret.MintFor(secret.APIKey, id).Reveal()
	case "token":
		return k.n.must(http.MethodPost, "/admin-tokens", map[string]any{"name": tenant, "role": "service"})["secret"].(string)
	case "good", "second":
	case "other":
		tenant += "-other"
	case "disabled":
		spec["status"] = "disabled"
	case "exports only":
		spec["route_groups"] = []string{"exports"}
	case "local":
		spec["allowed_cidrs"] = []string{k.address("77") + "/32"}
	case "nothing", "unlimited", "suspended":
		tenant += "-" + name
	}
	tier := "ten"
	if name == "nothing" || name == "unlimited" {
		tier = name
	}
	if k.n.operate(http.MethodGet, "/tenants/"+tenant, nil).status == http.StatusNotFound {
		k.n.tenant(tenant, tier)
	}
	made := k.n.must(http.MethodPost, "/tenants/"+tenant+"/keys", spec)
	switch name {
	case "revoked":
		k.n.must(http.MethodDelete, "/keys/"+made["id"].(string), nil)
	case "suspended":
		k.n.must(http.MethodPatch, "/tenants/"+tenant, map[string]any{"status": "suspended"})
	}
	return made["secret"].(string)
}

// The exactness of all doors together: one key has ten units, whichever way they are spent.
func TestOneAllowanceThroughAllDoors(t *testing.T) {
	each(t, func(t *testing.T, stores []string) {
		n, doors := openDoors(t, stores)
		n.furnishDoors()
		var number atomic.Int64
		fresh := func() asked {
			k := &keyring{n: n, number: int(number.Add(1)), made: map[string]string{}}
			return k.fill(metered)
		}
		for first := range doors { // each of them has the first word once
			c := fresh()
			for i := range 30 {
				d := doors[(first+i)%len(doors)]
				want := fmt.Sprintf("200 metered %d", 9-i)
				if i >= 10 {
					want = "429 rate_limit_exceeded base"
				}
				if got := d.ask(t, c); !agrees(got, want) {
					t.Errorf("call %d, through %s: %s, want %s", i+1, d.name, got, want)
				}
			}
		}
		for range 5 { // all at once
			c := fresh()
			var admitted atomic.Int64
			var wg sync.WaitGroup
			for i := range 40 {
				wg.Go(func() {
					if strings.HasPrefix(doors[i%len(doors)].ask(t, c), "200 ") {
						admitted.Add(1)
					}
				})
			}
			wg.Wait()
			if got := admitted.Load(); got != 10 {
				t.Errorf("%d calls were admitted at once, want 10", got)
			}
		}
	})
}
