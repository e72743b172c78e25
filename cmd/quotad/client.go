package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/quotad/quotad"
)

// clientTimeout is the longest that one request to the admin API takes.
const clientTimeout = 15 * time.Second

// client asks the admin API of a running node.
type client struct {
	server string
	token  hidden
	http   *http.Client
}

func newClient(config Config) *client {
	return &client{server: config.Server, token: config.AdminToken, http: &http.Client{Timeout: clientTimeout}}
}

// do sends a body as JSON, nil for none, and reads the answer into answer, nil for one that is not wanted.
func (c *client) do(ctx context.Context, method, path string, body, answer any) error {
	var sent io.Reader
	if body != nil {
		raw, err := json.Marshal(body)
		if err != nil {
			return fmt.Errorf("encode the request: %w", err)
		}
		sent = bytes.NewReader(raw)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.server+"/admin/v1"+path, sent)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+c.token.reveal())
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "quotad/"+thisBuild().version)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := c.http.Do(req)
	if err != nil {
		return fmt.Errorf("ask the admin API: %w", err)
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(res.Body, 16<<20))
	switch {
	case err != nil:
		return fmt.Errorf("read the answer of the admin API: %w", err)
	case res.StatusCode >= 300:
		return refused(res.StatusCode, raw)
	case answer == nil:
		return nil
	}
	if err := json.Unmarshal(raw, answer); err != nil {
		return fmt.Errorf("%s does not answer as an admin API of quotad does", c.server)
	}
	return nil
}

// refused is what an answer says that is not a success.
func refused(status int, raw []byte) error {
	var p quotad.Problem
	if json.Unmarshal(raw, &p) != nil || p.Error == "" {
		return fmt.Errorf("the server answered %d %s: is it the admin API of a quotad?", status, http.StatusText(status))
	}
	text := p.Message
	if p.Detail != "" && p.Detail != p.Message {
		text = p.Detail
	}
	lines := []string{text}
	for _, field := range slices.Sorted(maps.Keys(p.Fields)) {
		lines = append(lines, field+" "+p.Fields[field])
	}
	return errors.New(strings.Join(lines, "\n  "))
}

// keys of a tenant, all pages of them.
func (c *client) keys(ctx context.Context, tenant string) ([]quotad.Key, error) {
	all := []quotad.Key{}
	for cursor := ""; ; {
		query := url.Values{"limit": {"500"}}
		if cursor != "" {
			query.Set("cursor", cursor)
		}
		var page struct {
			Items      []quotad.Key `json:"items"`
			NextCursor string       `json:"next_cursor"`
		}
		if err := c.do(ctx, http.MethodGet, "/tenants/"+url.PathEscape(tenant)+"/keys?"+query.Encode(), nil, &page); err != nil {
			return nil, err
		}
		all = append(all, page.Items...)
		if cursor = page.NextCursor; cursor == "" {
			return all, nil
		}
	}
}
