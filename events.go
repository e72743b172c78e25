package quotad

import (
	"encoding/json"
	"time"
)

// Actor is who made a change, and from where.
type Actor struct {
	// Type is "admin_token", "command" or "system".
	Type string `json:"type"`
	// ID is the admin token's id; "" for other types.
	ID        string `json:"id"`
	Name      string `json:"name"`
	RequestID string `json:"request_id"`
	Address   string `json:"address"`
}

// Resource names a kind of thing that operators manage.
type Resource string

// The resources.
const (
	ResourceTier       Resource = "tier"
	ResourceTenant     Resource = "tenant"
	ResourceRouteGroup Resource = "route_group"
	ResourceKey        Resource = "key"
	ResourceAdminToken Resource = "admin_token"
)

// Event is one successful write. No secret, nor a hash of one, ever appears in it.
type Event struct {
	ID int64     `json:"id"`
	At time.Time `json:"at"`
	// Action is resource and verb, such as "key.rotated".
	Action   string   `json:"action"`
	Actor    Actor    `json:"actor"`
	Resource Resource `json:"resource"`
	// Target is the resource's id or name.
	Target string `json:"target"`
	// Tenant is the tenant concerned; "" where there is none.
	Tenant string `json:"tenant"`
	// Before and After are the resource as the API shows it; null on creation and deletion.
	Before json.RawMessage `json:"before"`
	After  json.RawMessage `json:"after"`
}
