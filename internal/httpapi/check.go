package httpapi

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"

	"github.com/quotad/quotad"
)

// check answers POST /v1/check: the question asked outright.
func (x *exchange) check() error {
	key, token, err := x.keyOrToken()
	if err != nil {
		return err
	}
	x.call.APIKey, x.call.ServiceToken = key, token
	if _, err := x.query(); err != nil {
		return err
	}
	body, err := x.readBody(maxBody)
	if err != nil {
		return err
	}
	x.call, err = decodeCheck(body, token != "")
	x.call.APIKey, x.call.ServiceToken = key, token
	if err != nil {
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
	x.w.Header()["Content-Type"] = jsonType
	x.body = decision.AppendJSON(x.body[:0])
	return x.write(http.StatusOK, x.body)
}

// maxBody is the longest body of a check, in bytes.
const maxBody = 64 << 10

// readBody is the request's body, of so many bytes at most, which has to be JSON by
// its Content-Type. It stands in x.body until the answer is written there.
func (x *exchange) readBody(most int) ([]byte, error) {
	if !isJSON(x.r.Header) {
		return nil, quotad.NewError(quotad.CodeUnsupportedMedia, "Send the body with Content-Type: application/json.")
	}
	tooLarge := func() error {
		return quotad.NewError(quotad.CodePayloadTooLarge, fmt.Sprintf("The body must be at most %d bytes.", most))
	}
	if x.r.ContentLength > int64(most) {
		return nil, tooLarge()
	}
	body := x.body[:0]
	if cap(body) == 0 {
		body = make([]byte, 0, 1024)
	}
	for {
		if len(body) == cap(body) {
			body = append(body, 0)[:len(body)]
		}
		n, err := x.r.Body.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		x.body = body
		switch {
		case len(body) > most:
			return nil, tooLarge()
		case errors.Is(err, io.EOF):
			x.bodyRead = true
			return body, nil
		case err != nil:
			return nil, &quotad.Error{Code: quotad.CodeInvalidRequest, Detail: "The body ended before it was complete.", Cause: err}
		}
	}
}

// isJSON reports whether the headers say that the body is plain JSON in UTF-8.
func isJSON(h http.Header) bool {
	types := h["Content-Type"]
	if len(types) != 1 || h["Content-Encoding"] != nil {
		return false
	}
	if types[0] == "application/json" {
		return true
	}
	media, parameters, err := mime.ParseMediaType(types[0])
	charset, given := parameters["charset"]
	return err == nil && media == "application/json" && (!given || strings.EqualFold(charset, "utf-8"))
}
