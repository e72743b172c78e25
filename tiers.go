package quotad

import "time"

// MaxLimits is the most limits that one tier or route group can carry.
const MaxLimits = 32

// TierSpec is what an operator says of a tier.
type TierSpec struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	// RateLimit units per RateWindow seconds are counted per key and per route
	// group. 0 admits nothing, nil is unlimited.
	RateLimit  *int64    `json:"rate_limit"`
	RateWindow int64     `json:"rate_window"`
	Algorithm  Algorithm `json:"algorithm"`
	// Burst is a token bucket's capacity, or a leaky bucket's queue; nil means RateLimit.
	Burst *int64 `json:"burst"`
	// MaxDelayMS is how long a leaky bucket lets a call wait, in milliseconds.
	MaxDelayMS int64 `json:"max_delay_ms"`
	// OnStoreFailure is nil where the server's own policy holds.
	OnStoreFailure *FailurePolicy `json:"on_store_failure"`
	Shadow         bool           `json:"shadow"`
	// Limits are further limits. One of a named group with scope key takes the
	// place of the base limit in that group; every other one is added to it.
	Limits []Limit `json:"limits"`
	// Quotas are added to the limits.
	Quotas []Quota `json:"quotas"`
}

// Tier is a tier as it is stored.
type Tier struct {
	TierSpec
	Version   int64     `json:"version"`
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
}

// Base is the tier's own limit as it stands in every group that no limit of
// scope key names.
func (t TierSpec) Base() Limit {
	return Limit{
		Name: BaseLimit, Scope: ScopeKey, Algorithm: t.Algorithm,
		RateLimit: t.RateLimit, RateWindow: t.RateWindow, Burst: t.Burst, MaxDelayMS: t.MaxDelayMS, Shadow: t.Shadow,
	}
}

// SetDefaults fills the fields that may be left out.
func (t *TierSpec) SetDefaults() {
	if t.Algorithm == "" {
		t.Algorithm = SlidingWindowCounter
	}
	t.Limits = append([]Limit{}, t.Limits...) // the caller's own stay as they are
	for i := range t.Limits {
		t.Limits[i].SetDefaults()
	}
	t.Quotas = append([]Quota{}, t.Quotas...)
	for i := range t.Quotas {
		t.Quotas[i].SetDefaults()
	}
}

// Validate returns the faults of a tier whose defaults are set, nil when there are none.
func (t TierSpec) Validate() Faults {
	var faults Faults
	faults.name("name", t.Name)
	faults.text("description", t.Description, false)
	t.Base().validateRate("", &faults)
	if t.OnStoreFailure != nil {
		oneOf(&faults, "on_store_failure", *t.OnStoreFailure, FailurePolicies)
	}
	names := validateLimits(t.Limits, &faults)
	validateQuotas(t.Quotas, names, &faults)
	return faults
}

// validateLimits adds the faults of limits that stand together, and returns
// their names.
func validateLimits(limits []Limit, faults *Faults) (names map[string]bool) {
	names = map[string]bool{}
	if !faults.atMost("limits", len(limits), MaxLimits) {
		return names
	}
	for i, l := range limits {
		prefix := index("limits", i)
		l.validate(prefix, faults)
		if names[l.Name] {
			faults.Add(prefix+"name", "is used by another limit")
		}
		names[l.Name] = true
	}
	return names
}
