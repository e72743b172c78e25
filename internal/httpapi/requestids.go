package httpapi

import (
	"crypto/rand"
	"net/http"
	"strconv"
	"sync/atomic"
)

// requestIDs names the requests that come without a name of their own: a random
// text of this process and a running number.
type requestIDs struct {
	prefix string
	last   *atomic.Uint64
}

func newRequestIDs() requestIDs {
	return requestIDs{prefix: rand.Text()[:13] + "-", last: new(atomic.Uint64)}
}

// maxRequestID is the longest X-Request-Id that is taken over, in bytes.
const maxRequestID = 128

// of is the request's X-Request-Id where it is sane, else a new one.
func (ids requestIDs) of(r *http.Request) string {
	if given := r.Header["X-Request-Id"]; len(given) == 1 && saneRequestID(given[0]) {
		return given[0]
	}
	var b [40]byte
	return string(strconv.AppendUint(append(b[:0], ids.prefix...), ids.last.Add(1), 36))
}

// saneRequestID reports whether s can be logged and echoed as it is.
func saneRequestID(s string) bool {
	if s == "" || len(s) > maxRequestID {
		return false
	}
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case c == '-', c == '_', c == '.', c == ':', c == '/', c == '+', c == '=', c == '@':
		default:
			return false
		}
	}
	return true
}
