package quotad

import (
	"fmt"
	"net/netip"
	"slices"
	"time"
)

// KeyStatus is what a key's state amounts to now.
type KeyStatus string

// The statuses of a key. An operator sets active and disabled; a revoke is
// final; expired follows from ExpiresAt.
const (
	KeyActive   KeyStatus = "active"
	KeyDisabled KeyStatus = "disabled"
	KeyRevoked  KeyStatus = "revoked"
	KeyExpired  KeyStatus = "expired"
)

// MaxListed is the most route groups or address ranges that a key can list.
const MaxListed = 100

// KeySpec is what an operator says of a key.
type KeySpec struct {
	Name string `json:"name"`
	// RateLimit and RateWindow, set together, override the tier's base limit.
	RateLimit  *int64 `json:"rate_limit"`
	RateWindow *int64 `json:"rate_window"`
	// RouteGroups are the groups that the key may call; nil means all.
	RouteGroups []string `json:"route_groups"`
	// AllowedCIDRs are the addresses that may use the key; empty means all.
	AllowedCIDRs []netip.Prefix `json:"allowed_cidrs"`
	// ExpiresAt is the first instant at which the key no longer works; nil means never.
	ExpiresAt *time.Time `json:"expires_at"`
	// Status is KeyActive or KeyDisabled.
	Status KeyStatus `json:"status"`
}

// Key is an API key as it is stored and shown. Usage belongs to its ID, so that
// a second secret for the same key never grants a fresh allowance.
type Key struct {
	ID     string `json:"id"`
	Tenant string `json:"tenant"`
	KeySpec
	// Hint shows which secret is meant: the prefix and the last four characters.
	Hint string `json:"hint"`
	// Secret is present once, in the answer that created or rotated the key.
	Secret     string     `json:"secret,omitempty"`
	Version    int64      `json:"version"`
	CreatedAt  time.Time  `json:"created_at"`
	UpdatedAt  time.Time  `json:"updated_at"`
	LastUsedAt *time.Time `json:"last_used_at"`
}

// SetDefaults fills the fields that may be left out.
func (k *KeySpec) SetDefaults() {
	if k.Status == "" {
		k.Status = KeyActive
	}
	if k.AllowedCIDRs == nil {
		k.AllowedCIDRs = []netip.Prefix{}
	}
}

// Validate returns the faults of a key whose defaults are set, nil when there are none.
func (k KeySpec) Validate() Faults {
	var faults Faults
	faults.text("name", k.Name, false)
	switch {
	case k.RateLimit == nil && k.RateWindow != nil:
		faults.Add("rate_limit", "is required with rate_window")
	case k.RateLimit != nil && k.RateWindow == nil:
		faults.Add("rate_window", "is required with rate_limit")
	case k.RateLimit != nil:
		validateRate("", k.RateLimit, *k.RateWindow, &faults)
	}
	faults.atMost("route_groups", len(k.RouteGroups), MaxListed)
	for i, g := range k.RouteGroups {
		faults.name(fmt.Sprintf("route_groups[%d]", i), g)
	}
	faults.atMost("allowed_cidrs", len(k.AllowedCIDRs), MaxListed)
	for i, p := range k.AllowedCIDRs {
		// An empty text decodes into the zero prefix, and a prefix of IPv4 written
		// as IPv6 would contain no address that AdmitsFrom compares.
		if !p.IsValid() || p.Addr().Is4In6() {
			faults.Add(fmt.Sprintf("allowed_cidrs[%d]", i), "must be a range such as 192.0.2.0/24 or 2001:db8::/32")
		}
	}
	oneOf(&faults, "status", k.Status, []KeyStatus{KeyActive, KeyDisabled})
	return faults
}

// StatusAt is the key's status at an instant: an expiry that has been reached
// shows as KeyExpired unless the key was revoked.
func (k Key) StatusAt(now time.Time) KeyStatus {
	if k.Status != KeyRevoked && k.ExpiresAt != nil && !now.Before(*k.ExpiresAt) {
		return KeyExpired
	}
	return k.Status
}

// MayCall reports whether the key may call the route group.
func (k Key) MayCall(group string) bool {
	return k.RouteGroups == nil || slices.Contains(k.RouteGroups, group)
}

// AdmitsFrom reports whether the key may be used from the address. An address
// that is not known fits no range.
func (k Key) AdmitsFrom(addr netip.Addr) bool {
	addr = addr.Unmap()
	return len(k.AllowedCIDRs) == 0 || slices.ContainsFunc(k.AllowedCIDRs, func(p netip.Prefix) bool { return p.Contains(addr) })
}
