package events_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/database"
	"github.com/quotad/quotad/internal/database/databasetest"
	"github.com/quotad/quotad/internal/events"
	"github.com/quotad/quotad/internal/secret"
)

var (
	noon = time.Date(2026, 11, 30, 12, 0, 0, 123456789, time.UTC)
	anna = quotad.Actor{Type: "admin_token", ID: "t1", Name: "anna", RequestID: "r-1", Address: "192.0.2.7"}
)

func newLog(db *database.DB) *events.Log {
	return events.NewLog(db, events.Options{Now: func() time.Time { return noon }})
}

// record writes one event in a transaction of its own.
func record(ctx context.Context, db *database.DB, log *events.Log, target, tenant string) error {
	return db.InTx(ctx, func(tx *database.Tx) error {
		return log.Record(ctx, tx, anna, "tier.updated", quotad.ResourceTier, target, tenant, 2, map[string]int{"rate_limit": 1}, map[string]int{"rate_limit": 2})
	})
}

func mustRecord(t *testing.T, db *database.DB, log *events.Log, target, tenant string) {
	t.Helper()
	if err := record(t.Context(), db, log, target, tenant); err != nil {
		t.Fatal(err)
	}
}

func list(t *testing.T, log *events.Log, f events.Filter) []quotad.Event {
	t.Helper()
	items, _, err := log.Events(t.Context(), f, database.Page{Limit: 500})
	if err != nil {
		t.Fatal(err)
	}
	return items
}

func TestEventIsPartOfItsTransaction(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		ctx := t.Context()
		log := newLog(db)
		var told []events.Notice
		log.Subscribe(func(n events.Notice) { told = append(told, n) }, func() { t.Error("resync without a cause") })
		spec := quotad.TierSpec{Name: "pro", RateLimit: quotad.Units(1)}
		refused := errors.New("no")
		err := db.InTx(ctx, func(tx *database.Tx) error {
			if err := log.Record(ctx, tx, anna, "tier.created", quotad.ResourceTier, "pro", "", 1, nil, spec); err != nil {
				t.Error(err)
			}
			return refused
		})
		if !errors.Is(err, refused) {
			t.Fatal(err)
		}
		if got := list(t, log, events.Filter{}); len(got) > 0 || told != nil {
			t.Errorf("a rolled-back edit left %d events and told %v", len(got), told)
		}

		var missing *quotad.TierSpec
		err = db.InTx(ctx, func(tx *database.Tx) error {
			if err := log.Record(ctx, tx, anna, "tier.created", quotad.ResourceTier, "pro", "", 1, missing, spec); err != nil {
				return err
			}
			err := log.Record(ctx, tx, quotad.Actor{Type: "command"}, "tenant.deleted", quotad.ResourceTenant, "acme", "acme", 4, quotad.TenantSpec{ID: "acme"}, nil)
			if told != nil {
				t.Error("told before the commit")
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		// Told when InTx returns.
		if diff := cmp.Diff([]events.Notice{
			{Resource: quotad.ResourceTier, ID: "pro", Version: 1},
			{Resource: quotad.ResourceTenant, ID: "acme", Tenant: "acme", Version: 4},
		}, told); diff != "" {
			t.Errorf("told (-want +got):\n%s", diff)
		}
		after, before := marshal(t, spec), marshal(t, quotad.TenantSpec{ID: "acme"})
		want := []quotad.Event{ // the newest first
			{At: noon.Truncate(time.Microsecond), Action: "tenant.deleted", Actor: quotad.Actor{Type: "command"},
				Resource: quotad.ResourceTenant, Target: "acme", Tenant: "acme", Before: before},
			{At: noon.Truncate(time.Microsecond), Action: "tier.created", Actor: anna,
				Resource: quotad.ResourceTier, Target: "pro", After: after},
		}
		got := list(t, log, events.Filter{})
		if len(got) == 2 && got[0].ID <= got[1].ID {
			t.Errorf("ids do not fall: %d before %d", got[0].ID, got[1].ID)
		}
		for i := range got {
			got[i].ID = 0
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
	})
}

func marshal(t *testing.T, v any) json.RawMessage {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func TestNoSecretIsRecorded(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		ctx := t.Context()
		log := newLog(db)
		s, id := secret.Mint(secret.APIKey, noon)
		token, _ := secret.Mint(secret.AdminToken, noon)
		for name, resource := range map[string]any{
			"a key with its secret":   quotad.Key{ID: id, Secret: "x"},
			"a token with its secret": &quotad.AdminToken{Secret: token.Reveal()},
			"in another hand":         map[string]any{"Secret": "x"},
		} {
			for _, pair := range [][2]any{{resource, nil}, {nil, resource}} {
				err := db.InTx(ctx, func(tx *database.Tx) error {
					return log.Record(ctx, tx, anna, "key.created", quotad.ResourceKey, id, "acme", 1, pair[0], pair[1])
				})
				if err == nil {
					t.Errorf("%s is recorded", name)
				}
			}
		}
		if got := list(t, log, events.Filter{}); len(got) > 0 {
			t.Errorf("refused events left %d rows", len(got))
		}

		// What an operator pasted somewhere is replaced, and the write goes through.
		tenant := quotad.TenantSpec{ID: "acme", Name: "key " + s.Reveal(), Metadata: map[string]any{"secret": "ours", "token": token.Reveal()}}
		err := db.InTx(ctx, func(tx *database.Tx) error {
			return log.Record(ctx, tx, anna, "tenant.created", quotad.ResourceTenant, "acme", "acme", 1, nil, tenant)
		})
		if err != nil {
			t.Fatal(err)
		}
		var stored quotad.TenantSpec
		if err := json.Unmarshal(list(t, log, events.Filter{})[0].After, &stored); err != nil {
			t.Fatal(err)
		}
		if stored.Name != "key [redacted]" || stored.Metadata["token"] != "[redacted]" || stored.Metadata["secret"] != "ours" {
			t.Errorf("recorded as %+v", stored)
		}
	})
}

func TestEventOfNobodyIsRefused(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		log := newLog(db)
		err := db.InTx(t.Context(), func(tx *database.Tx) error {
			return log.Record(t.Context(), tx, quotad.Actor{}, "tier.created", quotad.ResourceTier, "pro", "", 1, nil, nil)
		})
		if !errors.Is(err, quotad.ErrInvalidFields) {
			t.Errorf("got %v, want %v", err, quotad.ErrInvalidFields)
		}
	})
}

