package httpapi

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/quota"
)

// authorize answers a gateway that asks whether the call it holds may pass.
func (x *exchange) authorize() error {
	x.answerAtOnce()
	original, fault := x.readAuthorize()
	if fault == nil && isPreflight(original.method, x.r.Header) {
		return x.admit(&quotad.Decision{})
	}
	key, err := x.forwardedKey(original.query)
	if err != nil {
		return err
	}
	x.call = quota.Call{APIKey: key, Method: original.method, Path: original.path}
	if fault != nil {
		return fault
	}
	if x.call.Subject, err = x.subject(x.r); err != nil {
		return err
	}
	decision, err := x.checker.Check(x.r.Context(), x.question())
	if err != nil {
		return err
	}
	if !decision.Allowed {
		return x.deny(&decision)
	}
	x.decisionHeaders(&decision)
	return x.admit(&decision)
}

// readAuthorize is the call that the gateway asks about.
func (x *exchange) readAuthorize() (original, error) {
	if err := x.readDenyStatus(); err != nil {
		return original{}, err
	}
	return x.original()
}

// admit answers 200 without a body: nothing else admits with every gateway. The
// headers are there even when empty, so that whoever copies them to the upstream
// overwrites what a client sent under these names.
func (x *exchange) admit(d *quotad.Decision) error {
	x.w.Header()["Cache-Control"] = noStore
	x.values.Set("X-Quotad-Tenant", d.Tenant)
	x.values.Set("X-Quotad-Key-Id", d.KeyID)
	x.values.Set("X-Quotad-Tier", d.Tier)
	x.values.Set("X-Quotad-Route-Group", d.RouteGroup)
	return x.write(http.StatusOK, nil)
}

// readDenyStatus takes deny_status from the query. One that is not understood must not
// look as if it held. Behind a path the query is the client's own, as gateways put it
// there that speak in the path.
func (x *exchange) readDenyStatus() error {
	if x.r.URL.Path != authorizePath || !strings.Contains(x.r.URL.RawQuery, "deny_status") {
		return nil
	}
	values, _ := url.ParseQuery(x.r.URL.RawQuery)
	switch given := values["deny_status"]; {
	case len(given) == 1 && given[0] == "403":
		x.denied = http.StatusForbidden
	case given != nil:
		return faulty(quotad.Faults{"deny_status": "must be 403"})
	}
	return nil
}

// original is the call that a gateway holds.
type original struct{ method, path, query string }

const authorizePath = "/v1/authorize"

// original is what a trusted proxy says of the call, else the request's own
// method and what follows /v1/authorize in its path, as on the request line.
func (x *exchange) original() (original, error) {
	method, uri, err := forwarded(x.r.Header)
	if method != "" || uri != "" || err != nil {
		if !x.proxies.Trust(peer(x.r)) {
			x.warnUntrusted()
			if x.r.URL.Path == authorizePath && namesURI(x.r.Header) {
				return original{}, quotad.NewError(quotad.CodeInvalidRequest, "The headers name an original URI, but the peer that sends them is not among "+
					"the --trusted-proxies (QUOTAD_TRUSTED_PROXIES), and no path follows "+authorizePath+".")
			}
			method, uri, err = "", "", nil
		}
	}
	if err != nil {
		return original{}, err
	}
	if method == "" {
		method = x.r.Method
	}
	if uri == "" {
		uri = strings.TrimPrefix(requestTarget(x.r), authorizePath)
	} else {
		uri = withoutOrigin(uri)
	}
	o := original{method: strings.ToUpper(method)}
	o.path, o.query, _ = strings.Cut(uri, "?")
	if o.path == "" {
		o.path = "/"
	}
	return o, nil
}

// forwarded is what the headers say of the original call. Both families may be
// present, but must agree: else one of them is a client's.
func forwarded(h http.Header) (method, uri string, err error) {
	if method, err = agreed(h["X-Forwarded-Method"], h["X-Original-Method"], "method"); err != nil {
		return "", "", err
	}
	if method != "" && !isToken(method) {
		return "", "", quotad.NewError(quotad.CodeInvalidRequest, "The forwarded method is not an HTTP method.")
	}
	uri, err = agreed(h["X-Forwarded-Uri"], h["X-Original-Uri"], "URI")
	return method, uri, err
}

// namesURI reports whether the headers say which URI the original call has.
func namesURI(h http.Header) bool {
	said := func(line string) bool { return line != "" }
	return slices.ContainsFunc(h["X-Forwarded-Uri"], said) || slices.ContainsFunc(h["X-Original-Uri"], said)
}

// agreed is the one value that all given header lines have; empty ones say nothing.
func agreed(forwarded, original []string, what string) (string, error) {
	value := ""
	for _, lines := range [2][]string{forwarded, original} {
		for _, line := range lines {
			if line != "" && value != "" && line != value {
				return "", quotad.NewError(quotad.CodeInvalidRequest, "The headers name more than one original "+what+".")
			}
			if line != "" {
				value = line
			}
		}
	}
	return value, nil
}

// requestTarget is the path and query as they stand on the request line.
func requestTarget(r *http.Request) string {
	if r.RequestURI == "" {
		return r.URL.RequestURI()
	}
	return withoutOrigin(r.RequestURI)
}

// withoutOrigin cuts the scheme and host off a URI in absolute form.
func withoutOrigin(uri string) string {
	if strings.HasPrefix(uri, "/") {
		return uri
	}
	_, rest, ok := strings.Cut(uri, "://")
	if !ok {
		return uri
	}
	if i := strings.IndexAny(rest, "/?"); i >= 0 {
		return rest[i:]
	}
	return "/"
}

// warnUntrusted tells operators, once a minute, that a gateway is not believed:
// all its calls are refused, or would count as calls of "/".
func (x *exchange) warnUntrusted() {
	if len(x.r.URL.Path) > len(authorizePath)+1 {
		return // a client's own headers, passed on by a gateway that speaks in the path
	}
	if muted, ok := x.seldom.due("untrusted", x.now(), time.Minute); ok {
		x.logger.Warn("forwarded headers are ignored: the peer is not a trusted proxy",
			"peer", peer(x.r).String(), "muted", muted)
	}
}
