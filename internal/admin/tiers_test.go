package admin

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/quotad/quotad"
)

// lifecycle takes a resource through creation, reading, listing, changes and
// deletion, by what the API shows of it.
type lifecycle struct {
	collection string // where it is created and listed
	full       string // a body that sets every field
	id         func(shown map[string]any) string
	path       string // where it is; "" for collection + "/" + id
	// shown are the fields of full as they are to be read back, where they differ.
	shown map[string]any
	// patches are merge patches, and the fields that each changes, as shown.
	patches []step
	// keeps are fields that no patch of the list touches but that must be there.
	readOnly []string
}

type step struct {
	patch string
	want  map[string]any
}

func (l lifecycle) run(t *testing.T, w *world) {
	want := fields(t, []byte(l.full))
	for name, value := range l.shown {
		want[name] = value
	}
	made := w.call("POST", l.collection, l.full).is(201)
	shown := fields(t, made.body)
	path := l.path
	if path == "" {
		path = l.collection
	}
	path += "/" + l.id(shown)
	if made.header.Get("Location") != path {
		t.Errorf("Location is %q, want %q", made.header.Get("Location"), path)
	}
	if secret, ok := shown["secret"].(string); ok {
		w.remembers(secret)
		delete(shown, "secret")
	}
	l.compare(t, "created", want, shown)

	read := w.call("GET", path, nil).is(200)
	if diff := cmp.Diff(shown, fields(t, read.body)); diff != "" {
		t.Errorf("read: %s", diff)
	}
	if read.header.Get("ETag") != made.header.Get("ETag") {
		t.Errorf("the tag is %s when it is made and %s when it is read", made.header.Get("ETag"), read.header.Get("ETag"))
	}
	l.listed(t, w, path, fields(t, read.body))
	w.call("GET", path, nil, with{"If-None-Match", read.header.Get("ETag")}).is(304)
	w.call("GET", path, nil, with{"If-None-Match", `"other"`}).is(200)
	w.call("HEAD", path, nil).is(200)

	for _, s := range l.patches {
		before := w.call("GET", path, nil).is(200)
		w.clock.Advance(1)
		got := w.call("PATCH", path, s.patch, with{"Content-Type", mergePatchType}, with{"If-Match", before.header.Get("ETag")}).is(200)
		for name, value := range s.want {
			want[name] = value
		}
		shown := fields(t, got.body)
		l.compare(t, s.patch, want, shown)
		if diff := cmp.Diff(shown, fields(t, w.call("GET", path, nil).is(200).body)); diff != "" {
			t.Errorf("%s, read: %s", s.patch, diff)
		}
		l.listed(t, w, path, shown)
		if got.header.Get("ETag") == before.header.Get("ETag") {
			t.Errorf("%s leaves the tag", s.patch)
		}
		w.call("PATCH", path, s.patch, with{"If-Match", before.header.Get("ETag")}).refuses(quotad.CodePreconditionFailed)
		again := w.call("PATCH", path, s.patch, with{"If-Match", got.header.Get("ETag")}).is(200)
		if again.header.Get("ETag") != got.header.Get("ETag") || string(again.body) != string(got.body) {
			t.Errorf("%s again is a write: %s", s.patch, again.body)
		}
		w.call("DELETE", path, nil, with{"If-Match", before.header.Get("ETag")}).refuses(quotad.CodePreconditionFailed)
	}
	for _, name := range l.readOnly {
		p := w.call("PATCH", path, `{"`+name+`":null}`).refuses(quotad.CodeInvalidFields)
		if diff := cmp.Diff(quotad.Faults{name: "is read-only"}, p.Fields); diff != "" {
			t.Error(diff)
		}
	}
}

// compare holds the fields that can be set against what was set, and wants the
// read-only ones to be there.
func (l lifecycle) compare(t *testing.T, when string, want, shown map[string]any) {
	t.Helper()
	got := map[string]any{}
	for name, value := range shown {
		got[name] = value
	}
	for _, name := range l.readOnly {
		if _, ok := got[name]; !ok && name != "secret" {
			t.Errorf("%s: no %s", when, name)
		}
		delete(got, name)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s: %s", when, diff)
	}
}

func (l lifecycle) listed(t *testing.T, w *world, path string, want map[string]any) {
	t.Helper()
	got := as[page[map[string]any]](w.call("GET", l.collection+"?limit=500", nil).is(200))
	for _, item := range got.Items {
		if l.id(item) == l.id(want) {
			if diff := cmp.Diff(want, item); diff != "" {
				t.Errorf("listed: %s", diff)
			}
			return
		}
	}
	t.Errorf("%s is not listed", path)
}

// fields are an object's members, numbers by their digits.
func fields(t *testing.T, raw []byte) map[string]any {
	t.Helper()
	return as[map[string]any](answer{t: t, body: raw})
}

func byName(shown map[string]any) string { return shown["name"].(string) }

// n is a number as fields has it.
func n(digits string) json.Number { return json.Number(digits) }