func TestEventsAreFiltered(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		ctx := t.Context()
		now := noon
		log := events.NewLog(db, events.Options{Now: func() time.Time { now = now.Add(time.Minute); return now }})
		bert := anna
		bert.ID = "t2"
		err := db.InTx(ctx, func(tx *database.Tx) error {
			return errors.Join(
				log.Record(ctx, tx, anna, "tier.created", quotad.ResourceTier, "one", "", 1, nil, nil),
				log.Record(ctx, tx, bert, "tenant.created", quotad.ResourceTenant, "two", "two", 1, nil, nil),
				log.Record(ctx, tx, anna, "key.created", quotad.ResourceKey, "three", "two", 1, nil, nil),
				log.Record(ctx, tx, bert, "key.created", quotad.ResourceKey, "four", "other", 1, nil, nil),
			)
		})
		if err != nil {
			t.Fatal(err)
		}
		at := func(minutes int) time.Time { return noon.Add(time.Duration(minutes) * time.Minute) }
		for _, c := range []struct {
			filter events.Filter
			want   []string
		}{
			{events.Filter{}, []string{"four", "three", "two", "one"}},
			{events.Filter{Tenant: "two"}, []string{"three", "two"}},
			{events.Filter{Resource: quotad.ResourceKey}, []string{"four", "three"}},
			{events.Filter{Target: "one"}, []string{"one"}},
			{events.Filter{Action: "key.created", ActorID: "t1"}, []string{"three"}},
			{events.Filter{Tenant: "two", Resource: quotad.ResourceTier}, []string{}},
			{events.Filter{Tenant: "two' OR '1' = '1"}, []string{}},
			{events.Filter{Since: at(2)}, []string{"four", "three", "two"}},
			{events.Filter{Until: at(2)}, []string{"one"}},
			{events.Filter{Since: at(2), Until: at(4)}, []string{"three", "two"}},
		} {
			got := []string{}
			for _, e := range list(t, log, c.filter) {
				got = append(got, e.Target)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("%+v (-want +got):\n%s", c.filter, diff)
			}
		}
		for _, f := range []events.Filter{{Tenant: "a\x00"}, {Target: "\xff"}} {
			if _, _, err := log.Events(ctx, f, database.Page{}); !isInvalidRequest(err) {
				t.Errorf("%+q: got %v, want %s", f, err, quotad.CodeInvalidRequest)
			}
		}
	})
}

func TestWalkOfEventsSkipsAndRepeatsNothing(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		ctx := t.Context()
		log := newLog(db)
		const n = 250
		err := db.InTx(ctx, func(tx *database.Tx) error { // all at the same time
			for i := range n {
				if err := log.Record(ctx, tx, anna, "tier.created", quotad.ResourceTier, fmt.Sprint(i), "acme", 1, nil, nil); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		page := database.Page{Limit: 50}
		var walked []string
		var cursor string
		for {
			items, next, err := log.Events(ctx, events.Filter{Tenant: "acme"}, page)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range items {
				walked = append(walked, e.Target)
			}
			if next == "" {
				break
			}
			mustRecord(t, db, log, "new", "acme")
			page.After, cursor = next, next
		}
		var want []string
		for i := range n {
			want = append(want, fmt.Sprint(n-1-i))
		}
		if diff := cmp.Diff(want, walked); diff != "" {
			t.Errorf("walked (-want +got):\n%s", diff)
		}
		for name, c := range map[string]struct {
			f events.Filter
			p database.Page
		}{
			"cursor of another tenant": {events.Filter{Tenant: "beta"}, database.Page{After: cursor}},
			"cursor of another filter": {events.Filter{}, database.Page{After: cursor}},
			"broken cursor":            {events.Filter{Tenant: "acme"}, database.Page{After: "x"}},
			"limit below 1":            {events.Filter{Tenant: "acme"}, database.Page{Limit: -1}},
			"limit above 500":          {events.Filter{Tenant: "acme"}, database.Page{Limit: 1000000}},
		} {
			if _, _, err := log.Events(ctx, c.f, c.p); !isInvalidRequest(err) {
				t.Errorf("%s: got %v, want %s", name, err, quotad.CodeInvalidRequest)
			}
		}
	})
}

func isInvalidRequest(err error) bool {
	var known *quotad.Error
	return errors.As(err, &known) && known.Code == quotad.CodeInvalidRequest
}
