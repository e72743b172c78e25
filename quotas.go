package quotad

// MaxQuotas is the most quotas that one tier can carry.
const MaxQuotas = 32

// Period names the length of a quota's period. Periods are those of the calendar
// in the tenant's time zone: they begin at its midnight, whatever the clocks do in
// between.
type Period string

// The periods.
const (
	// Day is from midnight to midnight: 23 or 25 hours where clocks change.
	Day Period = "day"
	// Week begins on Monday, as ISO 8601 has it.
	Week Period = "week"
	// Month begins on the tenant's billing anchor day, or on the last day of a
	// month that is too short for it.
	Month Period = "month"
	// Year begins on the billing anchor day of January.
	Year Period = "year"
)

// Periods lists the periods, the shortest first.
var Periods = []Period{Day, Week, Month, Year}

// Quota is at most Quota units in each period of the calendar, counted per Scope
// in one route group, or in all groups together.
type Quota struct {
	// Name is the policy name that clients see; unique among the limits and quotas
	// of its tier.
	Name string `json:"name"`
	// RouteGroup is a group's name, or AllGroups (the default).
	RouteGroup string `json:"route_group"`
	// Scope is ScopeTenant by default.
	Scope Scope `json:"scope"`
	// Quota is units per period, 0 to MaxUnits. 0 admits nothing, nil is unlimited.
	Quota  *int64 `json:"quota"`
	Period Period `json:"period"`
	// Shadow quotas are evaluated, counted and reported, never enforced.
	Shadow bool `json:"shadow"`
}

// SetDefaults fills the fields that may be left out.
func (q *Quota) SetDefaults() {
	if q.RouteGroup == "" {
		q.RouteGroup = AllGroups
	}
	if q.Scope == "" {
		q.Scope = ScopeTenant
	}
}

// validate adds the faults of a quota whose defaults are set, as Limit.validate does.
func (q Quota) validate(prefix string, faults *Faults) {
	faults.policyName(prefix+"name", q.Name)
	if q.RouteGroup != AllGroups {
		faults.name(prefix+"route_group", q.RouteGroup)
	}
	oneOf(faults, prefix+"scope", q.Scope, Scopes)
	if q.Quota != nil {
		faults.between(prefix+"quota", *q.Quota, 0, MaxUnits)
	}
	oneOf(faults, prefix+"period", q.Period, Periods)
}

// validateQuotas adds the faults of quotas that stand beside limits of the names.
func validateQuotas(quotas []Quota, names map[string]bool, faults *Faults) {
	if !faults.atMost("quotas", len(quotas), MaxQuotas) {
		return
	}
	for i, q := range quotas {
		prefix := index("quotas", i)
		q.validate(prefix, faults)
		if names[q.Name] {
			faults.Add(prefix+"name", "is used by another limit or quota")
		}
		names[q.Name] = true
	}
}
