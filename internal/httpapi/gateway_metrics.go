package httpapi

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// failure is why an upstream failed, as metrics name it.
type failure int

// The failures. failureCut is an answer that broke off; all others came to no answer.
const (
	failureConnect failure = iota
	failureTimeout
	failureBroken
	failureCut
	failures
)

var failureNames = [failures]string{"connect", "timeout", "broken", "cut"}

// What became of calls that a leaky bucket delays.
const (
	waitPassed = iota
	waitHungUp
	waitFull
	waits
)

var waitNames = [waits]string{"passed", "hung_up", "full"}

// gatewayMetrics count what upstreams answer; what the gateway itself answers is
// counted as every door's answers are. All series exist from the start, and nothing in
// a request adds one.
type gatewayMetrics struct {
	answers  [5]prometheus.Counter
	duration prometheus.Histogram
	failures [failures]prometheus.Counter
	waits    [waits]prometheus.Counter
}

func newGatewayMetrics(registerer prometheus.Registerer, q *queue) *gatewayMetrics {
	answers := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "quotad_gateway_answers_total", Help: "Answers of upstreams that were passed on, by class of status.",
	}, []string{"class"})
	broken := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "quotad_gateway_upstream_failures_total",
		Help: "Calls that upstreams failed, by reason: connect, timeout, broken (no answer, or none that can be read), cut (broke off).",
	}, []string{"reason"})
	waited := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "quotad_gateway_waits_total",
		Help: "Calls that leaky buckets delay, by what became of them: passed, hung_up, and full, which counts those refused while no more could wait.",
	}, []string{"outcome"})
	m := &gatewayMetrics{duration: prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "quotad_gateway_upstream_duration_seconds",
		Help:    "Time from passing a call on to the headers of the upstream's answer.",
		Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60},
	})}
	for i, class := range [...]string{"1xx", "2xx", "3xx", "4xx", "5xx"} {
		m.answers[i] = answers.WithLabelValues(class)
	}
	for i, name := range failureNames {
		m.failures[i] = broken.WithLabelValues(name)
	}
	for i, name := range waitNames {
		m.waits[i] = waited.WithLabelValues(name)
	}
	if registerer != nil {
		registerer.MustRegister(answers, m.duration, broken, waited, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "quotad_gateway_waiting", Help: "Calls that are held back for a leaky bucket.",
		}, func() float64 { return float64(q.waiting.Load()) }))
	}
	return m
}

// answered counts an answer. Statuses that are none count as failures of the upstream.
func (m *gatewayMetrics) answered(status int, took time.Duration) {
	class := status/100 - 1
	if class < 0 || class >= len(m.answers) {
		class = len(m.answers) - 1
	}
	m.answers[class].Inc()
	m.duration.Observe(took.Seconds())
}
