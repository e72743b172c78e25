package quotad

import (
	"fmt"
	"strconv"
)

// MaxUnits is the greatest number of units that a limit, a burst or a cost may
// name: 2^53 − 1, the greatest integer that JSON readers and Redis scripts keep
// exactly.
const MaxUnits = 1<<53 - 1

// MaxWindow is the longest window, in seconds: a leap year.
const MaxWindow = 366 * 24 * 60 * 60

// Units returns a pointer to n, for the fields where nil has its own meaning.
func Units(n int64) *int64 { return &n }

// Algorithm names how a limit counts.
type Algorithm string

// The algorithms that a limit can name.
const (
	// SlidingWindowCounter weighs the count of the previous window by the share
	// of it that still lies in the sliding window, and adds the current count.
	SlidingWindowCounter Algorithm = "sliding_window_counter"
	// FixedWindow counts in windows aligned to the epoch. A caller can spend
	// twice the limit around a boundary.
	FixedWindow Algorithm = "fixed_window"
	// SlidingWindowLog remembers when units were taken: at most RateLimit in any
	// window, exactly, for memory in proportion to the calls.
	SlidingWindowLog Algorithm = "sliding_window_log"
	// TokenBucket holds up to Burst units and refills continuously at
	// RateLimit units per RateWindow.
	TokenBucket Algorithm = "token_bucket"
	// LeakyBucket is a queue of up to Burst units that drains continuously at
	// RateLimit units per RateWindow. A call that does not fit waits for up to
	// MaxDelayMS instead of being refused.
	LeakyBucket Algorithm = "leaky_bucket"
	// CalendarQuota counts in periods of the calendar. It is the algorithm of
	// quotas; no limit can name it.
	CalendarQuota Algorithm = "calendar_quota"
)

// Algorithms lists the algorithms that this version counts by, the default first.
var Algorithms = []Algorithm{SlidingWindowCounter, FixedWindow, TokenBucket}

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
	// Burst is a token bucket's capacity in units, 1 to MaxUnits; nil means RateLimit.
	Burst *int64 `json:"burst"`
	// Shadow limits are evaluated, counted and reported, never enforced.
	Shadow bool `json:"shadow"`
}

// Size is the most units that one call can ever take: the burst of a token
// bucket, else the rate limit. ok is false when the limit is unlimited.
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
	faults.name(prefix+"name", l.Name)
	if l.Name == BaseLimit {
		faults.Add(prefix+"name", `"base" is the name of the tier's own rate limit`)
	}
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
		case l.Algorithm != TokenBucket:
			faults.Add(prefix+"burst", "only a token_bucket has a burst")
		case l.RateLimit == nil:
			faults.Add(prefix+"burst", "has no meaning without a rate_limit")
		default:
			faults.between(prefix+"burst", *l.Burst, 1, MaxUnits)
		}
	}
	if faults.Has(prefix+"rate_limit") || faults.Has(prefix+"rate_window") || faults.Has(prefix+"burst") {
		return
	}
	if size, ok := l.Size(); ok && size > l.Algorithm.MaxUnits(l.RateWindow) {
		field := prefix + "rate_limit"
		if l.Burst != nil {
			field = prefix + "burst"
		}
		faults.Add(field, fmt.Sprintf("must be at most %d for %s with this rate_window",
			l.Algorithm.MaxUnits(l.RateWindow), l.Algorithm))
	}
}

// maxLogUnits is the most units that one entry of a log can hold.
const maxLogUnits = 1_000_000_000

// bucket reports whether the algorithm has a burst.
func (a Algorithm) bucket() bool { return a == TokenBucket || a == LeakyBucket }

// MaxUnits is the size, in units, up to which the algorithm's integer arithmetic
// is exact with a window of so many seconds.
//
// The sliding window counter compares products of units and the window, in
// milliseconds where that fits into 53 bits and in seconds otherwise; a token
// bucket's level is units times the window in milliseconds.
func (a Algorithm) MaxUnits(window int64) int64 {
	switch a {
	case SlidingWindowCounter:
		return MaxUnits / window
	case TokenBucket, LeakyBucket:
		return MaxUnits / (window * 1000)
	case SlidingWindowLog:
		return maxLogUnits
	default:
		return MaxUnits
	}
}

func validateRate(prefix string, limit *int64, window int64, faults *Faults) {
	if limit != nil {
		faults.between(prefix+"rate_limit", *limit, 0, MaxUnits)
	}
	faults.between(prefix+"rate_window", window, 1, MaxWindow)
}

func oneOf[T ~string](faults *Faults, field string, got T, want []T) {
	for _, w := range want {
		if got == w {
			return
		}
	}
	list := ""
	for i, w := range want {
		if i > 0 {
			list += ", "
		}
		list += string(w)
	}
	faults.Add(field, "must be one of "+list)
}

func index(list string, i int) string { return list + "[" + strconv.Itoa(i) + "]." }
