package main

import (
	"database/sql"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/quotad/quotad/internal/database"
)

// A secret is in the answer that made it, and nowhere else: not in logs at their most talkative, nor in any column, any
// key or value in Redis, the metrics, or any other answer.
func TestSecretsAreNowhere(t *testing.T) {
	each(t, func(t *testing.T, stores []string) {
		n := start(t, stores, "--log-level=debug")
		n.tier("ten", 10, nil)
		n.tenant("acme", "ten")
		secrets := []string{ownerToken}
		var answers strings.Builder // all but those that make a secret
		note := func(a answer) { fmt.Fprintf(&answers, "%v\n%s\n", a.header, a.body) }

		var ids []string
		for i := range 10 {
			a, err := send(testClient, http.MethodPost, n.admin+"/admin/v1/tenants/acme/keys", map[string]any{"name": "k"},
				"Authorization", "Bearer "+ownerToken, "Idempotency-Key", fmt.Sprint("key-", i))
			if err != nil || a.status != http.StatusCreated {
				t.Fatalf("create a key: %d %s %v", a.status, a.body, err)
			}
			created := a.object(t)
			ids, secrets = append(ids, created["id"].(string)), append(secrets, created["secret"].(string))
			again, err := send(testClient, http.MethodPost, n.admin+"/admin/v1/tenants/acme/keys", map[string]any{"name": "k"},
				"Authorization", "Bearer "+ownerToken, "Idempotency-Key", fmt.Sprint("key-", i))
			if err != nil {
				t.Fatal(err)
			}
			note(again)
			rotated := n.must(http.MethodPost, "/keys/"+ids[i]+"/rotate", map[string]any{"grace_seconds": 60})
			secrets = append(secrets, rotated["secret"].(string))
		}
		service := n.must(http.MethodPost, "/admin-tokens", map[string]any{"name": "gateway", "role": "service"})["secret"].(string)
		secrets = append(secrets, service)

		for _, s := range secrets {
			for _, method := range []string{http.MethodGet, http.MethodPost} { // allowed, wrong method
				note(n.metered(method, "/v1/ping", nil, s))
			}
			note(n.metered(http.MethodGet, "/v1/ping?api_key="+s, nil, ""))
			note(n.metered(http.MethodPost, "/v1/authorize/x/"+s, nil, s))
			note(n.metered(http.MethodGet, "/v1/limits", nil, s))
			note(n.ping(s[:len(s)-1] + "0")) // mistyped
			a, err := send(testClient, http.MethodPost, n.api+"/v1/check", map[string]any{"tenant": "acme", "route_group": "default", "subject": "s"},
				"Authorization", "Bearer "+s)
			if err != nil {
				t.Fatal(err)
			}
			note(a)
			if a, err = send(testClient, http.MethodGet, n.admin+"/admin/v1/keys/"+ids[0], nil, "Authorization", "Bearer "+s+"x"); err != nil {
				t.Fatal(err)
			}
			note(a)
		}
		for i, id := range ids {
			if i%2 == 0 {
				note(n.operate(http.MethodDelete, "/keys/"+id, nil))
			}
			note(n.operate(http.MethodGet, "/keys/"+id, nil))
		}
		for _, path := range []string{"/tenants/acme/keys", "/tenants/acme", "/admin-tokens", "/audit-events?limit=500"} {
			note(n.operate(http.MethodGet, path, nil))
		}
		metrics, err := send(testClient, http.MethodGet, n.admin+"/metrics", nil)
		if err != nil {
			t.Fatal(err)
		}
		n.stop()

		places := map[string]string{
			"an answer": answers.String(), "the metrics": metrics.body, "the log": n.stderr.String(), "standard output": n.stdout.String(),
			"the database": dumpDatabase(t, stores), "Redis": dumpRedis(t, stores),
		}
		for _, s := range secrets {
			for place, text := range places {
				for _, form := range []string{s, s[len(s)/2:], s[:len(s)-6]} { // all of it, its end, without its checksum
					if at := strings.Index(text, form); at >= 0 {
						t.Errorf("a secret stands in %s: …%s…", place, text[max(0, at-200):min(len(text), at+100)])
						break
					}
				}
			}
		}
		if !strings.Contains(places["the database"], ids[0]) || !strings.Contains(places["the log"], `"level":"DEBUG"`) && !strings.Contains(places["the log"], `"level":"INFO"`) {
			t.Error("the search looked in the wrong places")
		}
	})
}

