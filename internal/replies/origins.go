package replies

// Origins are the origins whose pages may read the answers. The zero value is none.
type Origins struct {
	any     bool
	allowed map[string]bool
}

// NewOrigins returns those listed, such as "https://app.example.com"; "*" is all.
func NewOrigins(list []string) Origins {
	o := Origins{allowed: make(map[string]bool, len(list))}
	for _, origin := range list {
		o.any = o.any || origin == "*"
		o.allowed[origin] = true
	}
	return o
}

// ExposedHeaders are those that a page may read of an answer, as
// Access-Control-Expose-Headers has them.
const ExposedHeaders = "Retry-After, X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset, " +
	"RateLimit, RateLimit-Policy, X-Quotad-Degraded, X-Quotad-Delay-Ms, X-Request-Id"

// Allow is the Access-Control-Allow-Origin of an answer to a page of the origin; ""
// where it may not read one, or the call is not a page's.
func (o Origins) Allow(origin string) string {
	switch {
	case origin == "":
		return ""
	case o.any:
		return "*"
	case o.allowed[origin]:
		return origin
	}
	return ""
}

// Vary reports whether answers differ by origin.
func (o Origins) Vary() bool { return len(o.allowed) > 0 && !o.any }
