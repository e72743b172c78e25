package httpapi

import (
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"

	"github.com/quotad/quotad"
)

// rewrite makes the request to the upstream of the client's: the same path, query,
// host and body, without the key, and with who calls in its headers.
func (p *passage) rewrite(pr *httputil.ProxyRequest) {
	in, out := pr.In, pr.Out
	out.URL.Scheme, out.URL.Host = p.upstream.scheme, p.upstream.host
	out.URL.RawQuery = in.URL.RawQuery
	setPath(out.URL, p.path)
	if p.upload != nil {
		out.Body = p.upload
		// net/http writes into the trailer of the client's request once it has read all.
		out.Trailer = in.Trailer
	}

	h := out.Header
	for name := range h {
		if isReserved(name, p.trusted) {
			delete(h, name)
		}
	}
	if carriesCalls(h["Upgrade"]) {
		delete(h, "Upgrade")
		delete(h, "Connection") // by now it says Upgrade, and nothing else
		delete(h, "Http2-Settings")
	}
	p.forwardedHeaders(in, h)
	v := &p.x.values
	for _, one := range [...]struct{ name, value string }{
		{"X-Quotad-Tenant", p.decision.Tenant}, {"X-Quotad-Key-Id", p.decision.KeyID}, {"X-Quotad-Tier", p.decision.Tier},
		{"X-Quotad-Route-Group", p.decision.RouteGroup}, {quotad.SubjectHeader, p.subject},
	} {
		if one.value != "" {
			v.Set(one.name, one.value)
		}
	}
	v.Set("X-Request-Id", p.x.id)
	v.Flush(h)
}

// forwardedHeaders says where the call came from. What a client wrote there itself is
// gone; what a trusted proxy wrote stays, with the proxy added to it. It is read from
// the client's own request: from the one to the upstream, a header that Connection
// names is gone by now.
func (p *passage) forwardedHeaders(in *http.Request, h http.Header) {
	v := &p.x.values
	host, proto, hops := in.Host, "http", peer(in).String()
	if in.TLS != nil {
		proto = "https"
	}
	if p.trusted {
		if prior := joined(in.Header["X-Forwarded-For"]); prior != "" {
			hops = prior + ", " + hops
		}
		if given := in.Header["X-Forwarded-Host"]; len(given) == 1 && given[0] != "" {
			host = given[0]
		}
		if given := in.Header["X-Forwarded-Proto"]; len(given) == 1 && given[0] != "" {
			proto = given[0]
		}
	}
	v.Set("X-Forwarded-For", hops)
	v.Set("X-Forwarded-Host", host)
	v.Set("X-Forwarded-Proto", proto)
}

// setPath makes the path of the URL the one that was judged, as it stood on the
// request line. Bytes that may not stand in a URL, which clients send all the same, are
// encoded; nothing is decoded, or resolved.
func setPath(u *url.URL, path string) {
	if u.EscapedPath() == path {
		return
	}
	const hex = "0123456789ABCDEF"
	encoded := make([]byte, 0, len(path)+16)
	for i := range len(path) {
		if c := path[i]; strings.IndexByte(pathBytes, c) >= 0 {
			encoded = append(encoded, c)
		} else {
			encoded = append(encoded, '%', hex[c>>4], hex[c&15])
		}
	}
	u.RawPath = string(encoded)
	u.Path, _ = url.PathUnescape(u.RawPath) // who judged the path has seen that it can be decoded
}

// pathBytes are the bytes that may stand in a path.
const pathBytes = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~!$&'()*+,;=:@[]/%"

// isReserved reports whether a client's header of this name is kept from the upstream:
// the key, what the gateway itself says under X-Quotad-, and what only a trusted proxy
// may say of where a call came from. Underscores count as dashes, as they do for
// servers that make variables of headers (X_QUOTAD_TENANT).
func isReserved(name string, trusted bool) bool {
	switch name[0] {
	case 'X', 'x':
		switch {
		case folded(name, "x-api-key") && len(name) == len("x-api-key"), folded(name, "x-quotad-"):
			return true
		case trusted && strings.IndexByte(name, '_') < 0:
			return false
		}
		return folded(name, "x-forwarded-") || folded(name, "x-original-") || folded(name, "x-real-ip") || folded(name, "x-rewrite-url")
	case 'F', 'f':
		return folded(name, "forwarded")
	case 'T', 't':
		return !trusted && folded(name, "true-client-ip")
	case 'C', 'c':
		return !trusted && folded(name, "cf-connecting-ip")
	}
	return false
}

// carriesCalls reports whether a protocol to upgrade to is HTTP itself, or TLS with
// HTTP in it: calls would pass in it that nobody judges, saying under X-Quotad- what
// they like. No server has to switch: the call is answered as if nobody had asked it to.
func carriesCalls(upgrade []string) bool {
	for _, line := range upgrade {
		for protocol := range strings.SplitSeq(line, ",") {
			name, _, _ := strings.Cut(strings.TrimSpace(protocol), "/")
			switch strings.ToLower(name) {
			case "h2c", "h2", "h3", "http", "tls":
				return true
			}
		}
	}
	return false
}

// folded reports whether the name begins with the prefix, which is in lower case.
func folded(name, prefix string) bool {
	if len(name) < len(prefix) {
		return false
	}
	for i := range len(prefix) {
		c := name[i]
		switch {
		case 'A' <= c && c <= 'Z':
			c += 'a' - 'A'
		case c == '_':
			c = '-'
		}
		if c != prefix[i] {
			return false
		}
	}
	return true
}
