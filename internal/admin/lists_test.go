package admin

import (
	"encoding/base64"
	"fmt"
	"net/url"
	"slices"
	"testing"

	"github.com/quotad/quotad"
)

// walk reads a list to its end by pages, calling between before each further one.
func (w *world) walk(path string, limit int, between func(page int)) []map[string]any {
	w.t.Helper()
	var items []map[string]any
	cursor, separator := "", "?"
	if u, _ := url.Parse(path); u.RawQuery != "" {
		separator = "&"
	}
	for i := 0; ; i++ {
		query := fmt.Sprintf("%s%slimit=%d", path, separator, limit)
		if cursor != "" {
			between(i)
			query += "&cursor=" + url.QueryEscape(cursor)
		}
		got := as[page[map[string]any]](w.call("GET", query, nil).is(200))
		if len(got.Items) > limit {
			w.t.Fatalf("a page of %d has %d items", limit, len(got.Items))
		}
		items = append(items, got.Items...)
		if cursor = got.NextCursor; cursor == "" {
			return items
		}
		if len(got.Items) != limit {
			w.t.Fatalf("a page that is not the last has %d items", len(got.Items))
		}
		if i > 1000 {
			w.t.Fatal("the list has no end")
		}
	}
}

func values(items []map[string]any, field string) []string {
	var all []string
	for _, item := range items {
		all = append(all, fmt.Sprint(item[field]))
	}
	return all
}

// Rows that are made in one instant have equal times; rows come and go while the
// list is read. What was there throughout is listed once.
func TestListsNeitherSkipNorRepeat(t *testing.T) {
	const total = 60
	each(t, Options{}, func(t *testing.T, w *world) {
		w.aTenant("acme")
		lists := map[string]struct {
			collection, field, item string
			create                  func(i int) string
		}{
			"tiers": {"/admin/v1/tiers", "name", "/admin/v1/tiers/", func(i int) string {
				return fmt.Sprintf(`{"name":"x%03d","rate_limit":1,"rate_window":1}`, i)
			}},
			"tenants": {"/admin/v1/tenants", "id", "/admin/v1/tenants/", func(i int) string {
				return fmt.Sprintf(`{"id":"x%03d","name":"X","tier":"tier-of-acme"}`, i)
			}},
			"route groups": {"/admin/v1/route-groups", "name", "/admin/v1/route-groups/", func(i int) string {
				return fmt.Sprintf(`{"name":"x%03d"}`, i)
			}},
			"keys": {"/admin/v1/tenants/acme/keys", "id", "/admin/v1/keys/", func(int) string { return `{}` }},
			"admin tokens": {"/admin/v1/admin-tokens", "id", "/admin/v1/admin-tokens/", func(i int) string {
				return fmt.Sprintf(`{"name":"x%03d","role":"viewer"}`, i)
			}},
		}
		for name, l := range lists {
			create := func(i int) string {
				made := fields(t, w.call("POST", l.collection, l.create(i)).is(201).body)
				if secret, ok := made["secret"].(string); ok {
					w.remembers(secret)
				}
				return made[l.field].(string)
			}
			var there []string
			for i := range total {
				there = append(there, create(i))
			}
			gone := there[3]
			items := values(w.walk(l.collection, 7, func(page int) {
				if page == 2 {
					w.call("DELETE", l.item+gone, nil).is(204)
					for i := range 3 {
						create(total + i)
					}
				}
			}), l.field)
			if unique := slices.Compact(slices.Sorted(slices.Values(items))); len(unique) != len(items) {
				t.Errorf("%s: %d items, %d of them different", name, len(items), len(unique))
			}
			for _, id := range there {
				if id != gone && !slices.Contains(items, id) {
					t.Errorf("%s: %s is missing", name, id)
				}
			}
		}
		// The log has a row for each of those writes; read it while more come.
		before := len(w.walk("/admin/v1/audit-events", 500, func(int) {}))
		events := values(w.walk("/admin/v1/audit-events", 50, func(page int) {
			w.call("POST", "/admin/v1/route-groups", fmt.Sprintf(`{"name":"y%03d"}`, page)).is(201)
		}), "id")
		if unique := slices.Compact(slices.Sorted(slices.Values(events))); len(unique) != before || len(events) != before {
			t.Errorf("events: %d items, %d different, of %d", len(events), len(unique), before)
		}
	})
}

func TestPagesThatAreNone(t *testing.T) {
	each(t, Options{}, func(t *testing.T, w *world) {
		w.aTenant("acme")
		w.aTenant("other")
		for range 2 {
			w.aKey("acme")
			w.aKey("other")
		}
		lists := []string{
			"/admin/v1/tiers", "/admin/v1/tenants", "/admin/v1/tenants/acme/keys", "/admin/v1/tenants/other/keys",
			"/admin/v1/admin-tokens", "/admin/v1/audit-events", "/admin/v1/audit-events?tenant=acme", "/admin/v1/audit-events?since=2026-01-01T00:00:00Z",
		}
		cursors := map[string]string{}
		with := func(path, query string) string {
			if u, _ := url.Parse(path); u.RawQuery != "" {
				return path + "&" + query
			}
			return path + "?" + query
		}
		for _, path := range lists {
			for _, limit := range []string{"0", "-1", "501", "1000000", "1e2", "x", "%20", "9223372036854775808", "5.0"} {
				w.call("GET", with(path, "limit="+limit), nil).refuses(quotad.CodeInvalidRequest)
			}
			for _, cursor := range []string{"x", "%00", "e30", base64.RawURLEncoding.EncodeToString([]byte(`{"l":"tiers"}`)), "a%20b"} {
				w.call("GET", with(path, "cursor="+cursor), nil).refuses(quotad.CodeInvalidRequest)
			}
			w.call("GET", with(path, "limit=500"), nil).is(200)
			next := as[page[map[string]any]](w.call("GET", with(path, "limit=1"), nil).is(200)).NextCursor
			if next == "" {
				t.Fatalf("%s has one page", path)
			}
			cursors[path] = next
			for i := range next {
				broken := next[:i] + next[i+1:]
				got := w.call("GET", with(path, "cursor="+broken), nil)
				if got.status != 200 { // a cut may leave a cursor that names another row
					got.refuses(quotad.CodeInvalidRequest)
				}
			}
		}
		for from, cursor := range cursors {
			for _, path := range lists {
				if got := w.call("GET", with(path, "cursor="+cursor), nil); path != from {
					got.refuses(quotad.CodeInvalidRequest)
				} else {
					got.is(200)
				}
			}
		}
	})
}

func TestListsAreEmptyNotNull(t *testing.T) {
	each(t, Options{}, func(t *testing.T, w *world) {
		if got := string(w.call("GET", "/admin/v1/tenants", nil).is(200).body); got != `{"items":[],"next_cursor":""}`+"\n" {
			t.Errorf("got %s", got)
		}
	})
}