func TestTiers(t *testing.T) {
	each(t, Options{}, func(t *testing.T, w *world) {
		w.call("POST", "/admin/v1/route-groups", `{"name":"exports"}`).is(201)
		limit := func(changes map[string]any) map[string]any {
			l := map[string]any{
				"name": "x", "route_group": "*", "scope": "key", "algorithm": "sliding_window_counter",
				"rate_limit": n("10"), "rate_window": n("300"), "burst": nil, "max_delay_ms": n("0"), "shadow": false,
			}
			for name, value := range changes {
				l[name] = value
			}
			return l
		}
		lifecycle{
			collection: "/admin/v1/tiers",
			id:         byName,
			full: `{"name":"pro","description":"<b>é & ملف</b>","rate_limit":0,"rate_window":31622400,"algorithm":"leaky_bucket","burst":7,"max_delay_ms":60000,
				"on_store_failure":"closed","shadow":true,"limits":[
				{"name":"exports","route_group":"exports","scope":"tenant","algorithm":"fixed_window","rate_limit":9007199254740991,"rate_window":1,"burst":null,"max_delay_ms":0,"shadow":true},
				{"name":"b","route_group":"*","scope":"ip","algorithm":"token_bucket","rate_limit":null,"rate_window":60,"burst":null,"max_delay_ms":0,"shadow":false}],"quotas":[
				{"name":"monthly","route_group":"*","scope":"tenant","quota":9007199254740991,"period":"month","shadow":false},
				{"name":"daily","route_group":"exports","scope":"subject","quota":0,"period":"day","shadow":true}]}`,
			readOnly: []string{"version", "created_at", "updated_at"},
			patches: []step{
				{`{"description":"d"}`, map[string]any{"description": "d"}},
				{`{"rate_limit":1000,"burst":20}`, map[string]any{"rate_limit": n("1000"), "burst": n("20")}},
				{`{"rate_window":60}`, map[string]any{"rate_window": n("60")}},
				{`{"burst":null}`, map[string]any{"burst": nil}},
				{`{"max_delay_ms":1}`, map[string]any{"max_delay_ms": n("1")}},
				{`{"max_delay_ms":null}`, map[string]any{"max_delay_ms": n("0")}},
				{`{"algorithm":"sliding_window_log"}`, map[string]any{"algorithm": "sliding_window_log"}},
				{`{"algorithm":"fixed_window"}`, map[string]any{"algorithm": "fixed_window"}},
				{`{"algorithm":null}`, map[string]any{"algorithm": "sliding_window_counter"}},
				{`{"on_store_failure":"open"}`, map[string]any{"on_store_failure": "open"}},
				{`{"on_store_failure":null}`, map[string]any{"on_store_failure": nil}},
				{`{"shadow":false}`, map[string]any{"shadow": false}},
				{`{"rate_limit":null}`, map[string]any{"rate_limit": nil}},
				{`{"rate_limit":0}`, map[string]any{"rate_limit": n("0")}},
				{`{"description":null}`, map[string]any{"description": ""}},
				{`{"limits":[{"name":"x","rate_limit":10,"rate_window":300}]}`, map[string]any{"limits": []any{limit(nil)}}},
				{`{"limits":[{"name":"y","rate_limit":null,"rate_window":300,"scope":"subject"},{"name":"x","rate_limit":0,"rate_window":300}]}`,
					map[string]any{"limits": []any{
						limit(map[string]any{"name": "y", "rate_limit": nil, "scope": "subject"}), limit(map[string]any{"rate_limit": n("0")}),
					}}},
				{`{"limits":null}`, map[string]any{"limits": []any{}}},
				{`{"quotas":[{"name":"q","quota":null,"period":"week"}]}`, map[string]any{"quotas": []any{map[string]any{
					"name": "q", "route_group": "*", "scope": "tenant", "quota": nil, "period": "week", "shadow": false,
				}}}},
				{`{"limits":[{"name":"l","algorithm":"leaky_bucket","rate_limit":5,"rate_window":300,"max_delay_ms":200}]}`,
					map[string]any{"limits": []any{limit(map[string]any{
						"name": "l", "algorithm": "leaky_bucket", "rate_limit": n("5"), "max_delay_ms": n("200"),
					})}}},
				{`{"quotas":[],"limits":[]}`, map[string]any{"quotas": []any{}, "limits": []any{}}},
			},
		}.run(t, w)

		w.call("PATCH", "/admin/v1/tiers/pro", `{"description":"<b>&é"}`).is(200)
		if got := w.call("GET", "/admin/v1/tiers/pro", nil).body; !strings.Contains(string(got), `"<b>&é"`) {
			t.Errorf("a text is not as it was sent: %s", got)
		}
		w.call("POST", "/admin/v1/tenants", `{"id":"acme","name":"Acme","tier":"pro"}`).is(201)
		w.call("DELETE", "/admin/v1/tiers/pro", nil).refuses(quotad.CodeInUse)
		w.call("DELETE", "/admin/v1/tenants/acme", nil).is(http.StatusNoContent)
		w.call("DELETE", "/admin/v1/tiers/pro", nil).is(http.StatusNoContent)
		w.call("GET", "/admin/v1/tiers/pro", nil).refuses(quotad.CodeNotFound)
	})
}

func TestATierMadeAgainHasOtherTags(t *testing.T) {
	each(t, Options{}, func(t *testing.T, w *world) {
		const body = `{"name":"pro","rate_limit":1,"rate_window":1}`
		old := w.call("POST", "/admin/v1/tiers", body).is(201).header.Get("ETag")
		w.call("DELETE", "/admin/v1/tiers/pro", nil, with{"If-Match", old}).is(204)
		w.clock.Advance(1000)
		w.call("POST", "/admin/v1/tiers", body).is(201)
		w.call("PATCH", "/admin/v1/tiers/pro", `{"rate_limit":2}`, with{"If-Match", old}).refuses(quotad.CodePreconditionFailed)
		w.call("DELETE", "/admin/v1/tiers/pro", nil, with{"If-Match", old}).refuses(quotad.CodePreconditionFailed)
	})
}
