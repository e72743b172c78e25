package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/quotad/quotad"
)

// series are all series of a registry by name and labels; histograms count their observations.
func series(t *testing.T, registry *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]float64{}
	for _, f := range families {
		for _, m := range f.Metric {
			key := f.GetName()
			for _, l := range m.Label {
				key += " " + l.GetName() + "=" + l.GetValue()
			}
			all[key] = value(m)
		}
	}
	return all
}

func value(m *dto.Metric) float64 {
	if m.Histogram != nil {
		return float64(m.Histogram.GetSampleCount())
	}
	return m.Counter.GetValue()
}

func TestRequestsAreCountedByDoorAndStatus(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	a := &answers{decision: admitted()}
	s := service(t, a, Options{Registerer: registry})
	get(s, "/v1/ping")
	get(s, "/v1/ping")
	checkBody(s, check)
	checkBody(s, "{}")
	get(s, "/nowhere")
	do(s, request("POST", "/v1/ping", ""))
	get(s, "/readyz")
	a.decision = refused()
	get(s, "/v1/authorize")
	get(s, "/v1/authorize?deny_status=403")
	get(s, "/v1/limits")
	for key, want := range map[string]float64{
		"quotad_http_requests_total door=ping status=200":      2,
		"quotad_http_requests_total door=check status=200":     1,
		"quotad_http_requests_total door=check status=400":     1,
		"quotad_http_requests_total door=other status=404":     1,
		"quotad_http_requests_total door=other status=405":     1,
		"quotad_http_requests_total door=health status=200":    1,
		"quotad_http_requests_total door=authorize status=429": 1,
		"quotad_http_requests_total door=authorize status=403": 1,
		"quotad_http_requests_total door=limits status=200":    1,
		"quotad_http_requests_total door=limits status=429":    0,
		"quotad_http_request_duration_seconds door=ping":       2,
		"quotad_http_request_duration_seconds door=authorize":  2,
	} {
		if got, ok := series(t, registry)[key]; !ok || got != want {
			t.Errorf("%s: got %v (present %v), want %v", key, got, ok, want)
		}
	}
}

func TestNothingInARequestAddsASeries(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	a := &answers{decision: admitted()}
	s := service(t, a, Options{Registerer: registry})
	before := len(series(t, registry))
	errs := []error{nil, quotad.ErrInvalidAPIKey, quotad.ErrLimiterUnavailable, quotad.ErrConflict, errors.New("x")}
	for i := range 1000 {
		a.err = errs[i%len(errs)]
		a.decision.Tenant, a.decision.KeyID = fmt.Sprint("t", i), fmt.Sprint("k", i)
		for _, target := range []string{"/v1/ping", "/v1/authorize/p", "/v1/check", "/nowhere"} {
			r := request(fmt.Sprint("M", i), fmt.Sprint(target, "/", i), "", fmt.Sprint("X-API-Key: ", i), fmt.Sprint("Origin: ", i))
			r.Host = fmt.Sprint("host", i)
			do(s, r)
		}
	}
	if after := len(series(t, registry)); after != before {
		t.Errorf("%d series became %d", before, after)
	}
}

func TestAClientThatHangsUpIsCountedApart(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	ctx, cancel := context.WithCancel(context.Background())
	s := service(t, &answers{before: cancel, err: fmt.Errorf("check: %w", context.Canceled)}, Options{Registerer: registry})
	s.Handler().ServeHTTP(httptest.NewRecorder(), request("GET", "/v1/ping", "", withKey).WithContext(ctx))
	all := series(t, registry)
	if all["quotad_http_requests_total door=ping status=499"] != 1 || all["quotad_http_requests_total door=ping status=503"] != 0 {
		t.Errorf("got %v", all)
	}
}