// setting returns a variable of an environment.
func setting(environ []string, name string) string {
	for _, v := range environ {
		if rest, ok := strings.CutPrefix(v, name+"="); ok {
			return rest
		}
	}
	return ""
}

// dumpDatabase is every column of every row; of SQLite the bytes of its files too.
func dumpDatabase(t *testing.T, stores []string) string {
	t.Helper()
	url := setting(stores, "QUOTAD_DATABASE_URL")
	db, err := database.OpenDirect(url)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	tables := "SELECT table_name FROM information_schema.tables WHERE table_schema = current_schema()"
	path, embedded := strings.CutPrefix(url, "sqlite://")
	if embedded {
		tables = "SELECT name FROM sqlite_master WHERE type = 'table'"
	}
	var dump strings.Builder
	for _, table := range query(t, db, tables) {
		for _, row := range query(t, db, `SELECT * FROM "`+table+`"`) {
			fmt.Fprintln(&dump, table, row)
		}
	}
	if embedded {
		files, err := filepath.Glob(path + "*")
		if err != nil || len(files) == 0 {
			t.Fatalf("the files of %s: %v", path, err)
		}
		for _, file := range files {
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			dump.Write(raw)
		}
	}
	return dump.String()
}

// query returns the rows of a query as text.
func query(t *testing.T, db *sql.DB, text string) []string {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), text)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for rows.Next() {
		cells, into := make([]sql.RawBytes, len(columns)), make([]any, len(columns))
		for i := range cells {
			into[i] = &cells[i]
		}
		if err := rows.Scan(into...); err != nil {
			t.Fatal(err)
		}
		row := make([]string, len(cells))
		for i, c := range cells {
			row[i] = string(c)
		}
		found = append(found, strings.Join(row, " "))
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return found
}

// dumpRedis is every key under the test's prefix with its value; "" without Redis.
func dumpRedis(t *testing.T, stores []string) string {
	t.Helper()
	url := setting(stores, "QUOTAD_REDIS_URL")
	if url == "" {
		return ""
	}
	options, err := redis.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(options)
	defer client.Close()
	var dump strings.Builder
	for keys := client.Scan(t.Context(), 0, setting(stores, "QUOTAD_REDIS_PREFIX")+"*", 1000).Iterator(); keys.Next(t.Context()); {
		key := keys.Val()
		var value any
		switch kind := client.Type(t.Context(), key).Val(); kind {
		case "hash":
			value = client.HGetAll(t.Context(), key).Val()
		case "string":
			value = client.Get(t.Context(), key).Val()
		default:
			t.Errorf("%s is a %s: this test can't read it", key, kind)
		}
		fmt.Fprintln(&dump, key, value)
	}
	if dump.Len() == 0 {
		t.Error("nothing is in Redis")
	}
	return dump.String()
}

// Whatever callers send, the metrics keep their number.
func TestMetricsDoNotGrowWithCallers(t *testing.T) {
	t.Parallel()
	n := start(t, embedded(t))
	_, key := n.customer("acme", 1000, nil)
	series := func() int {
		a, err := send(testClient, http.MethodGet, n.admin+"/metrics", nil)
		if err != nil || a.status != http.StatusOK {
			t.Fatalf("%d %v", a.status, err)
		}
		return strings.Count(a.body, "\n")
	}
	_ = n.ping(key)
	before := series()
	for i := range 200 {
		n.ping(fmt.Sprint("qk_unknown", i))
		n.metered(http.MethodPost, fmt.Sprint("/v1/authorize/path/", i), nil, key)
		n.metered(fmt.Sprint("METHOD", i), "/v1/ping", nil, key)
		n.metered(http.MethodGet, fmt.Sprint("/nowhere/", i), nil, key)
		n.operate(http.MethodGet, fmt.Sprint("/tenants/t", i), nil)
	}
	if after := series(); after > before+20 {
		t.Errorf("%d lines before, %d after", before, after)
	}
}
