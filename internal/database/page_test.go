package database_test

import (
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/database"
	"github.com/quotad/quotad/internal/database/databasetest"
)

func TestParsePage(t *testing.T) {
	t.Parallel()
	for limit, want := range map[string]int{"": 50, "1": 1, "500": 500, "7": 7} {
		p, err := database.ParsePage(limit, "c")
		if err != nil || p.Limit != want || p.After != "c" {
			t.Errorf("limit %q: got %+v and %v, want limit %d", limit, p, err, want)
		}
	}
	for _, limit := range []string{"0", "-1", "501", "1000000", "1e2", "1.5", " 1", "+-1", "many", "99999999999999999999"} {
		if _, err := database.ParsePage(limit, ""); !isInvalidRequest(err) {
			t.Errorf("limit %q: got %v, want %s", limit, err, quotad.CodeInvalidRequest)
		}
	}
}

func TestPageOutOfBoundsIsRefused(t *testing.T) {
	t.Parallel()
	for _, limit := range []int{-1, 501, 1000000} {
		if _, _, err := (database.Page{Limit: limit}).Start("tiers", new(string)); !isInvalidRequest(err) {
			t.Errorf("limit %d: got %v, want %s", limit, err, quotad.CodeInvalidRequest)
		}
	}
	rows, after, err := database.Page{}.Start("tiers", new(string))
	if rows != 51 || after || err != nil {
		t.Errorf("the zero page asks for %d rows, after a cursor: %v, %v; want 51 from the start", rows, after, err)
	}
}

func TestCursorFitsItsListAlone(t *testing.T) {
	t.Parallel()
	type position struct {
		At int64
		ID string
	}
	rows := []position{{1, "a"}, {1, "b"}, {2, "c"}}
	_, next, err := database.Cut(database.Page{Limit: 2}, "keys of acme", rows, func(p position) position { return p })
	if err != nil || next == "" {
		t.Fatalf("got cursor %q and %v", next, err)
	}
	var at position
	if _, after, err := (database.Page{After: next}).Start("keys of acme", &at); err != nil || !after || at != rows[1] {
		t.Errorf("its own list: got %+v, %v and %v, want %+v", at, after, err, rows[1])
	}
	for _, list := range []string{"keys of beta", "tiers", "", "keys of acme "} {
		if _, _, err := (database.Page{After: next}).Start(list, &at); !isInvalidRequest(err) {
			t.Errorf("list %q: got %v, want %s", list, err, quotad.CodeInvalidRequest)
		}
	}
	encoded := func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }
	for _, broken := range []string{
		"x", "!", next + "A", next[:len(next)-3], next + "=", strings.ToUpper(next), strings.Repeat("A", 1<<20),
		encoded("null"), encoded("[]"), encoded("{}"), encoded(`{"l":"keys of acme"}`),
		encoded(`{"l":"keys of acme","k":null}`), encoded(`{"l":"keys of acme","k":"text"}`),
		encoded(`{"l":"keys of acme","k":{"At":"1"}}`), encoded(`{"l":"keys of acme","k":{"More":1}}`),
		encoded(`{"l":"keys of acme","k":{"At":1},"m":1}`), encoded(`{"l":"keys of acme","k":{"At":1}} {}`),
		encoded(`{"l":"keys of acme","k":{"At":1}}}`),
	} {
		if _, _, err := (database.Page{After: broken}).Start("keys of acme", new(position)); !isInvalidRequest(err) {
			t.Errorf("cursor %.40q: got %v, want %s", broken, err, quotad.CodeInvalidRequest)
		}
	}
}

// All rows have the same time, and the list changes while it is walked.
func TestWalkSkipsAndRepeatsNothing(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		ctx := t.Context()
		const tiers = 250
		err := db.InTx(ctx, func(tx *database.Tx) error {
			for i := range tiers {
				if _, err := tx.ExecContext(ctx, insertTier, fmt.Sprintf("t%03d", i), 1, false, noon); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		var walked []string
		page := database.Page{Limit: 50}
		for pages := 1; ; pages++ {
			names, next, err := listTiers(t, db, page)
			if err != nil {
				t.Fatal(err)
			}
			walked = append(walked, names...)
			if pages == 1 {
				change(t, db, "DELETE FROM tiers WHERE name = $1", walked[0])
				for _, name := range []string{"a", "t100x", "z"} {
					mustAddTier(t, db, name)
				}
			}
			if next == "" {
				break
			}
			page.After = next
		}
		for i := range tiers {
			name := fmt.Sprintf("t%03d", i)
			if n := count(walked, name); n != 1 {
				t.Errorf("%s came %d times, want once", name, n)
			}
		}
		if !slices.IsSorted(walked) || len(slices.Compact(slices.Clone(walked))) != len(walked) {
			t.Errorf("out of order or repeated: %v", walked)
		}
	})
}

// Both engines order names byte by byte, whatever the locale of the server.
func TestNamesSortAlikeOnBothEngines(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		want := []string{"0", "a", "a-b", "a-c", "a.b", "a0", "a_b", "aa", "b"}
		for _, name := range []string{"b", "a_b", "a0", "aa", "a.b", "a-c", "a", "a-b", "0"} {
			mustAddTier(t, db, name)
		}
		got, _, err := listTiers(t, db, database.Page{})
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("got %v (%v), want %v", got, err, want)
		}
	})
}

// listTiers is a list as stores write them.
func listTiers(t *testing.T, db *database.DB, page database.Page) (names []string, next string, err error) {
	var last string // "" comes before every name
	limit, _, err := page.Start("tiers", &last)
	if err != nil {
		return nil, "", err
	}
	rows, err := db.QueryContext(t.Context(), "SELECT name FROM tiers WHERE name > $1 ORDER BY name LIMIT $2", last, limit)
	if err != nil {
		return nil, "", err
	}
	defer rows.Close()
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return nil, "", err
		}
		names = append(names, name)
	}
	if err := rows.Err(); err != nil {
		return nil, "", err
	}
	return database.Cut(page, "tiers", names, func(name string) string { return name })
}

func change(t *testing.T, db *database.DB, query string, args ...any) {
	t.Helper()
	err := db.InTx(t.Context(), func(tx *database.Tx) error {
		_, err := tx.ExecContext(t.Context(), query, args...)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func count(names []string, name string) (n int) {
	for _, s := range names {
		if s == name {
			n++
		}
	}
	return n
}

func isInvalidRequest(err error) bool {
	var known *quotad.Error
	return errors.As(err, &known) && known.Code == quotad.CodeInvalidRequest
}
