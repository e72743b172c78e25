package httpapi

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/quota"
)

// echoing is a Checker that admits each call to the group, or path, that it names.
type echoing struct{}

func (echoing) Check(_ context.Context, call quota.Call) (quotad.Decision, error) {
	return quotad.Decision{Allowed: true, RouteGroup: call.RouteGroup + call.Path}, nil
}

func (e echoing) CheckAll(ctx context.Context, calls []quota.Call) ([]quota.Result, quotad.Decision, error) {
	results := make([]quota.Result, len(calls))
	for i, call := range calls {
		results[i].Decision, results[i].Err = e.Check(ctx, call)
	}
	return results, quotad.Decision{}, nil
}

func (echoing) Limits(context.Context, quota.Call) ([]quotad.Decision, error) { return nil, nil }

func TestOneRequestLeavesNothingToTheNext(t *testing.T) {
	t.Parallel()
	a := &answers{decision: refused()}
	s := service(t, a, Options{CORSOrigins: []string{"https://app.example.com"}})
	for range 20 { // the pool may hand out any of its exchanges
		wantStatus(t, get(s, "/v1/authorize?deny_status=403", origin, "Accept-Language: ar", "X-Request-Id: mine"), 403)
		w := get(s, "/v1/authorize")
		wantStatus(t, w, 429)
		wantHeaders(t, w, "X-Quotad-Status:", "Content-Language: en", "Access-Control-Allow-Origin:", "Connection:")
		if header(w, "X-Request-Id") == "mine" {
			t.Error("the request id is the last request's")
		}

		checkBody(s, check)
		unread := request("GET", "/v1/ping", "unread", withKey)
		wantHeaders(t, do(s, unread), "Connection: close")
	}
}

func TestRequestsSideBySideKeepApart(t *testing.T) {
	t.Parallel()
	s := New(&echoing{}, Options{})
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 200 {
				group := fmt.Sprint("g", i, "-", j)
				w := checkBody(s, `{"route_group":"`+group+`"}`)
				if !strings.Contains(w.Body.String(), `"route_group":"`+group+`"`) {
					t.Errorf("%s: got %s", group, w.Body)
				}
				w = get(s, "/v1/authorize/"+group)
				if header(w, "X-Quotad-Route-Group") != "/"+group {
					t.Errorf("%s: got %v", group, w.Header())
				}
			}
		})
	}
	wg.Wait()
}
