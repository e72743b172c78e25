package quota

import (
	"time"

	"github.com/quotad/quotad"
)

// Periods of the calendar, as one zone's clocks and calendar have them.
//
// A date begins at the first instant at which the clocks show it, or a later one.
// That is midnight; where clocks skip midnight, the instant that they skip to;
// where they go back across it, its first occurrence, so that what they show a
// second time belongs to the date that has begun. A date that a zone left out is
// empty. So dates tile time without a gap or an overlap, whatever clocks do.

// period is from one instant, which belongs to it, until another, which does not.
type period struct {
	// first is the date that it begins on, such as 2026-11-30. It names the period
	// also where a change of zone moves the instants.
	first       string
	from, until time.Time
}

// periodOf returns the period of the unit that holds the instant. Months begin on
// the anchor day, 1 to 31, or on the last day of a month that is too short for it;
// years on the anchor day of January; weeks on Monday.
func periodOf(unit quotad.Period, zone *time.Location, anchor int, at time.Time) period {
	year, month, day := at.In(zone).Date()
	first := firstOf(unit, anchor, dateOf(year, month, day))
	next := firstAfter(unit, anchor, first)
	p := period{from: beginOf(first, zone), until: beginOf(next, zone)}
	for !at.Before(p.until) {
		// The clocks show a date that ended before they went back, or the period is
		// of dates that they skipped.
		first, next = next, firstAfter(unit, anchor, next)
		p.from, p.until = p.until, beginOf(next, zone)
	}
	p.first = first.Format(time.DateOnly)
	return p
}

// dateOf is a date, as its midnight in UTC. Days and months that are out of range
// carry over.
func dateOf(year int, month time.Month, day int) time.Time {
	return time.Date(year, month, day, 0, 0, 0, 0, time.UTC)
}

// firstOf is the date on which the period of a date begins.
func firstOf(unit quotad.Period, anchor int, date time.Time) time.Time {
	year, month, day := date.Date()
	switch unit {
	case quotad.Day:
		return date
	case quotad.Week:
		return dateOf(year, month, day-int(date.Weekday()+6)%7)
	case quotad.Year:
		month = time.January
	}
	first := anchored(year, month, anchor)
	if !first.After(date) {
		return first
	}
	if unit == quotad.Year {
		return anchored(year-1, month, anchor)
	}
	return anchored(year, month-1, anchor)
}

// firstAfter is the date on which the next period begins.
func firstAfter(unit quotad.Period, anchor int, first time.Time) time.Time {
	year, month, day := first.Date()
	switch unit {
	case quotad.Day:
		return dateOf(year, month, day+1)
	case quotad.Week:
		return dateOf(year, month, day+7)
	case quotad.Year:
		return anchored(year+1, month, anchor)
	default:
		return anchored(year, month+1, anchor)
	}
}

// anchored is the anchor day of a month, or the last one of a shorter month. It is
// in that month whatever the anchor is, or periods would not follow each other.
func anchored(year int, month time.Month, anchor int) time.Time {
	last := dateOf(year, month+1, 0).Day()
	return dateOf(year, month, min(max(anchor, 1), last))
}

// The clocks of a zone are never further from UTC than farthest, and change at
// most once in a step.
const farthest, step = int64(24 * time.Hour / time.Second), int64(time.Hour / time.Second)

// beginOf is the instant at which a date begins in a zone.
func beginOf(date time.Time, zone *time.Location) time.Time {
	midnight := date.Unix()
	at := midnight - farthest // when no clock shows the date yet
	offset := offsetAt(at, zone)
	for {
		// From at until end the clocks go on evenly.
		end := at + step
		if offsetAt(end, zone) != offset {
			end = changeAfter(at, end, offset, zone)
		}
		if begin := midnight - offset; begin < end {
			return time.Unix(max(begin, at), 0).UTC()
		}
		at, offset = end, offsetAt(end, zone)
	}
}

// changeAfter is the second at which the offset is no longer what it is at from;
// it is another at until.
func changeAfter(from, until, offset int64, zone *time.Location) int64 {
	for until-from > 1 {
		if between := from + (until-from)/2; offsetAt(between, zone) == offset {
			from = between
		} else {
			until = between
		}
	}
	return until
}

// offsetAt is how far the zone's clocks are ahead of UTC, in seconds, at a second
// since the epoch.
func offsetAt(second int64, zone *time.Location) int64 {
	_, offset := time.Unix(second, 0).In(zone).Zone()
	return int64(offset)
}
