package quotad

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

// Algorithms lists the algorithms that a limit can name, the default first.
var Algorithms = []Algorithm{SlidingWindowCounter, SlidingWindowLog, FixedWindow, TokenBucket, LeakyBucket}

// maxLogUnits is the most units that one entry of a log can hold.
const maxLogUnits = 1_000_000_000

// bucket reports whether the algorithm has a burst.
func (a Algorithm) bucket() bool { return a == TokenBucket || a == LeakyBucket }

// MaxUnits is the size, in units, up to which the algorithm's integer arithmetic
// is exact with a window of so many seconds.
//
// The sliding window counter compares products of units and the window, in
// milliseconds where that fits into 53 bits and in seconds otherwise; a bucket's
// level is units times the window in milliseconds, and that of a leaky bucket also
// falls by what MaxDelayMS lets its callers owe, which Countable takes into account.
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
