package quotad

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// MaxUnits is the greatest number of units that a limit, a burst or a cost may
// name: 2^53 − 1, the greatest integer that JSON readers and Redis scripts keep
// exactly.
const MaxUnits = 1<<53 - 1

// MaxWindow is the longest window, in seconds: a leap year.
const MaxWindow = 366 * 24 * 60 * 60

// MaxDelayMS is the longest that a leaky bucket can let a call wait, in
// milliseconds: a caller who waits longer is better told to come back.
const MaxDelayMS = 60_000

// Units returns a pointer to n, for the fields where nil has its own meaning.
func Units(n int64) *int64 { return &n }

// Scope names whose calls share one counter of a limit.
type Scope string

// The scopes of a limit.
const (
	ScopeKey     Scope = "key"     // each API key (its id, so that rotation keeps the count)
	ScopeTenant  Scope = "tenant"  // all keys of a tenant together
	ScopeSubject Scope = "subject" // each subject that a tenant's calls name
	ScopeIP      Scope = "ip"      // each client address (IPv6 by its /64)
)

// Scopes lists the scopes, the default first.
var Scopes = []Scope{ScopeKey, ScopeTenant, ScopeSubject, ScopeIP}

// FailurePolicy says what answers while the counter store is away.
type FailurePolicy string

// The failure policies.
const (
	FailLocal  FailurePolicy = "local"  // the same limits from this node's memory
	FailOpen   FailurePolicy = "open"   // admit
	FailClosed FailurePolicy = "closed" // refuse with 503
)

// FailurePolicies lists the policies, the default first.
var FailurePolicies = []FailurePolicy{FailLocal, FailOpen, FailClosed}

// AllGroups is the route group of a limit that counts all groups together.
const AllGroups = "*"

// DefaultGroup is the route group of every call that matches no other.
const DefaultGroup = "default"

// BaseLimit is the policy name of a tier's own rate_limit per rate_window.
const BaseLimit = "base"

// Limit is at most RateLimit units per RateWindow seconds, counted per Scope in
// one route group, or in all groups together.
type Limit struct {
	// Name is the policy name that clients see; unique within its tier or group.
	Name string `json:"name"`
	// RouteGroup is a group's name, or AllGroups (the default). In a route
	// group's own limits it is that group.
	RouteGroup string `json:"route_group"`
	// Scope is ScopeKey by default.
	Scope Scope `json:"scope"`
	// Algorithm is SlidingWindowCounter by default.
	Algorithm Algorithm `json:"algorithm"`
	// RateLimit is units per window, 0 to MaxUnits. 0 admits nothing, nil is unlimited.
	RateLimit *int64 `json:"rate_limit"`
	// RateWindow is in seconds, 1 to MaxWindow.
	RateWindow int64 `json:"rate_window"`
	// Burst is a token bucket's capacity, or a leaky bucket's queue, in units, 1 to
	// MaxUnits; nil means RateLimit.
	Burst *int64 `json:"burst"`
	// MaxDelayMS is how long a leaky bucket lets a call wait that does not fit, in
	// milliseconds, 0 (refuse at once) to the constant MaxDelayMS.
	MaxDelayMS int64 `json:"max_delay_ms"`
	// Shadow limits are evaluated, counted and reported, never enforced.
	Shadow bool `json:"shadow"`
}

// Size is the most units that one call can ever take: the burst of a bucket,
// else the rate limit. ok is false when the limit is unlimited.
func (l Limit) Size() (units int64, ok bool) {
	if l.RateLimit == nil {
		return 0, false
	}
	if l.Algorithm.bucket() && l.Burst != nil && *l.RateLimit > 0 {
		return *l.Burst, true
	}
	return *l.RateLimit, true
}

// SetDefaults fills the fields that may be left out.
func (l *Limit) SetDefaults() {
	if l.RouteGroup == "" {
		l.RouteGroup = AllGroups
	}
	if l.Scope == "" {
		l.Scope = ScopeKey
	}
	if l.Algorithm == "" {
		l.Algorithm = SlidingWindowCounter
	}
}

