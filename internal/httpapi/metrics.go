package httpapi

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// door is where a request came in, as metrics name it.
type door int

// The doors. doorOther is every path and method that no door answers.
const (
	doorPing door = iota
	doorCheck
	doorChecks
	doorAuthorize
	doorLimits
	doorGateway
	doorHealth
	doorOther
	doors
)

func (d door) String() string {
	return [doors]string{"ping", "check", "checks", "authorize", "limits", "gateway", "health", "other"}[d]
}

// metered reports whether the door's requests are calls: checks of health and what
// has no route are not.
func (d door) metered() bool { return d != doorHealth && d != doorOther }

// statusClientClosed counts the calls whose client hung up before the answer.
const statusClientClosed = 499

// statuses are all statuses that this package answers with; the last one stands for any other.
var statuses = [...]int{
	http.StatusOK, http.StatusNoContent, http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden,
	http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusRequestEntityTooLarge,
	http.StatusUnsupportedMediaType, http.StatusTooManyRequests, statusClientClosed,
	http.StatusServiceUnavailable, http.StatusBadGateway, http.StatusGatewayTimeout, http.StatusInternalServerError,
}

// metrics counts requests and times them. All series exist from the start, and
// nothing in a request adds one.
type metrics struct {
	requests  [doors][len(statuses)]prometheus.Counter
	durations [doors]prometheus.Observer
}

func newMetrics(registerer prometheus.Registerer) *metrics {
	requests := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "quotad_http_requests_total",
		Help: "Requests to the metered API by front door and status (499: the client hung up first).",
	}, []string{"door", "status"})
	durations := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "quotad_http_request_duration_seconds",
		Help:    "Time from the headers of a request to the end of its answer, by front door.",
		Buckets: []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1},
	}, []string{"door"})
	m := &metrics{}
	for d := range doors {
		m.durations[d] = durations.WithLabelValues(d.String())
		for i, status := range statuses {
			m.requests[d][i] = requests.WithLabelValues(d.String(), strconv.Itoa(status))
		}
	}
	if registerer != nil {
		registerer.MustRegister(requests, durations)
	}
	return m
}

func (m *metrics) observe(d door, status int, took time.Duration) {
	i := 0
	for i < len(statuses)-1 && statuses[i] != status {
		i++
	}
	m.requests[d][i].Inc()
	m.durations[d].Observe(took.Seconds())
}
