package admin

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"io"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/idempotency"
)

// replayed are the headers that belong to an answer, and are kept with it.
var replayed = []string{"Content-Type", "Location", "ETag"}

// afterwards is how long keeping an answer may take. The write is done by then,
// so it is not for the client's hanging up to end it.
const afterwards = 2 * time.Second

// replay gives a POST with an Idempotency-Key one effect however often it is
// sent: the first answer that is a success is kept, without the secret, and given
// again to the same token for the same request. Failures are not kept.
func (s *Server) replay(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		key, err := idempotencyKey(c.Request().Header)
		if err != nil {
			return err
		}
		if key == "" {
			return next(c)
		}
		body, err := readBody(c)
		if err != nil {
			return err
		}
		c.Request().Body = io.NopCloser(bytes.NewReader(body))
		kept, err := s.idempotency.Begin(c.Request().Context(), actorOf(c).ID, key, fingerprint(c.Request(), body))
		switch {
		case err != nil:
			return err
		case kept != nil:
			return repeat(c, *kept)
		default:
			return s.answerFirst(c, key, next)
		}
	}
}

// answerFirst answers a request whose key is reserved for it. The answer is sent
// when it is kept: a client who has it never finds the key free again.
func (s *Server) answerFirst(c echo.Context, key string, next echo.HandlerFunc) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.Request().Context()), s.opts.Timeout+afterwards)
	defer cancel()
	actor, kept := actorOf(c).ID, false
	defer func() {
		if !kept {
			if err := s.idempotency.Forget(ctx, actor, key); err != nil {
				s.opts.Logger.Error("idempotency key not given back", "request_id", requestID(c), "error", err)
			}
		}
	}()
	w := c.Response().Writer
	record := &recorder{ResponseWriter: w}
	c.Response().Writer = record
	defer func() { c.Response().Writer = w }()
	if err := next(c); err != nil {
		return err
	}
	body, err := withoutSecret(record.body.Bytes())
	if err != nil {
		return err
	}
	answer := idempotency.Answer{Status: record.status, Headers: map[string]string{}, Body: body}
	for _, name := range replayed {
		if value := c.Response().Header().Get(name); value != "" {
			answer.Headers[name] = value
		}
	}
	kept = true
	if err := s.idempotency.Finish(ctx, actor, key, answer); err != nil {
		// What was asked for is done, and this answer may be the only one with its secret.
		s.opts.Logger.Error("answer not kept under its idempotency key", "request_id", requestID(c), "error", err)
	}
	w.WriteHeader(record.status)
	_, _ = w.Write(record.body.Bytes()) // nobody is left to tell
	return nil
}

// repeat answers as the first time.
func repeat(c echo.Context, kept idempotency.Answer) error {
	header := c.Response().Header()
	for name, value := range kept.Headers {
		header.Set(name, value)
	}
	header.Set("Idempotency-Replayed", "true")
	return c.Blob(kept.Status, kept.Headers["Content-Type"], kept.Body)
}

// idempotencyKey is the key of a request, "" for none.
func idempotencyKey(h http.Header) (string, error) {
	lines := h.Values("Idempotency-Key")
	if len(lines) == 0 {
		return "", nil
	}
	key := lines[0]
	ok := len(lines) == 1 && key != "" && len(key) <= idempotency.MaxKey
	for i := range len(key) {
		ok = ok && key[i] >= ' ' && key[i] <= '~'
	}
	if !ok {
		return "", quotad.NewError(quotad.CodeInvalidRequest, "Idempotency-Key must be 1 to 255 printable ASCII characters, given once")
	}
	return key, nil
}

// fingerprint is the SHA-256 of what a request asks for, each part behind its length.
func fingerprint(r *http.Request, body []byte) [32]byte {
	h := sha256.New()
	for _, part := range [][]byte{[]byte(r.Method), []byte(r.URL.EscapedPath()), body} {
		_ = binary.Write(h, binary.BigEndian, uint64(len(part))) // a hash takes everything
		h.Write(part)
	}
	return [32]byte(h.Sum(nil))
}

// withoutSecret is an answer's JSON as every later answer shows it.
func withoutSecret(body []byte) ([]byte, error) {
	o, faults := parse(body)
	if len(faults) > 0 {
		return nil, faults.Err()
	}
	if _, ok := o.values["secret"]; !ok {
		return body, nil
	}
	o.remove("secret")
	return encode(o)
}

// recorder holds an answer back.
type recorder struct {
	http.ResponseWriter
	status int
	body   bytes.Buffer
}

func (r *recorder) WriteHeader(status int) { r.status = status }

func (r *recorder) Write(b []byte) (int, error) { return r.body.Write(b) }
