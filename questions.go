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
//		q := quotad.QuestionOf(r)
//		q.APIKey, q.Tenant, q.Subject = "", tenantOf(r), userOf(r)
//		return q, nil
//	}
//
// More than one credential of quotad's on a request makes a list of its APIKey,
// which quotad refuses as ambiguous: several X-API-Key, or one beside another key or
// token of quotad's form in Authorization or the query. Whatever else these hold is
// not quotad's business.
func QuestionOf(r *http.Request) CheckRequest {
	path, query := requestLine(r)
	q := CheckRequest{Method: r.Method, Path: encoded(path), APIKey: Credential(strings.Join(r.Header["X-Api-Key"], ","))}
	if peer, err := netip.ParseAddrPort(r.RemoteAddr); err == nil {
		q.ForwardedFor = peer.Addr().Unmap().WithZone("")
	}
	if q.APIKey != "" && (strings.Contains(query, "=qk_") || strings.Contains(query, "=qa_") || anyOurs(r.Header["Authorization"])) {
		q.APIKey += ","
	}
	return q
}

// anyOurs reports whether lines of Authorization hold a credential of quotad's form.
func anyOurs(lines []string) bool {
	for _, line := range lines {
		_, token, _ := strings.Cut(line, " ")
		if ours(line) || ours(strings.TrimSpace(token)) {
			return true
		}
	}
	return false
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