// validate adds the faults of a limit whose defaults are set. Field names are
// JSON names behind prefix, such as "limits[2].".
func (l Limit) validate(prefix string, faults *Faults) {
	faults.policyName(prefix+"name", l.Name)
	if l.RouteGroup != AllGroups {
		faults.name(prefix+"route_group", l.RouteGroup)
	}
	oneOf(faults, prefix+"scope", l.Scope, Scopes)
	l.validateRate(prefix, faults)
}

// validateRate checks the fields that a limit shares with a tier's base limit.
func (l Limit) validateRate(prefix string, faults *Faults) {
	oneOf(faults, prefix+"algorithm", l.Algorithm, Algorithms)
	validateRate(prefix, l.RateLimit, l.RateWindow, faults)
	if l.Burst != nil {
		switch {
		case !l.Algorithm.bucket():
			faults.Add(prefix+"burst", "only a token_bucket or a leaky_bucket has a burst")
		case l.RateLimit == nil:
			faults.Add(prefix+"burst", "has no meaning without a rate_limit")
		default:
			faults.between(prefix+"burst", *l.Burst, 1, MaxUnits)
		}
	}
	if l.MaxDelayMS != 0 {
		switch {
		case l.Algorithm != LeakyBucket:
			faults.Add(prefix+"max_delay_ms", "only a leaky_bucket lets a call wait")
		case l.RateLimit == nil:
			faults.Add(prefix+"max_delay_ms", "has no meaning without a rate_limit")
		default:
			faults.between(prefix+"max_delay_ms", l.MaxDelayMS, 0, MaxDelayMS)
		}
	}
	for _, field := range []string{"rate_limit", "rate_window", "burst", "max_delay_ms"} {
		if faults.Has(prefix + field) {
			return
		}
	}
	l.validateSize(prefix, faults)
}

// validateSize checks what only all fields together say: whether the limit can
// be counted exactly.
func (l Limit) validateSize(prefix string, faults *Faults) {
	if l.Countable() {
		return
	}
	field := prefix + "rate_limit"
	if l.Burst != nil {
		field = prefix + "burst"
	}
	most := l.Algorithm.MaxUnits(l.RateWindow)
	if size, _ := l.Size(); size > most {
		faults.Add(field, fmt.Sprintf("must be at most %d for %s with this rate_window", most, l.Algorithm))
		return
	}
	// The bucket alone fits, what its callers may owe beside it does not.
	faults.Add(prefix+"max_delay_ms", fmt.Sprintf("must be at most %d for a bucket of this size", l.longestDelayMS()))
}

// Countable reports whether the algorithm's integer arithmetic is exact for a
// limit whose fields are within their bounds, by themselves.
func (l Limit) Countable() bool {
	size, limited := l.Size()
	if !limited {
		return true
	}
	return size <= l.Algorithm.MaxUnits(l.RateWindow) &&
		(l.Algorithm != LeakyBucket || l.MaxDelayMS <= l.longestDelayMS())
}

// longestDelayMS is the delay up to which a leaky bucket that is exact without
// one stays so: it counts from what its callers owe, RateLimit units × MaxDelayMS,
// up to a full queue, its size × the window in milliseconds.
func (l Limit) longestDelayMS() int64 {
	size, _ := l.Size()
	if *l.RateLimit == 0 {
		return MaxDelayMS
	}
	return (MaxUnits - size*l.RateWindow*1000) / *l.RateLimit
}

func validateRate(prefix string, limit *int64, window int64, faults *Faults) {
	if limit != nil {
		faults.between(prefix+"rate_limit", *limit, 0, MaxUnits)
	}
	faults.between(prefix+"rate_window", window, 1, MaxWindow)
}

func oneOf[T ~string](faults *Faults, field string, got T, want []T) {
	if slices.Contains(want, got) {
		return
	}
	words := make([]string, len(want))
	for i, w := range want {
		words[i] = string(w)
	}
	faults.Add(field, "must be one of "+strings.Join(words, ", "))
}

func index(list string, i int) string { return list + "[" + strconv.Itoa(i) + "]." }
