package quotad

import "time"

// Auth says what a route group asks of a caller before its limits.
type Auth string

// The kinds of Auth.
const (
	AuthKey  Auth = "key"  // an API key, or a service token that names a tenant
	AuthNone Auth = "none" // nothing: login and the like, limited by address
)

// Auths lists the kinds of Auth, the default first.
var Auths = []Auth{AuthKey, AuthNone}

// MaxPatterns is the most patterns that one route group can match by.
const MaxPatterns = 200

// RouteGroupSpec is what an operator says of a route group.
type RouteGroupSpec struct {
	Name string `json:"name"`
	// Match are patterns of net/http's ServeMux without a host, compared case-insensitively.
	Match []string `json:"match"`
	// Cost is the units that a call takes unless it says itself; 1 by default, 0 counts nothing.
	Cost *int64 `json:"cost"`
	Auth Auth   `json:"auth"`
	// Limits hold for every caller of the group, whatever its tier, beside the tier's.
	Limits []Limit `json:"limits"`
}

// RouteGroup is a route group as it is stored.
type RouteGroup struct {
	RouteGroupSpec
	Version   int64     `json:"version"`
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
}

// SetDefaults fills the fields that may be left out.
func (g *RouteGroupSpec) SetDefaults() {
	if g.Match == nil {
		g.Match = []string{}
	}
	if g.Cost == nil {
		g.Cost = Units(1)
	}
	if g.Auth == "" {
		g.Auth = AuthKey
	}
	g.Limits = append([]Limit{}, g.Limits...) // the caller's own stay as they are
	for i := range g.Limits {
		if g.Limits[i].RouteGroup == "" {
			g.Limits[i].RouteGroup = g.Name
		}
		if g.Limits[i].Scope == "" && g.Auth == AuthNone {
			g.Limits[i].Scope = ScopeIP
		}
		g.Limits[i].SetDefaults()
	}
}

// Validate returns the faults of a group whose defaults are set, nil when there
// are none. Whether its patterns parse, and whether they conflict with those of
// other groups, is decided where all groups are known.
func (g RouteGroupSpec) Validate() Faults {
	var faults Faults
	faults.name("name", g.Name)
	faults.atMost("match", len(g.Match), MaxPatterns)
	if g.Name == DefaultGroup && len(g.Match) > 0 {
		faults.Add("match", "must be empty: default is what matches no other group")
	}
	if g.Cost != nil {
		faults.between("cost", *g.Cost, 0, MaxUnits)
	}
	oneOf(&faults, "auth", g.Auth, Auths)
	if g.Name == DefaultGroup && g.Auth == AuthNone {
		faults.Add("auth", "must be key: default is what matches no other group")
	}
	validateLimits(g.Limits, &faults)
	for i, l := range g.Limits {
		if l.RouteGroup != g.Name {
			faults.Add(index("limits", i)+"route_group", "must be this group")
		}
		if g.Auth == AuthNone && l.Scope != ScopeIP {
			faults.Add(index("limits", i)+"scope", "must be ip: callers of this group have no key")
		}
	}
	return faults
}
