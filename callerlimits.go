package quotad

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
)

// LimitsRequest asks where the limits of a key stand.
type LimitsRequest struct {
	// APIKey is the caller's; ClientOptions.APIKey stands in for it.
	APIKey Credential
	// RouteGroup is the one that is asked about; "" means all that the key may use.
	RouteGroup string
	// Subject is whose limits of scope subject are meant; "" means none.
	Subject string
	// ForwardedFor is as in a CheckRequest.
	ForwardedFor netip.Addr
}

// CallerLimits are where a caller stands in each route group that it may use.
type CallerLimits struct {
	Tenant string `json:"tenant"`
	KeyID  string `json:"key_id"`
	Tier   string `json:"tier"`
	// Degraded is true when a failure policy answered in place of the counter store.
	Degraded    bool          `json:"degraded"`
	RouteGroups []GroupLimits `json:"route_groups"`
}

// GroupLimits are where the limits of one route group stand.
type GroupLimits struct {
	RouteGroup string        `json:"route_group"`
	Limits     []LimitStatus `json:"limits"`
}

// Limits asks what a key has left, and charges nothing. Its errors are those of
// Check; no failure policy stands in for an answer, so a quotad that is away is
// always ErrLimiterUnavailable.
func (c *Client) Limits(ctx context.Context, q LimitsRequest) (CallerLimits, error) {
	by, err := c.credentials(q.APIKey, "", c.key)
	if err != nil {
		return CallerLimits{}, err
	}
	query := url.Values{}
	if q.RouteGroup != "" {
		query.Set("route_group", q.RouteGroup)
	}
	if q.Subject != "" {
		query.Set("subject", q.Subject)
	}
	path := "/v1/limits"
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	h := by.header()
	if q.ForwardedFor.IsValid() {
		h["X-Forwarded-For"] = []string{q.ForwardedFor.String()}
	}
	var limits CallerLimits
	var refused error
	failure, err := c.send(ctx, http.MethodGet, path, h, nil, maxAnswers, func(status int, h http.Header, body []byte) (err error) {
		if status != http.StatusOK {
			refused, err = readError(status, h, body)
			return err
		}
		if err := json.Unmarshal(body, &limits); err != nil || limits.RouteGroups == nil {
			return fmt.Errorf("%w: 200 OK without limits", errOdd)
		}
		return nil
	})
	switch {
	case err != nil:
		return CallerLimits{}, err
	case failure != nil:
		return CallerLimits{}, unavailable(failure)
	}
	return limits, refused
}
