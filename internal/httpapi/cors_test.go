package httpapi

import (
	"strings"
	"testing"

	"github.com/quotad/quotad"
)

const origin = "Origin: https://app.example.com"

func TestPreflightsOfTheMeteredAPIAreNeverCounted(t *testing.T) {
	t.Parallel()
	for _, opts := range []Options{{}, {CORSOrigins: []string{"https://app.example.com"}}, {CORSOrigins: []string{"*"}}} {
		a := &answers{decision: admitted()}
		s := service(t, a, opts)
		for target, allow := range map[string]string{
			"/v1/ping": "GET, HEAD, OPTIONS", "/v1/limits": "GET, HEAD, OPTIONS", "/v1/check": "POST, OPTIONS",
		} {
			w := do(s, request("OPTIONS", target, "", origin, "Access-Control-Request-Method: GET"))
			wantStatus(t, w, 204)
			wantHeaders(t, w, "Allow: "+allow)
			if opts.CORSOrigins == nil {
				wantHeaders(t, w, "Access-Control-Allow-Origin:", "Access-Control-Allow-Methods:")
				continue
			}
			wantHeaders(t, w, "Access-Control-Allow-Methods: "+allow, "Access-Control-Max-Age: 600")
			if !strings.Contains(header(w, "Access-Control-Allow-Headers"), "X-API-Key") {
				t.Errorf("got %s", header(w, "Access-Control-Allow-Headers"))
			}
			w = do(s, request("OPTIONS", target, ""))
			wantStatus(t, w, 204)
			wantHeaders(t, w, "Access-Control-Allow-Methods:")
		}
		a.neverAsked(t)
	}
}

func TestPagesOfListedOriginsCanReadEveryAnswer(t *testing.T) {
	t.Parallel()
	for _, a := range []*answers{{decision: admitted()}, {decision: refused()}, {err: quotad.ErrInvalidAPIKey}, {err: quotad.ErrLimiterUnavailable}} {
		s := service(t, a, Options{CORSOrigins: []string{"https://other.example", "https://app.example.com"}})
		for _, target := range []string{"/v1/ping", "/v1/authorize", "/v1/limits", "/nowhere"} {
			w := get(s, target, origin)
			wantHeaders(t, w, "Access-Control-Allow-Origin: https://app.example.com", "Access-Control-Allow-Credentials:")
			for _, name := range []string{"Retry-After", "X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset", "RateLimit", "RateLimit-Policy"} {
				if !strings.Contains(header(w, "Access-Control-Expose-Headers"), name) {
					t.Errorf("%s is not exposed", name)
				}
			}
			if vary := header(w, "Vary"); !strings.HasPrefix(vary, "Origin") {
				t.Errorf("Vary is %q", vary)
			}
		}
	}
}

func TestPagesOfOtherOriginsCanReadNothing(t *testing.T) {
	t.Parallel()
	s := service(t, &answers{decision: refused()}, Options{CORSOrigins: []string{"https://app.example.com"}})
	for _, headers := range [][]string{{"Origin: https://evil.example"}, {"Origin: null"}, {"Origin: HTTPS://APP.EXAMPLE.COM"}, {}} {
		w := get(s, "/v1/ping", headers...)
		wantHeaders(t, w, "Access-Control-Allow-Origin:", "Access-Control-Expose-Headers:", "Vary: Origin | Accept, Accept-Language")
	}
	wantHeaders(t, get(service(t, &answers{decision: refused()}, Options{}), "/v1/ping", origin), "Access-Control-Allow-Origin:")
}

func TestAStarLetsAllPagesRead(t *testing.T) {
	t.Parallel()
	s := service(t, &answers{decision: refused()}, Options{CORSOrigins: []string{"*"}})
	wantHeaders(t, get(s, "/v1/ping", "Origin: https://any.example"), "Access-Control-Allow-Origin: *", "Vary: Accept, Accept-Language")
	wantHeaders(t, get(s, "/v1/ping"), "Access-Control-Allow-Origin:")
}
