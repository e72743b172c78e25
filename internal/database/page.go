package database

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/quotad/quotad"
)

// The number of rows on a page.
const (
	DefaultLimit = 50
	MaxLimit     = 500
)

// ErrCursor is the error of a cursor that no list gave out.
var ErrCursor = quotad.NewError(quotad.CodeInvalidRequest, "cursor is not one that a list gave out")

// maxCursor is the longest cursor that is looked at, in bytes.
const maxCursor = 2048

// Page asks for a part of a list. The zero value is the first page of DefaultLimit rows.
type Page struct {
	// Limit is the most rows, 1 to MaxLimit; 0 means DefaultLimit.
	Limit int
	// After is the cursor that came with the page before; "" asks for the first one.
	After string
}

// ParsePage reads the limit and cursor of a request, "" where they were left out. What is wrong is
// quotad.CodeInvalidRequest; whether the cursor fits the list shows when it is read.
func ParsePage(limit, cursor string) (Page, error) {
	p := Page{Limit: DefaultLimit, After: cursor}
	if limit == "" {
		return p, nil
	}
	n, err := strconv.Atoi(limit)
	if err != nil || n < 1 || n > MaxLimit {
		return Page{}, quotad.NewError(quotad.CodeInvalidRequest, fmt.Sprintf("limit must be a whole number from 1 to %d", MaxLimit))
	}
	p.Limit = n
	return p, nil
}

// Start reads the page for the named list. The name says all that makes the list this one: what it lists, of which
// tenant, by which filters. key is a pointer to what the list is ordered by; after is true if the cursor filled it, and
// the page has the rows behind it. rows is how many to ask the database for: one more than the page holds, which tells
// whether there is another page.
func (p Page) Start(list string, key any) (rows int, after bool, err error) {
	switch {
	case p.Limit == 0:
		p.Limit = DefaultLimit
	case p.Limit < 0 || p.Limit > MaxLimit:
		return 0, false, quotad.NewError(quotad.CodeInvalidRequest, fmt.Sprintf("limit must be from 1 to %d", MaxLimit))
	}
	if p.After == "" {
		return p.Limit + 1, false, nil
	}
	if err := decodeCursor(p.After, list, key); err != nil {
		return 0, false, err
	}
	return p.Limit + 1, true, nil
}

// Cut returns the rows of the page, of those that the database gave for Start, and the cursor of the next page, "" on
// the last one. key is what the list is ordered by, of one row.
func Cut[R, K any](p Page, list string, rows []R, key func(R) K) (page []R, next string, err error) {
	limit := p.Limit
	if limit == 0 {
		limit = DefaultLimit
	}
	if len(rows) <= limit {
		return rows, "", nil
	}
	rows = rows[:limit]
	next, err = encodeCursor(list, key(rows[limit-1]))
	return rows, next, err
}

// cursor is what a client carries from page to page without looking inside.
type cursor struct {
	List string          `json:"l"`
	Key  json.RawMessage `json:"k"`
}

func encodeCursor(list string, key any) (string, error) {
	k, err := json.Marshal(key)
	if err != nil {
		return "", fmt.Errorf("encode the cursor of %s: %w", list, err)
	}
	raw, err := json.Marshal(cursor{List: list, Key: k})
	if err != nil {
		return "", fmt.Errorf("encode the cursor of %s: %w", list, err)
	}
	return base64.RawURLEncoding.EncodeToString(raw), nil
}

func decodeCursor(text, list string, key any) error {
	if len(text) > maxCursor {
		return ErrCursor
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil {
		return ErrCursor
	}
	var c cursor
	if err := strict(raw, &c); err != nil || len(c.Key) == 0 || string(c.Key) == "null" {
		return ErrCursor
	}
	if c.List != list {
		return quotad.NewError(quotad.CodeInvalidRequest, "cursor belongs to another list")
	}
	if err := strict(c.Key, key); err != nil {
		return ErrCursor
	}
	return nil
}

// strict decodes raw, all of it and nothing that it has too much.
func strict(raw []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if _, err := d.Token(); err != io.EOF {
		return errors.New("something follows the value")
	}
	return nil
}
