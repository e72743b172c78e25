package quotad

import (
	"net/http"
	"net/netip"
	"strings"
)

// QuestionOf is the question that Middleware asks of a request: its method, the
// path of its request line, its X-API-Key and its peer's address. Questions of
// your own can begin with it:
//
//	func(r *http.Request) (quotad.CheckRequest, error) {
//		q, err := quotad.QuestionOf(r)
//		q.APIKey, q.Tenant, q.Subject = "", tenantOf(r), userOf(r)
//		return q, err
//	}
//
// More than one credential of quotad's is CodeAmbiguousCredentials: several
// X-API-Key, a list in one, or another key or token of quotad's form in
// Authorization or the query. Whatever else these hold is not quotad's business.
func QuestionOf(r *http.Request) (CheckRequest, error) {
	path, query := requestLine(r)
	q := CheckRequest{Method: r.Method, Path: encoded(path)}
	if peer, err := netip.ParseAddrPort(r.RemoteAddr); err == nil {
		q.ForwardedFor = peer.Addr().Unmap().WithZone("")
	}
	switch keys := r.Header["X-Api-Key"]; len(keys) {
	case 0:
		return q, nil
	case 1:
		if strings.Contains(keys[0], ",") {
			return q, NewError(CodeAmbiguousCredentials, "X-API-Key holds a list.")
		}
		q.APIKey = Credential(keys[0])
	default:
		return q, NewError(CodeAmbiguousCredentials, "X-API-Key is sent more than once.")
	}
	if q.APIKey == "" {
		return q, nil
	}
	for _, value := range r.Header["Authorization"] {
		_, token, _ := strings.Cut(value, " ")
		if ours(value) || ours(strings.TrimSpace(token)) {
			return q, NewError(CodeAmbiguousCredentials, "X-API-Key and Authorization both hold a credential.")
		}
	}
	if strings.Contains(query, "=qk_") || strings.Contains(query, "=qa_") {
		return q, NewError(CodeAmbiguousCredentials, "X-API-Key and the query both hold a credential.")
	}
	return q, nil
}

// ours reports whether the text begins as quotad's credentials do.
func ours(text string) bool { return strings.HasPrefix(text, "qk_") || strings.HasPrefix(text, "qa_") }

// requestLine is the path and the query as they stand on the request line:
// r.URL.Path is decoded, and may have been cut by a router in between.
func requestLine(r *http.Request) (path, query string) {
	target := r.RequestURI
	if target == "" { // a request that no server read
		target = r.URL.RequestURI()
	}
	if !strings.HasPrefix(target, "/") {
		if _, rest, absolute := strings.Cut(target, "://"); absolute {
			target = "/"
			if i := strings.IndexAny(rest, "/?"); i >= 0 {
				target = rest[i:]
			}
		}
	}
	path, query, _ = strings.Cut(target, "?")
	if path == "" {
		path = "/"
	}
	return path, query
}

// encoded is a path whose bytes outside of printable ASCII are percent-encoded,
// so that JSON, which knows only UTF-8, carries each as it is.
func encoded(path string) string {
	plain := func(c byte) bool { return ' ' < c && c < 0x7f }
	i := 0
	for i < len(path) && plain(path[i]) {
		i++
	}
	if i == len(path) {
		return path
	}
	const hex = "0123456789ABCDEF"
	b := append(make([]byte, 0, len(path)+16), path[:i]...)
	for ; i < len(path); i++ {
		if c := path[i]; plain(c) {
			b = append(b, c)
		} else {
			b = append(b, '%', hex[c>>4], hex[c&15])
		}
	}
	return string(b)
}
