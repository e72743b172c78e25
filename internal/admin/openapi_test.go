package admin

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTheDocumentIsValid(t *testing.T) {
	t.Parallel()
	if err := document3(t).Validate(t.Context()); err != nil {
		t.Error(err)
	}
}

// surface is the admin API as a list of lines: method, path and query parameters.
func TestTheDocumentHasTheRoutesAndNoOthers(t *testing.T) {
	t.Parallel()
	line := func(method, path string, query []string) string {
		query = slices.Sorted(slices.Values(query))
		return method + " " + path + " ?" + strings.Join(query, "&")
	}
	var served, documented []string
	for _, r := range new(Server).routes() {
		var path []string
		for part := range strings.SplitSeq(prefix+r.path, "/") {
			if name, ok := strings.CutPrefix(part, ":"); ok {
				part = "{" + name + "}"
			}
			path = append(path, part)
		}
		served = append(served, line(r.method, strings.Join(path, "/"), r.query))
	}
	for path, item := range document3(t).Paths.Map() {
		if !strings.HasPrefix(path, prefix) {
			continue
		}
		for method, operation := range item.Operations() {
			var query []string
			for _, p := range slices.Concat(item.Parameters, operation.Parameters) {
				if p.Value.In == "query" {
					query = append(query, p.Value.Name)
				}
			}
			documented = append(documented, line(method, path, query))
		}
	}
	slices.Sort(served)
	slices.Sort(documented)
	if diff := cmp.Diff(served, documented); diff != "" {
		t.Error(diff)
	}
}

func TestTheDocumentIsServed(t *testing.T) {
	each(t, Options{}, func(t *testing.T, w *world) {
		got := w.call(http.MethodGet, "/openapi.yaml", nil, with{"Authorization", ""}).is(200)
		if string(got.body) != string(document) || got.header.Get("Content-Type") != "application/yaml" {
			t.Errorf("got %s, %d bytes", got.header.Get("Content-Type"), len(got.body))
		}
	})
}
