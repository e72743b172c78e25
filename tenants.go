package quotad

import (
	"encoding/json"
	"fmt"
	"time"
)

// TenantStatus says whether a tenant's keys work.
type TenantStatus string

// The statuses of a tenant.
const (
	TenantActive    TenantStatus = "active"
	TenantSuspended TenantStatus = "suspended"
)

// TenantStatuses lists the statuses, the default first.
var TenantStatuses = []TenantStatus{TenantActive, TenantSuspended}

// MaxMetadata is the most that a tenant's metadata may take as JSON, in bytes.
const MaxMetadata = 16 << 10

// TenantSpec is what an operator says of a tenant.
type TenantSpec struct {
	ID     string       `json:"id"`
	Name   string       `json:"name"`
	Tier   string       `json:"tier"`
	Status TenantStatus `json:"status"`
	// TimeZone is an IANA name; UTC by default.
	TimeZone string `json:"time_zone"`
	// BillingAnchorDay is 1 to 31, clamped to a month's length; 1 by default.
	BillingAnchorDay int `json:"billing_anchor_day"`
	// Metadata is the operator's own; quotad keeps it and never reads it.
	Metadata map[string]any `json:"metadata"`
}

// Tenant is a tenant as it is stored.
type Tenant struct {
	TenantSpec
	Version   int64     `json:"version"`
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
}

// SetDefaults fills the fields that may be left out.
func (t *TenantSpec) SetDefaults() {
	if t.Status == "" {
		t.Status = TenantActive
	}
	if t.TimeZone == "" {
		t.TimeZone = "UTC"
	}
	if t.BillingAnchorDay == 0 {
		t.BillingAnchorDay = 1
	}
	if t.Metadata == nil {
		t.Metadata = map[string]any{}
	}
}

// Validate returns the faults of a tenant whose defaults are set, nil when there are none.
func (t TenantSpec) Validate() Faults {
	var faults Faults
	faults.name("id", t.ID)
	faults.text("name", t.Name, true)
	faults.name("tier", t.Tier)
	oneOf(&faults, "status", t.Status, TenantStatuses)
	if _, err := time.LoadLocation(t.TimeZone); err != nil || t.TimeZone == "Local" {
		faults.Add("time_zone", "must be an IANA time zone")
	}
	faults.between("billing_anchor_day", int64(t.BillingAnchorDay), 1, 31)
	if raw, err := json.Marshal(t.Metadata); err != nil || len(raw) > MaxMetadata {
		faults.Add("metadata", fmt.Sprintf("must be at most %d bytes of JSON", MaxMetadata))
	}
	return faults
}
