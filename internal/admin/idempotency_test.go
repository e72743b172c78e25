package admin

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quotad/quotad"
)

func idempotencyKeyIs(key string) with { return with{"Idempotency-Key", key} }

func TestAPostIsAnsweredAgainAsTheFirstTime(t *testing.T) {
	each(t, Options{}, func(t *testing.T, w *world) {
		const body = `{"name":"pro","description":"<b>","rate_limit":1,"rate_window":1}`
		first := w.call("POST", "/admin/v1/tiers", body, idempotencyKeyIs("k")).is(201)
		if first.header.Get("Idempotency-Replayed") != "" {
			t.Error("the first answer says that it is a repetition")
		}
		again := w.call("POST", "/admin/v1/tiers", body, idempotencyKeyIs("k")).is(201)
		if again.header.Get("Idempotency-Replayed") != "true" {
			t.Error("the repetition does not say so")
		}
		if !bytes.Equal(first.body, again.body) {
			t.Errorf("got %s, then %s", first.body, again.body)
		}
		for _, name := range []string{"Location", "ETag", "Content-Type", "Cache-Control"} {
			if first.header.Get(name) != again.header.Get(name) {
				t.Errorf("%s is %q, then %q", name, first.header.Get(name), again.header.Get(name))
			}
		}
		w.call("POST", "/admin/v1/tiers", body+" ", idempotencyKeyIs("k")).refuses(quotad.CodeIdempotencyMismatch)
		w.call("POST", "/admin/v1/tenants", body, idempotencyKeyIs("k")).refuses(quotad.CodeIdempotencyMismatch)
		w.call("POST", "/admin/v1/tiers", body, idempotencyKeyIs("k"), w.as(quotad.RoleOperator)).refuses(quotad.CodeExists) // another actor
		w.call("POST", "/admin/v1/tiers", body, idempotencyKeyIs("k"), w.as(quotad.RoleViewer)).refuses(quotad.CodeForbidden)
		w.clock.Advance(24 * time.Hour)
		w.call("POST", "/admin/v1/tiers", body, idempotencyKeyIs("k")).refuses(quotad.CodeExists)
	})
}

func TestARepeatedAnswerHasNoSecret(t *testing.T) {
	each(t, Options{}, func(t *testing.T, w *world) {
		w.aTenant("acme")
		first := w.call("POST", "/admin/v1/tenants/acme/keys", `{"name":"<ci>"}`, idempotencyKeyIs("k1")).is(201)
		key := as[quotad.Key](first)
		w.remembers(key.Secret)
		again := w.call("POST", "/admin/v1/tenants/acme/keys", `{"name":"<ci>"}`, idempotencyKeyIs("k1")).is(201)
		want := fields(t, first.body)
		delete(want, "secret")
		if diff := cmp.Diff(want, fields(t, again.body)); diff != "" {
			t.Error(diff)
		}
		rotate := "/admin/v1/keys/" + key.ID + "/rotate"
		rotated := as[quotad.Key](w.call("POST", rotate, `{"grace_seconds":5}`, idempotencyKeyIs("k2")).is(200))
		w.remembers(rotated.Secret)
		if got := as[quotad.Key](w.call("POST", rotate, `{"grace_seconds":5}`, idempotencyKeyIs("k2")).is(200)); got.Secret != "" || got.Version != rotated.Version {
			t.Errorf("got %+v", got)
		}
		token := as[quotad.AdminToken](w.call("POST", "/admin/v1/admin-tokens", `{"name":"x","role":"viewer"}`, idempotencyKeyIs("k3")).is(201))
		w.remembers(token.Secret)
		w.call("POST", "/admin/v1/admin-tokens", `{"name":"x","role":"viewer"}`, idempotencyKeyIs("k3")).is(201)
		if keys := as[page[quotad.Key]](w.call("GET", "/admin/v1/tenants/acme/keys", nil).is(200)); len(keys.Items) != 1 {
			t.Errorf("there are %d keys", len(keys.Items))
		}
		rows, err := w.db.QueryContext(t.Context(), `SELECT body FROM idempotency`)
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		kept := 0
		for ; rows.Next(); kept++ {
			var body string
			if err := rows.Scan(&body); err != nil {
				t.Fatal(err)
			}
			for _, secret := range []string{key.Secret, rotated.Secret, token.Secret} {
				if strings.Contains(body, secret) {
					t.Errorf("a secret is kept: %s", body)
				}
			}
		}
		if kept != 3 || rows.Err() != nil {
			t.Errorf("%d answers are kept, %v", kept, rows.Err())
		}
	})
}

func TestAFailedPostCanBeSentAgain(t *testing.T) {
	each(t, Options{}, func(t *testing.T, w *world) {
		w.call("POST", "/admin/v1/tenants", `{"id":"a","name":"A","tier":"pro"}`, idempotencyKeyIs("k")).refuses(quotad.CodeInvalidFields)
		w.aTier("pro")
		w.call("POST", "/admin/v1/tenants", `{"id":"a","name":"A","tier":"pro"}`, idempotencyKeyIs("k")).is(201)
	})
}

func TestOfManyEqualPostsOneIsDone(t *testing.T) {
	each(t, Options{}, func(t *testing.T, w *world) {
		w.aTenant("acme")
		const calls = 16
		var mu sync.Mutex
		statuses := map[int]int{}
		secrets := 0
		var wg sync.WaitGroup
		for range calls {
			wg.Go(func() {
				got, err := w.try("POST", "/admin/v1/tenants/acme/keys", `{"name":"one"}`, idempotencyKeyIs("k"))
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				defer mu.Unlock()
				statuses[got.status]++
				if got.status == http.StatusCreated && as[quotad.Key](got).Secret != "" {
					secrets++
				}
			})
		}
		wg.Wait()
		if statuses[201] < 1 || statuses[201]+statuses[409] != calls || secrets != 1 {
			t.Errorf("got %v, and the secret %d times", statuses, secrets)
		}
		if keys := as[page[quotad.Key]](w.call("GET", "/admin/v1/tenants/acme/keys", nil).is(200)); len(keys.Items) != 1 {
			t.Errorf("there are %d keys", len(keys.Items))
		}
	})
}

func TestIdempotencyKeysThatAreNone(t *testing.T) {
	each(t, Options{}, func(t *testing.T, w *world) {
		for i, key := range []string{strings.Repeat("a", 256), "é", "a\tb"} {
			w.call("POST", "/admin/v1/tiers", `{"name":"t`+fmt.Sprint(i)+`","rate_limit":1,"rate_window":1}`, idempotencyKeyIs(key)).
				refuses(quotad.CodeInvalidRequest)
		}
		w.call("POST", "/admin/v1/tiers", `{"name":"a","rate_limit":1,"rate_window":1}`, idempotencyKeyIs(strings.Repeat("a", 255))).is(201)
	})
}
