package quotad

import "time"

// Role says what an admin token may do.
type Role string

// The roles.
const (
	RoleOwner    Role = "owner"    // everything, admin tokens included
	RoleOperator Role = "operator" // everything but admin tokens
	RoleViewer   Role = "viewer"   // reads
	RoleService  Role = "service"  // asks for any tenant on the metered API; nothing on the admin API
)

// Roles lists the roles.
var Roles = []Role{RoleOwner, RoleOperator, RoleViewer, RoleService}

// AdminTokenSpec is what an owner says of an admin token.
type AdminTokenSpec struct {
	Name string `json:"name"`
	Role Role   `json:"role"`
	// ExpiresAt is the first instant at which the token no longer works; nil means never.
	ExpiresAt *time.Time `json:"expires_at"`
}

// AdminToken is an admin token as it is stored and shown.
type AdminToken struct {
	ID string `json:"id"`
	AdminTokenSpec
	Hint string `json:"hint"`
	// Secret is present once, in the answer that created the token.
	Secret    string    `json:"secret,omitempty"`
	Version   int64     `json:"version"`
	CreatedAt time.Time `json:"created_at"`
}

// Validate returns the faults of an admin token, nil when there are none.
func (t AdminTokenSpec) Validate() Faults {
	var faults Faults
	faults.text("name", t.Name, true)
	oneOf(&faults, "role", t.Role, Roles)
	return faults
}
