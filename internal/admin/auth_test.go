package admin

import (
	"context"
	"fmt"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/admintokens"
	"github.com/quotad/quotad/internal/database/databasetest"
)

// spoofs are headers by which clients name another address.
func spoofs(i int) []with {
	address := fmt.Sprintf("198.51.100.%d", i)
	return []with{
		{"X-Forwarded-For", address}, {"X-Real-IP", address}, {"True-Client-IP", address},
		{"CF-Connecting-IP", address}, {"Forwarded", "for=" + address},
	}
}

func TestWrongTokensBlockTheirAddress(t *testing.T) {
	each(t, Options{FailedLogins: 5}, func(t *testing.T, w *world) {
		wrong := with{"Authorization", "Bearer qa_0000000000000000_guess"}
		for i := range 5 {
			w.call("GET", "/admin/v1/tiers", nil, append(spoofs(i), wrong)...).refuses(quotad.CodeUnauthorized)
		}
		for i := range 15 {
			got := w.call("GET", "/admin/v1/tiers", nil, append(spoofs(i), wrong)...)
			got.refuses(quotad.CodeRateLimitExceeded)
			if seconds, _ := strconv.Atoi(got.header.Get("Retry-After")); seconds < 1 || seconds > 12 {
				t.Errorf("Retry-After is %q", got.header.Get("Retry-After"))
			}
		}
		// The right one learns no more than the wrong ones, and works again after the wait.
		w.call("GET", "/admin/v1/tiers", nil).refuses(quotad.CodeRateLimitExceeded)
		w.clock.Advance(12 * time.Second)
		w.call("GET", "/admin/v1/tiers", nil).is(200)
		// Right ones, and none at all, are not counted.
		for range 20 {
			w.call("GET", "/admin/v1/tiers", nil, with{"Authorization", ""}).refuses(quotad.CodeUnauthorized)
			w.call("GET", "/admin/v1/tiers", nil, w.as(quotad.RoleViewer)).is(200)
		}
	})
}

func TestTrustedProxiesNameTheClient(t *testing.T) {
	loopback := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("10.0.0.0/8")}
	each(t, Options{FailedLogins: 2, TrustedProxies: loopback}, func(t *testing.T, w *world) {
		wrong := with{"Authorization", "Bearer guess-guess-guess"}
		from := func(hops string) with { return with{"X-Forwarded-For", hops} }
		for i := range 2 {
			w.call("GET", "/admin/v1/tiers", nil, wrong, from(fmt.Sprintf("203.0.113.%d, 198.51.100.7, 10.1.1.1", i))).is(401)
		}
		w.call("GET", "/admin/v1/tiers", nil, wrong, from("203.0.113.9, 198.51.100.7")).is(429)
		w.call("GET", "/admin/v1/tiers", nil, wrong, from("198.51.100.7, 198.51.100.8")).is(401)
		w.call("POST", "/admin/v1/tiers", `{"name":"a","rate_limit":1,"rate_window":1}`, from("1.1.1.1, 198.51.100.9, 10.2.2.2")).is(201)
		events := as[page[quotad.Event]](w.call("GET", "/admin/v1/audit-events?resource=tier", nil, from("198.51.100.9")).is(200))
		if events.Items[0].Actor.Address != "198.51.100.9" {
			t.Errorf("the event is from %s", events.Items[0].Actor.Address)
		}
	})
}

// meanwhile is tokens, with what happens while one is looked up.
type meanwhile struct {
	tokens
	do func()
}

func (m meanwhile) Find(ctx context.Context, text string) (admintokens.Stored, error) {
	m.do()
	return m.tokens.Find(ctx, text)
}

// Many guesses that are sent at once are all looked up; a right one among them
// is answered as the wrong ones are.
func TestARightGuessAmongManyDoesNotStandOut(t *testing.T) {
	t.Parallel()
	w := newWorld(t, databasetest.SQLite(t), Options{})
	s := New(w.stores, Options{FailedLogins: 3, Now: w.clock.Now})
	s.tokens = meanwhile{s.tokens, func() {
		for range 3 {
			_ = s.logins.recordFailure("192.0.2.1", w.clock.Now())
		}
	}}
	for _, token := range []string{w.tokens[quotad.RoleOwner], "guess-guess-guess"} {
		req := httptest.NewRequest("GET", "/admin/v1/tiers", nil)
		req.Header.Set("Authorization", "Bearer "+token)
		rec := httptest.NewRecorder()
		s.Handler().ServeHTTP(rec, req)
		answer{t: t, status: rec.Code, header: rec.Header(), body: rec.Body.Bytes()}.refuses(quotad.CodeRateLimitExceeded)
		w.clock.Advance(time.Minute)
	}
}

// A peer that is not listed is no proxy, be it on the same machine or network.
func TestOthersThanTrustedProxiesNameNobody(t *testing.T) {
	each(t, Options{FailedLogins: 2, TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}, func(t *testing.T, w *world) {
		for i := range 6 {
			want := map[bool]int{true: 401, false: 429}[i < 2]
			w.call("GET", "/admin/v1/tiers", nil, append(spoofs(i), with{"Authorization", "Bearer guess-guess-guess"})...).is(want)
		}
	})
}

func TestCredentialsThatAreNone(t *testing.T) {
	each(t, Options{FailedLogins: 1000}, func(t *testing.T, w *world) {
		owner := w.tokens[quotad.RoleOwner]
		for _, value := range []string{
			"Bearer", "Bearer ", "Basic b3duZXI6", "Token " + owner, "Bearer " + owner + "x", "Bearer " + owner[:len(owner)-1],
			"Bearer " + owner + ", Bearer " + owner, "Bearer " + strings.Repeat("a", 9000), "Bearer \x80\xff\xfe\xfd\xfc\xfb\xfa\xf9\xf8\xf7\xf6\xf5\xf4\xf3\xf2\xf1",
			"Bearer a\tb", "Bearer " + strings.ToUpper(owner), "Bearer qk_" + owner[3:], "Bearer bootstrap", "Bearer " + strings.Repeat("0", 16),
		} {
			w.call("GET", "/admin/v1/tiers", nil, with{"Authorization", value}).refuses(quotad.CodeUnauthorized)
		}
		w.call("GET", "/admin/v1/tiers", nil, with{"Authorization", "bearer  " + owner}).is(200)
		w.call("GET", "/admin/v1/tiers", nil, with{"Authorization", ""}, with{"X-API-Key", owner}).refuses(quotad.CodeUnauthorized)
		w.call("GET", "/admin/v1/tiers?access_token="+owner, nil, with{"Authorization", ""}).refuses(quotad.CodeUnauthorized)
	})
}
