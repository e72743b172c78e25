package quota

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/database/databasetest"
	"github.com/quotad/quotad/internal/secret"
	"github.com/quotad/quotad/internal/testenv"
)

// page is a log that can be read while it is written.
type page struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (p *page) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.Write(b)
}

// lines returns what was written since the last call.
func (p *page) lines(t *testing.T) (lines []map[string]any) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for line := range strings.Lines(p.text.String()) {
		var one map[string]any
		if err := json.Unmarshal([]byte(line), &one); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		lines = append(lines, one)
	}
	p.text.Reset()
	return lines
}

// watched is a furnished node whose log and metrics can be read.
func watched(t *testing.T, change ...func(*Options)) (*node, *page, *prometheus.Registry) {
	t.Helper()
	log, registry := &page{}, prometheus.NewRegistry()
	n := newNode(t, databasetest.SQLite(t), testenv.NewClock(), nil, append(change, func(o *Options) {
		o.Logger = slog.New(slog.NewJSONHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		o.Registerer = registry
	})...)
	n.furnish()
	return n, log, registry
}

// series are the values of all series that are not 0, and how many there are.
func series(t *testing.T, registry *prometheus.Registry) (values map[string]float64, count int) {
	t.Helper()
	families, err := registry.Gather()
	must(t, 0, err)
	values = map[string]float64{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			name := family.GetName()
			for _, label := range m.GetLabel() {
				name += " " + label.GetName() + "=" + label.GetValue()
			}
			value := m.GetCounter().GetValue() + m.GetGauge().GetValue()
			count++
			if h := m.GetHistogram(); h != nil {
				count += len(h.GetBucket()) + 2
				value = float64(h.GetSampleCount())
			}
			if value != 0 {
				values[name] = value
			}
		}
	}
	return values, count
}

func TestDecisionsAreCountedByResult(t *testing.T) {
	t.Parallel()
	n, _, registry := watched(t)
	n.mustTier(quotad.TierSpec{Name: "dark", RateLimit: quotad.Units(1), Shadow: true})
	n.mustTenant("shade", "dark")
	key, shaded, metered := n.mustKey("acme"), n.mustKey("shade"), n.metered("metered", []quotad.Quota{per(quotad.Day, 1)})
	n.allow(by(metered))
	n.deny(by(metered))
	n.allow(costing(by(key), 10))
	n.deny(by(key))
	n.deny(by(key))
	n.allow(by(shaded))
	n.allow(by(shaded))
	n.fail(costing(by(key), 11), quotad.CodeCostExceedsLimit)
	n.fail(Call{Door: "ping"}, quotad.CodeAPIKeyRequired)
	n.fail(Call{APIKey: "junk", Door: "something new"}, quotad.CodeInvalidAPIKey)
	must(t, 0, func() error { _, err := n.Limits(t.Context(), Call{APIKey: key.Secret, Door: "limits"}); return err }())

	values, _ := series(t, registry)
	for name, want := range map[string]float64{
		"quotad_decisions_total door=check reason= result=allow":                   3,
		"quotad_decisions_total door=check reason=quota_exceeded result=deny":      1,
		"quotad_decisions_total door=check reason= result=shadow_deny":             1,
		"quotad_decisions_total door=check reason=rate_limit_exceeded result=deny": 2,
		"quotad_decisions_total door=check reason=cost_exceeds_limit result=error": 1,
		"quotad_decisions_total door=ping reason=api_key_required result=error":    1,
		"quotad_decisions_total door=other reason=invalid_api_key result=error":    1,
		"quotad_decisions_total door=limits reason= result=allow":                  1,
		"quotad_decision_duration_seconds door=check":                              8,
		"quotad_cache_entries cache=keys":                                          3,
		"quotad_cache_entries cache=tiers":                                         3,
		"quotad_cache_requests_total cache=keys outcome=miss":                      3,
		"quotad_cache_requests_total cache=keys outcome=hit":                       6,
		"quotad_cache_requests_total cache=route_groups outcome=miss":              1,
	} {
		if values[name] != want {
			t.Errorf("%s is %v, want %v", name, values[name], want)
		}
	}
	if t.Failed() {
		t.Log(values)
	}
}

func TestMetricsDoNotGrowWithTheCallers(t *testing.T) {
	t.Parallel()
	n, log, registry := watched(t)
	key := n.mustKey("acme")
	_, before := series(t, registry)
	if before > 600 {
		t.Errorf("%d series from the start", before)
	}
	for i := range 400 {
		text, _ := secret.Mint(secret.APIKey, n.Now())
		n.Check(t.Context(), Call{
			APIKey: text.Reveal(), Method: fmt.Sprint("M", i), Path: fmt.Sprint("/", i), Subject: fmt.Sprint(i),
			Door: fmt.Sprint("door ", i), Address: address(fmt.Sprintf("10.0.%d.%d", i/250, i%250)),
		})
		n.Check(t.Context(), Call{APIKey: key.Secret, Method: fmt.Sprint("M", i), Path: fmt.Sprint("/", i), Subject: fmt.Sprint(i), Door: "check"})
	}
	if _, after := series(t, registry); after != before {
		t.Errorf("%d series, then %d", before, after)
	}
	// One line for the unknown ones, one for the key that ran into its limit.
	if lines := log.lines(t); len(lines) != 2 {
		t.Errorf("%d lines: %v", len(lines), lines[:min(len(lines), 5)])
	}
}

