package quota

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/quotad/quotad"
)

// cacheName is one of the caches, as a label.
type cacheName int

// The caches.
const (
	cacheKeys cacheName = iota
	cacheTenants
	cacheTiers
	cacheTokens
	cacheGroups
	caches
)

var cacheNames = [caches]string{"keys", "tenants", "tiers", "tokens", "route_groups"}

// doors are the front doors, as labels; any other is the last.
var doors = [...]string{"ping", "check", "checks", "authorize", "limits", "gateway", "ratelimit", "extauthz", "other"}

// results are what a call came to, each with the reason that a caller is given.
// All combinations exist from the start, so that a rate over one that has not
// happened yet is 0 and not absent.
var results = [...]struct{ result, reason string }{
	{"allow", ""},
	{"shadow_deny", ""}, // allowed, but not if its shadow limits were enforced
	{"deny", string(quotad.CodeRateLimitExceeded)},
	{"deny", string(quotad.CodeQuotaExceeded)},
	{"degraded_open", ""},
	{"degraded_open", string(quotad.CodeRateLimitExceeded)},
	{"degraded_open", string(quotad.CodeQuotaExceeded)},
	{"degraded_local", ""},
	{"degraded_local", string(quotad.CodeRateLimitExceeded)},
	{"degraded_local", string(quotad.CodeQuotaExceeded)},
	{"error", string(quotad.CodeAPIKeyRequired)},
	{"error", string(quotad.CodeInvalidAPIKey)},
	{"error", string(quotad.CodeAmbiguousCredentials)},
	{"error", string(quotad.CodeInvalidCost)},
	{"error", string(quotad.CodeCostExceedsLimit)},
	{"error", string(quotad.CodeInvalidPath)},
	{"error", string(quotad.CodeInvalidRequest)},
	{"error", string(quotad.CodePayloadTooLarge)},
	{"error", string(quotad.CodeUnsupportedMedia)},
	{"error", string(quotad.CodeRouteNotAllowed)},
	{"error", string(quotad.CodeLimiterUnavailable)},
	{"error", string(quotad.CodeStoreUnavailable)},
	{"error", string(quotad.CodeInternal)}, // stays last: what is none of the others
}

// latencies are in seconds; a decision from memory takes microseconds, one over
// Redis a fraction of a millisecond.
var latencies = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5}

// metrics are the Checker's. No label is ever taken from a call.
type metrics struct {
	decisions [len(doors)][len(results)]prometheus.Counter
	durations [len(doors)]prometheus.Observer
	lookups   [caches][outcomes]prometheus.Counter
	addresses [len(addressPolicies)]prometheus.Counter // what each refused
	all       []prometheus.Collector
}

func newMetrics() *metrics {
	m := &metrics{}
	decisions := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "quotad_decisions_total",
		Help: "Calls decided, by result, by the reason that the caller was given, and by front door.",
	}, []string{"result", "reason", "door"})
	durations := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "quotad_decision_duration_seconds", Help: "Time that a decision took, its look-ups included.", Buckets: latencies,
	}, []string{"door"})
	lookups := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "quotad_cache_requests_total",
		Help: "Look-ups by cache and outcome: hit, miss (waited for the database), stale (the database is away or late), negative (known not to exist).",
	}, []string{"cache", "outcome"})
	for i, door := range doors {
		m.durations[i] = durations.WithLabelValues(door)
		for j, r := range results {
			m.decisions[i][j] = decisions.WithLabelValues(r.result, r.reason, door)
		}
	}
	for i, cache := range cacheNames {
		for j, outcome := range outcomeNames {
			m.lookups[i][j] = lookups.WithLabelValues(cache, outcome)
		}
	}
	addresses := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "quotad_address_refusals_total",
		Help: "Calls refused before authentication, by policy: address (its calls) or failed-keys. They count as decisions, too.",
	}, []string{"policy"})
	for i, policy := range addressPolicies {
		m.addresses[i] = addresses.WithLabelValues(policy)
	}
	m.all = []prometheus.Collector{decisions, durations, lookups, addresses}
	return m
}

// register adds the metrics, and what is read from c when it is asked for, to r,
// which may be nil.
func (m *metrics) register(r prometheus.Registerer, c *Checker) {
	if r == nil {
		return
	}
	r.MustRegister(m.all...)
	sizes := [caches]func() (int, int){c.keys.Len, c.tenants.Len, c.tiers.Len, c.tokens.Len, c.groups.Len}
	for i, size := range sizes {
		for _, known := range []bool{true, false} {
			name := cacheNames[i]
			if !known {
				name = "unknown_" + name
			}
			r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
				Name: "quotad_cache_entries", Help: "Entries kept, by cache; those of ids known not to exist apart.",
				ConstLabels: prometheus.Labels{"cache": name},
			}, func() float64 {
				entries, unknown := size()
				if known {
					return float64(entries)
				}
				return float64(unknown)
			}))
		}
	}
	r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "quotad_address_counters", Help: "Counters kept of addresses, for the limits before authentication.",
	}, func() float64 {
		if c.addresses == nil {
			return 0
		}
		return float64(c.addresses.memory.Len())
	}))
	r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "quotad_database_away", Help: "1 while look-ups are kept off the database because it does not answer, else 0.",
	}, func() float64 {
		if c.guard.closed() {
			return 0
		}
		return 1
	}))
}

// count counts one decision.
func (m *metrics) count(door string, d *quotad.Decision, code quotad.Code, took time.Duration) {
	at := doorIndex(door)
	m.decisions[at][resultIndex(d, code)].Inc()
	m.durations[at].Observe(took.Seconds())
}

func doorIndex(door string) int {
	for i, name := range doors {
		if name == door {
			return i
		}
	}
	return len(doors) - 1
}

// resultIndex finds the result of a decision, or of the code of an error where
// that is not "".
func resultIndex(d *quotad.Decision, code quotad.Code) int {
	result, reason := "allow", ""
	switch {
	case code != "":
		result, reason = "error", string(code)
	case d.DegradedBy == quotad.FailOpen:
		result = "degraded_open"
	case d.DegradedBy == quotad.FailLocal:
		result = "degraded_local"
	case !d.Allowed:
		result = "deny"
	case shadowDenied(d):
		result = "shadow_deny"
	}
	if code == "" && !d.Allowed {
		reason = string(d.Refusal())
	}
	for i, r := range results {
		if r.result == result && r.reason == reason {
			return i
		}
	}
	return len(results) - 1
}

func shadowDenied(d *quotad.Decision) bool {
	for i := range d.Limits {
		if !d.Limits[i].Allowed {
			return true
		}
	}
	return false
}

// codeOf is the code of an error; quotad.CodeInternal of one that has none, and
// "" of nil.
func codeOf(err error) quotad.Code {
	if err == nil {
		return ""
	}
	var e *quotad.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return quotad.CodeInternal
}
