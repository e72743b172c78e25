package ratelimit

import (
	"context"
	"errors"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/quotad/quotad"
)

// failureKinds are the labels of quotad_store_failures_total, by the word that a
// Redis error begins with.
var failureKinds = map[string]string{
	"READONLY": "readonly", "OOM": "oom", "LOADING": "loading", "NOAUTH": "noauth", "WRONGPASS": "noauth",
	"NOPERM": "noauth", "MISCONF": "misconf", "BUSY": "busy", "CLUSTERDOWN": "clusterdown",
	"MASTERDOWN": "masterdown", "WRONGTYPE": "wrongtype", "NOSCRIPT": "noscript", "MOVED": "moved", "ASK": "moved",
	"TRYAGAIN": "moved", "CROSSSLOT": "crossslot", "NOREPLICAS": "noreplicas",
}

// failureKind names a failure for metrics and logs, from a small fixed set.
func failureKind(err error) string {
	for prefix, kind := range failureKinds {
		if redis.HasErrorPrefix(err, prefix) {
			return kind
		}
	}
	var network net.Error
	var reply redis.Error
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, redis.ErrPoolTimeout),
		errors.As(err, &network) && network.Timeout():
		return "timeout"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "refused"
	case errors.As(err, &reply):
		return "script"
	default:
		return "connection"
	}
}

type failoverMetrics struct {
	failures *prometheus.CounterVec
	answers  *prometheus.CounterVec
	duration prometheus.Histogram
	breakers prometheus.Gauge
}

func newFailoverMetrics(r prometheus.Registerer) *failoverMetrics {
	m := &failoverMetrics{
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "quotad_store_failures_total", Help: "Calls to the counter store that failed, by kind of failure.",
		}, []string{"kind"}),
		answers: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "quotad_degraded_answers_total", Help: "Calls that a failure policy answered, by policy.",
		}, []string{"policy"}),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "quotad_store_duration_seconds", Help: "Time that calls spent on the counter store.",
			Buckets: []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1},
		}),
		breakers: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "quotad_breaker_open", Help: "Breakers before the counter store that are not closed: of 1, or of 64 for a Cluster.",
		}),
	}
	for _, kind := range failureKinds {
		m.failures.WithLabelValues(kind)
	}
	for _, kind := range []string{"timeout", "refused", "script", "connection"} {
		m.failures.WithLabelValues(kind)
	}
	for _, p := range quotad.FailurePolicies {
		m.answers.WithLabelValues(string(p))
	}
	if r != nil {
		r.MustRegister(m.failures, m.answers, m.duration, m.breakers)
	}
	return m
}

func (m *failoverMetrics) took(d time.Duration, err error) {
	m.duration.Observe(d.Seconds())
	if !isAnswer(err) {
		m.failures.WithLabelValues(failureKind(err)).Inc()
	}
}

func (m *failoverMetrics) degraded(p quotad.FailurePolicy) {
	m.answers.WithLabelValues(string(p)).Inc()
}
