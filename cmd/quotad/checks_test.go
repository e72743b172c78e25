package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quotad/quotad"
)

// checks asks a list of checks, whose text may be no JSON at all.
func (n *testNode) checks(text, key string) answer {
	n.t.Helper()
	req, err := http.NewRequest(http.MethodPost, n.api+"/v1/checks", strings.NewReader(text))
	if err != nil {
		n.t.Fatal(err)
	}
	req.Header.Set("X-API-Key", key)
	req.Header.Set("Content-Type", "application/json")
	res, err := testClient.Do(req)
	if err != nil {
		n.t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		n.t.Fatal(err)
	}
	return answer{status: res.StatusCode, header: res.Header, body: string(body)}
}

// statuses are those of an answer's results.
func (a answer) statuses(t *testing.T) (all []int) {
	t.Helper()
	var list struct{ Results []quotad.CheckResult }
	if err := json.Unmarshal([]byte(a.body), &list); err != nil || a.status != http.StatusOK {
		t.Fatalf("%d %s (%v)", a.status, a.body, err)
	}
	for _, r := range list.Results {
		all = append(all, r.Status)
	}
	return all
}

// times is so many times the check.
func times(n int, check string) string { return strings.TrimSuffix(strings.Repeat(check+",", n), ",") }

// A cost that is no number of units hands nothing out, wherever it stands in a list, and
// what it stands beside is counted once.
func TestOddCostsInAListHandNothingOut(t *testing.T) {
	each(t, func(t *testing.T, stores []string) {
		n := start(t, stores)
		for _, algorithm := range quotad.Algorithms {
			_, key := n.customer(strings.ReplaceAll(string(algorithm), "_", "-"), 10, map[string]any{"algorithm": algorithm})
			left := func() string {
				t.Helper()
				a := n.metered(http.MethodGet, "/v1/limits?route_group=default", nil, key)
				return fmt.Sprint(a.object(t)["route_groups"].([]any)[0].(map[string]any)["limits"].([]any)[0].(map[string]any)["remaining"])
			}
			const peek, unit = `{"route_group":"default","cost":0}`, `{"route_group":"default","cost":1}`
			if got := n.checks(`{"checks":[`+times(100, peek)+`]}`, key).statuses(t); slices.Max(got) != 200 || left() != "10" {
				t.Errorf("%s: peeks: %v, %s left", algorithm, got, left())
			}
			for _, cost := range []string{"-1", "-0", "0.5", "1e3", "NaN", `" 3"`, "+3", "99999999999999999999", "", `1,"cost":1`} {
				odd := `{"route_group":"default","cost":` + cost + `}`
				a := n.checks(`{"checks":[`+odd+`,`+odd+`]}`, key)
				if json.Valid([]byte(odd)) {
					if diff := cmp.Diff([]int{400, 400}, a.statuses(t)); diff != "" {
						t.Errorf("%s: cost %s: %s", algorithm, cost, a.body)
					}
				} else if a.status != 400 || a.object(t)["error"] != "invalid_cost" {
					t.Errorf("%s: cost %s: %d %s", algorithm, cost, a.status, a.body)
				}
				if left() != "10" {
					t.Fatalf("%s: cost %s left %s", algorithm, cost, left())
				}
			}
			got := n.checks(`{"checks":[`+times(4, unit)+`,{"route_group":"default","cost":-5},{"route_group":"default","cost":6},`+times(2, unit)+`]}`, key).statuses(t)
			if diff := cmp.Diff([]int{200, 200, 200, 200, 400, 200, 429, 429}, got); diff != "" || left() != "0" {
				t.Errorf("%s: %s left\n%s", algorithm, left(), diff)
			}
			if a := n.checks(`{"checks":[`+times(100, unit)+`]}`, key); slices.Min(a.statuses(t)) != 429 {
				t.Errorf("%s: beyond the limit: %s", algorithm, a.body)
			}
			if a := n.checks(`{"checks":[`+times(101, unit)+`]}`, key); a.status != 400 || a.header.Get("X-RateLimit-Limit") != "" {
				t.Errorf("%s: a hundred and one: %d %s", algorithm, a.status, a.body)
			}
		}
	})
}

// A service asks for many tenants at once through the Go client, over two nodes.
func TestAListOfManyTenantsByTheClient(t *testing.T) {
	each(t, func(t *testing.T, stores []string) {
		nodes := []*testNode{start(t, stores)}
		if len(stores) > 1 {
			nodes = append(nodes, start(t, stores))
		}
		token := nodes[0].must(http.MethodPost, "/admin-tokens", map[string]any{"name": "api", "role": "service"})["secret"].(string)
		nodes[0].tier("small", 7, nil)
		var questions []quotad.CheckRequest
		for i := range 25 {
			nodes[0].tenant(fmt.Sprint("t", i), "small")
		}
		for i := range 100 {
			questions = append(questions, quotad.CheckRequest{Tenant: fmt.Sprint("t", i%25), Method: "GET", Path: "/v1/things", Cost: quotad.Units(1)})
		}
		admitted := map[string]int{}
		for round := range 4 {
			client, err := quotad.NewClient(nodes[round%len(nodes)].api, quotad.ClientOptions{ServiceToken: quotad.Credential(token), Timeout: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			results, err := client.CheckAll(t.Context(), questions)
			if err != nil || len(results) != len(questions) {
				t.Fatalf("%d results, %v", len(results), err)
			}
			for i, r := range results {
				tenant := questions[i].Tenant
				switch {
				case r.Decision != nil && r.Decision.Tenant == tenant && int(r.Decision.Limits[0].Remaining) == 6-admitted[tenant]:
					admitted[tenant]++
				case r.Problem == nil || r.Status != http.StatusTooManyRequests || admitted[tenant] != 7 || r.Problem.Limits[0].Remaining != 0:
					t.Errorf("round %d, check %d: %+v %+v", round, i, r.Decision, r.Problem)
				}
			}
		}
		for tenant, n := range admitted {
			if n != 7 {
				t.Errorf("%s: %d admitted", tenant, n)
			}
		}
	})
}
