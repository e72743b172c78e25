package deploy

import (
	"net/http"
	"testing"
)

// paths: no spelling of a path gets around the limit of the group that it belongs to.
func paths(t *testing.T, g gateway, w *world) {
	w.quotad.group("report", "GET /v1/reports/export", "")
	w.quotad.tier("reader", 1000, `,"limits":[{"name":"report","route_group":"report","scope":"key","rate_limit":2,"rate_window":86400}]`)
	key := w.quotad.key("reader", "")
	for _, target := range []string{"/v1/reports/export", "/v1/reports/export?a=b"} {
		a := w.get(t, target, key)
		within.check(t, g, a)
		if got := w.passed(t, a); got.target != target || got.header.Get("X-Quotad-Route-Group") != "report" {
			t.Errorf("%s: the API got %s of group %s", target, got.target, got.header.Get("X-Quotad-Route-Group"))
		}
	}
	for _, target := range []string{
		"/v1/reports/export", "/v1/reports/export?x=1", "//v1//reports///export", "/v1/./reports/export", "/v1/x/../reports/export",
		"/v1/reports/export/", "/V1/Reports/Export", "/v1/reports%2Fexport", "/v1/reports%2fexport", "/v1%2Freports%2Fexport",
		"/v1/reports/export%00", "/v1/reports/expor%74", "/%76%31/reports/export", "/v1/%2e/reports/export", "/v1/x/%2e%2e/reports/export",
		"/v1/reports/export;a=b", "/v1/reports\\export", "/v1/reports%5Cexport", "/v1/reports/export%", "http://api.example/v1/reports/export",
		"http://other.example//v1/reports/export?x", "/v1/reports/export/.", "/v1/reports/export/x/..",
	} {
		a := w.get(t, target, key)
		w.refused(t, a)
		switch a.status {
		case http.StatusTooManyRequests, http.StatusBadRequest, http.StatusNotFound:
		default:
			t.Errorf("%s: got %d %s", target, a.status, a.body)
		}
	}
	if left := w.quotad.left(key); left != 1000 {
		t.Errorf("%d of 1000 left in the group default: a spelling was counted there", left)
	}
	// What a gateway passes on is spelt as the client spelt it: what quotad judged is what the API gets.
	for _, target := range []string{"/v1/things/a%2Fb?c=%2F", "/v1//things/./x"} {
		a := w.get(t, target, key)
		if got, ok := w.api.got(a.id); ok && got.target != target {
			t.Logf("%s: the API gets %s", target, got.target)
		}
	}
}
