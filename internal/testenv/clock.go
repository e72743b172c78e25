package testenv

import (
	"sync/atomic"
	"time"
)

// Noon is when tests begin that set their time themselves.
var Noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// Clock is a time that a test sets. It may be used by any number of goroutines.
type Clock struct{ at atomic.Int64 } // in ns since 1970

// NewClock returns a clock that shows Noon.
func NewClock() *Clock {
	c := &Clock{}
	c.Set(Noon)
	return c
}

// Now is what the clock shows, in UTC.
func (c *Clock) Now() time.Time { return time.Unix(0, c.at.Load()).UTC() }

// Set makes the clock show another time.
func (c *Clock) Set(at time.Time) { c.at.Store(at.UnixNano()) }

// Advance sets the clock forward.
func (c *Clock) Advance(d time.Duration) { c.at.Add(int64(d)) }
