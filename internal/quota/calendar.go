package quota

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quotad/quotad"
)

// calendar is a tenant's own: it says when the periods of its quotas begin. It
// keeps the last one of each unit, so that nobody looks at time zones while a
// period lasts.
type calendar struct {
	zone   *time.Location
	anchor int
	last   [4]atomic.Pointer[period] // by index in quotad.Periods
}

// period returns the period of the unit that holds the instant.
func (c *calendar) period(unit quotad.Period, at time.Time) period {
	last := &c.last[slices.Index(quotad.Periods, unit)]
	if p := last.Load(); p != nil && !at.Before(p.from) && at.Before(p.until) {
		return *p
	}
	p := periodOf(unit, c.zone, c.anchor, at)
	last.Store(&p)
	return p
}

// zonesByName are the time zones that tenants name. There are some hundreds, each
// of a few kilobytes, and reading one takes longer than a decision does.
type zonesByName struct{ read sync.Map }

// zone returns a zone by its IANA name.
func (z *zonesByName) zone(name string) (*time.Location, error) {
	if zone, ok := z.read.Load(name); ok {
		return zone.(*time.Location), nil
	}
	zone, err := time.LoadLocation(name)
	if err != nil {
		return nil, fmt.Errorf("read time zone %q: %w", name, err)
	}
	z.read.Store(name, zone)
	return zone, nil
}
