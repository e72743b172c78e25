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
	// Burst is a token bucket's capacity; nil means RateLimit.
	Burst *int64 `json:"burst"`
	// OnStoreFailure is nil where the server's own policy holds.
	OnStoreFailure *FailurePolicy `json:"on_store_failure"`
	Shadow         bool           `json:"shadow"`
	// Limits are further limits. One of a named group with scope key takes the
	// place of the base limit in that group; every other one is added to it.
	Limits []Limit `json:"limits"`
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
		RateLimit: t.RateLimit, RateWindow: t.RateWindow, Burst: t.Burst, Shadow: t.Shadow,
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
	validateLimits(t.Limits, &faults)
	return faults
}

func validateLimits(limits []Limit, faults *Faults) {
	if len(limits) > MaxLimits {
		faults.Add("limits", "must be at most 32")
		return
	}
	names := map[string]bool{}
	for i, l := range limits {
		prefix := index("limits", i)
		l.validate(prefix, faults)
		if names[l.Name] {
			faults.Add(prefix+"name", "is used by another limit")
		}
		names[l.Name] = true
	}
}
