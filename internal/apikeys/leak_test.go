package apikeys_test

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/database"
	"github.com/quotad/quotad/internal/secret"
)

func TestNoSecretIsStoredOrShownAgain(t *testing.T) {
	inEach(t, func(w *world) {
		ctx := w.t.Context()
		var secrets, shown []string
		for range 20 {
			key := w.create(quotad.KeySpec{Name: "ci", RouteGroups: []string{"exports"}})
			secrets = append(secrets, key.Secret, w.rotate(key.ID, time.Hour).Secret, w.rotate(key.ID, time.Minute).Secret)
			updated, err := w.keys.Update(ctx, operator, key.ID, nil, rename("cd"))
			if err != nil {
				w.t.Fatal(err)
			}
			stored := w.find(key.Secret)
			revoked, err := w.keys.Revoke(ctx, operator, key.ID, nil)
			if err != nil {
				w.t.Fatal(err)
			}
			for _, v := range []any{updated, revoked, w.key(key.ID), stored} {
				raw, err := json.Marshal(v)
				if err != nil {
					w.t.Fatal(err)
				}
				shown = append(shown, string(raw), fmt.Sprintf("%+v %#v", v, v))
			}
		}
		listed, _, err := w.keys.Keys(ctx, "acme", database.Page{})
		if err != nil {
			w.t.Fatal(err)
		}
		raw, err := json.Marshal(listed)
		if err != nil {
			w.t.Fatal(err)
		}
		shown = append(shown, string(raw))

		columns := w.everything()
		var events, all strings.Builder
		for column, values := range columns {
			for _, v := range values {
				fmt.Fprintf(&all, "%s\n", v)
				if strings.HasPrefix(column, "events.") {
					fmt.Fprintf(&events, "%s\n", v)
				}
			}
		}
		if n := len(columns["key_secrets.hash"]); n != len(secrets) {
			w.t.Fatalf("%d hashes were found of %d secrets: not everything was looked at", n, len(secrets))
		}
		if !strings.Contains(events.String(), listed[0].Hint) {
			w.t.Fatal("the events were not looked at")
		}
		answers := strings.Join(shown, "\n")
		for _, text := range secrets {
			random := text[len("qk_")+secret.IDLen+1:]
			for what, part := range map[string]string{"a secret": text, "its random part": random[:32], "half of it": random[:16]} {
				if strings.Contains(all.String(), part) {
					w.t.Errorf("%s is in the database", what)
				}
				if strings.Contains(answers, part) {
					w.t.Errorf("%s was shown again", what)
				}
			}
			sum := secret.Hash(text)
			for _, form := range []string{string(sum[:]), hex.EncodeToString(sum[:]), base64.StdEncoding.EncodeToString(sum[:]), base64.RawURLEncoding.EncodeToString(sum[:])} {
				if strings.Contains(events.String(), form) || strings.Contains(answers, form) {
					w.t.Error("the hash of a secret was shown")
				}
			}
			found := false
			for _, hash := range columns["key_secrets.hash"] {
				found = found || bytes.Equal(hash, sum[:])
			}
			if !found {
				w.t.Error("a secret's SHA-256 is not what is stored")
			}
		}
	})
}

// everything reads every column of every table.
func (w *world) everything() map[string][][]byte {
	w.t.Helper()
	catalog := `SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = current_schema()`
	if w.db.Engine() == database.SQLite {
		catalog = `SELECT m.name, c.name FROM sqlite_master m JOIN pragma_table_info(m.name) c WHERE m.type = 'table'`
	}
	tables := map[string][]string{}
	w.rows(catalog, 2, func(v [][]byte) { tables[string(v[0])] = append(tables[string(v[0])], string(v[1])) })
	for _, table := range []string{"keys", "key_secrets", "key_route_groups", "events"} {
		if len(tables[table]) == 0 {
			w.t.Fatalf("the table %s was not found", table)
		}
	}
	all := map[string][][]byte{}
	for table, columns := range tables {
		w.rows(`SELECT `+strings.Join(columns, ", ")+` FROM `+table, len(columns), func(values [][]byte) {
			for i, v := range values {
				all[table+"."+columns[i]] = append(all[table+"."+columns[i]], v)
			}
		})
	}
	return all
}

// rows calls f with the columns of each row as bytes.
func (w *world) rows(query string, n int, f func([][]byte)) {
	w.t.Helper()
	rows, err := w.db.QueryContext(w.t.Context(), query)
	if err != nil {
		w.t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		values, dest := make([]any, n), make([]any, n)
		for i := range values {
			dest[i] = &values[i]
		}
		if err := rows.Scan(dest...); err != nil {
			w.t.Fatal(err)
		}
		bytes := make([][]byte, n)
		for i, v := range values {
			if b, ok := v.([]byte); ok {
				bytes[i] = b
			} else {
				bytes[i] = fmt.Append(nil, v)
			}
		}
		f(bytes)
	}
	if err := rows.Err(); err != nil {
		w.t.Fatal(err)
	}
}