func TestOneLinePerIntervalAndKey(t *testing.T) {
	t.Parallel()
	n, log, _ := watched(t)
	key, other := n.mustKey("acme"), n.mustKey("acme")
	n.allow(costing(by(key), 10))
	n.allow(costing(by(other), 10))
	for range 100 {
		n.deny(by(key))
	}
	n.deny(by(other))
	metered := n.metered("metered", []quotad.Quota{per(quotad.Day, 1)})
	n.allow(by(metered))
	n.deny(by(metered))
	lines := log.lines(t)
	if len(lines) != 3 || lines[2]["reason"] != "quota_exceeded" || lines[2]["policy"] != "per-day" {
		t.Fatalf("%d lines: %v", len(lines), lines)
	}
	for field, want := range map[string]any{
		"msg": "call refused", "level": "INFO", "reason": "rate_limit_exceeded", "key_id": key.ID, "tenant": "acme",
		"route_group": "exports", "policy": "base", "retry_after": 60.0, "door": "check", "suppressed": 0.0,
	} {
		if lines[0][field] != want {
			t.Errorf("%s is %v, want %v", field, lines[0][field], want)
		}
	}
	n.Advance(10 * time.Second)
	n.deny(by(key))
	n.deny(by(key))
	if lines := log.lines(t); len(lines) != 1 || lines[0]["suppressed"] != 99.0 {
		t.Errorf("after the interval: %v", lines)
	}
}

func TestWhyACredentialIsRefusedIsInTheLogAndNoSecretIs(t *testing.T) {
	t.Parallel()
	n, log, _ := watched(t)
	disabled := n.mustKey("acme", func(k *quotad.KeySpec) { k.Status = quotad.KeyDisabled })
	good := n.mustKey("acme")
	forged := secret.MintFor(secret.APIKey, good.ID).Reveal()
	token := n.mustToken(quotad.RoleViewer, nil)
	unknown, _ := secret.Mint(secret.APIKey, n.Now())
	var secrets []string
	for _, c := range []struct {
		call  Call
		cause string
	}{
		{by(disabled), "disabled"},
		{Call{APIKey: forged, RouteGroup: "exports"}, "wrong or expired secret"},
		{Call{APIKey: unknown.Reveal(), RouteGroup: "exports"}, "unknown"},
		{Call{APIKey: "junk of somebody", RouteGroup: "exports"}, "malformed"},
		{Call{ServiceToken: token.Secret, Tenant: "acme", RouteGroup: "exports"}, "admin token without the role service"},
	} {
		n.fail(c.call, quotad.CodeInvalidAPIKey)
		secrets = append(secrets, c.call.APIKey+c.call.ServiceToken)
		lines := log.lines(t)
		if len(lines) != 1 || lines[0]["cause"] != c.cause || lines[0]["reason"] != "invalid_api_key" {
			t.Errorf("%s: %v", c.cause, lines)
		}
		text := fmt.Sprint(lines)
		for _, s := range secrets {
			if strings.Contains(text, s) {
				t.Errorf("%s: the line has a secret", c.cause)
			}
		}
	}
}

func TestTopicsAreBounded(t *testing.T) {
	now := time.Now()
	l := newLines(Options{Logger: slog.New(slog.DiscardHandler), LogInterval: time.Hour, Now: func() time.Time { return now }})
	for i := range 3 * maxTopics {
		l.due(topic{"key", fmt.Sprint(i)})
	}
	if n := l.topics.Len(); n != maxTopics {
		t.Errorf("%d topics are remembered", n)
	}
}

func TestUsesOfKeysAreNoted(t *testing.T) {
	t.Parallel()
	noted := map[string]time.Time{}
	n := newNode(t, databasetest.SQLite(t), testenv.NewClock(), nil, func(o *Options) { o.Touch = notes(noted) })
	n.furnish()
	key, idle := n.mustKey("acme"), n.mustKey("acme")
	n.allow(by(key))
	n.Advance(time.Second)
	n.allow(costing(by(key), 9))
	n.deny(by(key))
	n.fail(Call{APIKey: secret.MintFor(secret.APIKey, idle.ID).Reveal(), RouteGroup: "exports"}, quotad.CodeInvalidAPIKey)
	if len(noted) != 1 || !noted[key.ID].Equal(n.Now()) {
		t.Errorf("%v", noted)
	}
}

type notes map[string]time.Time

func (m notes) Note(id string, now time.Time) { m[id] = now }
