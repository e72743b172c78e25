package httpapi

import (
	"net/http"

	"github.com/quotad/quotad/internal/replies"
)

// cors lets pages of the listed origins read the answers. Credentials of the
// browser's own (cookies) are never asked for: a key is sent by the page.
type cors struct{ origins replies.Origins }

// Header values of CORS, shared by all answers.
var (
	varyOrigin     = []string{"Origin"}
	exposedHeaders = []string{replies.ExposedHeaders}
	allowedHeaders = []string{"X-API-Key, Authorization, Content-Type, Accept-Language, X-Request-Id"}
	allowedFor     = []string{"600"}
)

// newCORS is nil when no origin is listed.
func newCORS(origins []string) *cors {
	if len(origins) == 0 {
		return nil
	}
	return &cors{origins: replies.NewOrigins(origins)}
}

// allow marks the answer as readable by the request's origin.
func (c *cors) allow(x *exchange) {
	h := x.w.Header()
	if c.origins.Vary() {
		h["Vary"] = varyOrigin
	}
	allowed := c.origins.Allow(x.r.Header.Get("Origin"))
	if allowed == "" {
		return
	}
	h["Access-Control-Allow-Origin"] = []string{allowed}
	h["Access-Control-Expose-Headers"] = exposedHeaders
}

// isPreflight reports whether a browser asks what it may send, as method says. One that
// would go on in another protocol asks for more, and is a call like others.
func isPreflight(method string, h http.Header) bool {
	return method == http.MethodOptions && h.Get("Origin") != "" && h.Get("Access-Control-Request-Method") != "" && len(h["Upgrade"]) == 0
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
