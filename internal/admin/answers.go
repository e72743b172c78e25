package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"

	"github.com/labstack/echo/v4"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/database"
)

// page is one page of a list.
type page[T any] struct {
	Items []T `json:"items"`
	// NextCursor asks for the page after this one; "" on the last.
	NextCursor string `json:"next_cursor"`
}

// pageOf is the page of a list that is asked for. An empty cursor is the first
// page: that is what next_cursor would be before it.
func pageOf(c echo.Context) (database.Page, error) {
	query := c.QueryParams()
	if query.Has("limit") && query.Get("limit") == "" {
		return database.Page{}, invalidQuery("limit", "must not be empty")
	}
	return database.ParsePage(query.Get("limit"), query.Get("cursor"))
}

// list answers with the page of a list that is asked for.
func list[T any](c echo.Context, read func(context.Context, database.Page) (items []T, next string, err error)) error {
	asked, err := pageOf(c)
	if err != nil {
		return err
	}
	items, next, err := read(c.Request().Context(), asked)
	if err != nil {
		return err
	}
	if items == nil {
		items = []T{}
	}
	return write(c, http.StatusOK, page[T]{Items: items, NextCursor: next})
}

// write encodes before it answers, so that what can't be encoded is a 500 and
// not half an answer.
func write(c echo.Context, status int, body any) error {
	raw, err := encode(body)
	if err != nil {
		return err
	}
	return c.Blob(status, jsonType, raw)
}

// encode writes JSON whose texts stand as they were sent: nobody shows it as HTML.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, fmt.Errorf("encode answer: %w", err)
	}
	return b.Bytes(), nil
}

// named is the resource's id or name, the one parameter of the path. What can be
// none is not found, without asking the database.
func named(c echo.Context) (string, error) {
	text, err := url.PathUnescape(c.ParamValues()[0])
	if err != nil || !addressable(text) {
		return "", quotad.ErrNotFound
	}
	return text, nil
}

// addressable reports whether a resource can be called that: names, and the ids
// of keys and admin tokens, which have capitals too.
func addressable(text string) bool {
	if text == "" || len(text) > 64 {
		return false
	}
	for _, r := range []byte(text) {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '.', r == '_', r == '-':
		default:
			return false
		}
	}
	return true
}
