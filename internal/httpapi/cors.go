package httpapi

import (
	"net/http"
)

// cors lets pages of the listed origins read the answers. Credentials of the
// browser's own (cookies) are never asked for: a key is sent by the page.
type cors struct {
	any     bool
	origins map[string][]string
}

// Header values of CORS, shared by all answers.
var (
	anyOrigin      = []string{"*"}
	varyOrigin     = []string{"Origin"}
	exposedHeaders = []string{"Retry-After, X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset, " +
		"RateLimit, RateLimit-Policy, X-Quotad-Degraded, X-Quotad-Delay-Ms, X-Request-Id"}
	allowedHeaders = []string{"X-API-Key, Authorization, Content-Type, Accept-Language, X-Request-Id"}
	allowedFor     = []string{"600"}
)

// newCORS is nil when no origin is listed.
func newCORS(origins []string) *cors {
	if len(origins) == 0 {
		return nil
	}
	c := &cors{origins: map[string][]string{}}
	for _, origin := range origins {
		if origin == "*" {
			c.any = true
		}
		c.origins[origin] = []string{origin}
	}
	return c
}

// allow marks the answer as readable by the request's origin.
func (c *cors) allow(x *exchange) {
	h, origin := x.w.Header(), x.r.Header.Get("Origin")
	allowed := anyOrigin
	if !c.any {
		h["Vary"] = varyOrigin
		allowed = c.origins[origin]
	}
	if origin == "" || allowed == nil {
		return
	}
	h["Access-Control-Allow-Origin"] = allowed
	h["Access-Control-Expose-Headers"] = exposedHeaders
}

// isPreflight reports whether a browser asks what it may send, as method says.
func isPreflight(method string, h http.Header) bool {
	return method == http.MethodOptions && h.Get("Origin") != "" && h.Get("Access-Control-Request-Method") != ""
}

// options answers what a route takes: to a preflight also what a page may send.
// It needs no key and is not counted.
func options(methods string) handler {
	allow := []string{methods}
	return func(x *exchange) error {
		x.answerAtOnce()
		h := x.w.Header()
		h["Allow"] = allow
		if h["Access-Control-Allow-Origin"] != nil && isPreflight(x.r.Method, x.r.Header) {
			h["Access-Control-Allow-Methods"] = allow
			h["Access-Control-Allow-Headers"] = allowedHeaders
			h["Access-Control-Max-Age"] = allowedFor
		}
		return x.write(http.StatusNoContent, nil)
	}
}
