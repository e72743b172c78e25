package quota

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/quotad/quotad"
)

// zones are those that make trouble: the farthest ones, those whose clocks skip
// midnight or go back across it, that left out a day, or that are off the hour.
var zones = []string{
	"UTC", "Etc/GMT+12", "Etc/GMT-14", "Pacific/Kiritimati", "Pacific/Apia", "Pacific/Kwajalein", "Pacific/Chatham", "Pacific/Niue",
	"America/St_Johns", "America/Havana", "America/Sao_Paulo", "America/Asuncion", "America/Santiago", "America/New_York", "America/Nuuk",
	"America/Caracas", "America/Toronto", "Atlantic/Azores", "Europe/Berlin", "Europe/Dublin", "Europe/Lisbon", "Europe/Moscow",
	"Africa/Cairo", "Africa/Casablanca", "Africa/Monrovia", "Asia/Beirut", "Asia/Amman", "Asia/Damascus", "Asia/Gaza", "Asia/Tehran",
	"Asia/Kolkata", "Asia/Kathmandu", "Asia/Shanghai", "Asia/Tokyo", "Asia/Pyongyang", "Australia/Lord_Howe", "Australia/Sydney",
	"Antarctica/Troll", "Antarctica/Casey",
}

func mustZone(t interface {
	Helper()
	Fatal(...any)
}, name string) *time.Location {
	t.Helper()
	zone, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return zone
}

// instant is a time in RFC 3339.
func instant(t testing.TB, text string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339, text)
	return must(t, at, err)
}

func TestPeriods(t *testing.T) {
	t.Parallel()
	const day, week, month, year = quotad.Day, quotad.Week, quotad.Month, quotad.Year
	for _, c := range []struct {
		unit               quotad.Period
		zone               string
		anchor             int
		at                 string
		first, from, until string
		hours              float64
	}{
		// Months are as long as they are, also seen from their last day.
		{unit: month, anchor: 1, at: "2027-03-31T12:00:00Z", from: "2027-03-01T00:00:00Z", until: "2027-04-01T00:00:00Z"},
		{unit: month, anchor: 1, at: "2027-01-31T23:59:59Z", from: "2027-01-01T00:00:00Z", until: "2027-02-01T00:00:00Z"},
		{unit: month, anchor: 1, at: "2028-02-29T00:00:00Z", from: "2028-02-01T00:00:00Z", until: "2028-03-01T00:00:00Z", hours: 29 * 24},
		{unit: month, anchor: 1, at: "2027-12-31T23:59:59.999Z", from: "2027-12-01T00:00:00Z", until: "2028-01-01T00:00:00Z"},
		// The anchor is clamped to each month by itself.
		{unit: month, anchor: 31, at: "2027-02-27T12:00:00Z", from: "2027-01-31T00:00:00Z", until: "2027-02-28T00:00:00Z"},
		{unit: month, anchor: 31, at: "2027-02-28T00:00:00Z", from: "2027-02-28T00:00:00Z", until: "2027-03-31T00:00:00Z"},
		{unit: month, anchor: 31, at: "2027-03-31T00:00:00Z", from: "2027-03-31T00:00:00Z", until: "2027-04-30T00:00:00Z"},
		{unit: month, anchor: 31, at: "2027-04-30T00:00:00Z", from: "2027-04-30T00:00:00Z", until: "2027-05-31T00:00:00Z"},
		{unit: month, anchor: 31, at: "2028-02-28T23:59:59Z", from: "2028-01-31T00:00:00Z", until: "2028-02-29T00:00:00Z"},
		{unit: month, anchor: 30, at: "2028-02-29T12:00:00Z", from: "2028-02-29T00:00:00Z", until: "2028-03-30T00:00:00Z"},
		{unit: month, anchor: 29, at: "2027-03-01T00:00:00Z", from: "2027-02-28T00:00:00Z", until: "2027-03-29T00:00:00Z"},
		{unit: month, anchor: 15, at: "2027-01-14T23:59:59Z", from: "2026-12-15T00:00:00Z", until: "2027-01-15T00:00:00Z"},
		{unit: month, anchor: 15, at: "2027-12-15T00:00:00Z", from: "2027-12-15T00:00:00Z", until: "2028-01-15T00:00:00Z"},
		// In Shanghai it is the next day eight hours earlier.
		{unit: day, zone: "Asia/Shanghai", at: "2027-05-04T15:59:59Z", first: "2027-05-04", from: "2027-05-03T16:00:00Z", until: "2027-05-04T16:00:00Z"},
		{unit: day, zone: "Asia/Shanghai", at: "2027-05-04T16:00:00Z", first: "2027-05-05", from: "2027-05-04T16:00:00Z", until: "2027-05-05T16:00:00Z"},
		{unit: month, zone: "Asia/Shanghai", anchor: 1, at: "2027-04-30T16:00:00Z", first: "2027-05-01", from: "2027-04-30T16:00:00Z", until: "2027-05-31T16:00:00Z"},
		{unit: day, zone: "Etc/GMT+12", at: "2027-05-05T11:59:59Z", first: "2027-05-04", from: "2027-05-04T12:00:00Z", until: "2027-05-05T12:00:00Z"},
		{unit: day, zone: "Pacific/Kiritimati", at: "2027-05-04T10:00:00Z", first: "2027-05-05", from: "2027-05-04T10:00:00Z", until: "2027-05-05T10:00:00Z"},
		// Weeks begin on Monday.
		{unit: week, at: "2026-11-30T00:00:00Z", from: "2026-11-30T00:00:00Z", until: "2026-12-07T00:00:00Z"},
		{unit: week, at: "2026-11-29T23:59:59Z", from: "2026-11-23T00:00:00Z", until: "2026-11-30T00:00:00Z"},
		{unit: week, at: "2027-01-01T00:00:00Z", first: "2026-12-28", from: "2026-12-28T00:00:00Z", until: "2027-01-04T00:00:00Z"},
		{unit: week, zone: "Europe/Berlin", at: "2027-03-28T12:00:00Z", from: "2027-03-21T23:00:00Z", until: "2027-03-28T22:00:00Z", hours: 167},
		{unit: week, zone: "Asia/Tokyo", at: "2026-11-29T15:00:00Z", first: "2026-11-30", from: "2026-11-29T15:00:00Z", until: "2026-12-06T15:00:00Z"},
		// Years begin on the anchor day of January.
		{unit: year, anchor: 1, at: "2028-12-31T23:59:59Z", from: "2028-01-01T00:00:00Z", until: "2029-01-01T00:00:00Z", hours: 366 * 24},
		{unit: year, anchor: 31, at: "2028-01-30T23:59:59Z", from: "2027-01-31T00:00:00Z", until: "2028-01-31T00:00:00Z"},
		{unit: year, anchor: 15, at: "2028-01-15T00:00:00Z", from: "2028-01-15T00:00:00Z", until: "2029-01-15T00:00:00Z"},
		// Where clocks change, a day is shorter or longer, and a month too.
		{unit: day, zone: "Europe/Berlin", at: "2027-03-28T12:00:00Z", from: "2027-03-27T23:00:00Z", until: "2027-03-28T22:00:00Z", hours: 23},
		{unit: day, zone: "Europe/Berlin", at: "2027-10-31T12:00:00Z", from: "2027-10-30T22:00:00Z", until: "2027-10-31T23:00:00Z", hours: 25},
		{unit: day, zone: "Australia/Lord_Howe", at: "2027-04-04T00:00:00Z", from: "2027-04-03T13:00:00Z", until: "2027-04-04T13:30:00Z", hours: 24.5},
		{unit: month, zone: "America/New_York", anchor: 1, at: "2027-03-14T12:00:00Z", from: "2027-03-01T05:00:00Z", until: "2027-04-01T04:00:00Z", hours: 31*24 - 1},
		// Clocks that skip midnight: the day begins at 01:00, where there is no 00:00.
		{unit: day, zone: "Asia/Beirut", at: "2022-03-27T12:00:00Z", first: "2022-03-27", from: "2022-03-26T22:00:00Z", until: "2022-03-27T21:00:00Z", hours: 23},
		{unit: day, zone: "America/Sao_Paulo", at: "2018-11-04T12:00:00Z", from: "2018-11-04T03:00:00Z", until: "2018-11-05T02:00:00Z", hours: 23},
		{unit: day, zone: "America/Sao_Paulo", at: "2018-11-04T02:59:59Z", first: "2018-11-03", from: "2018-11-03T03:00:00Z", until: "2018-11-04T03:00:00Z", hours: 24},
		// Clocks that go back from midnight to 23:00: the day ends the second time.
		{unit: day, zone: "America/Sao_Paulo", at: "2018-02-18T02:30:00Z", first: "2018-02-17", from: "2018-02-17T02:00:00Z", until: "2018-02-18T03:00:00Z", hours: 25},
		// Clocks that go back from 01:00 to midnight: the day begins the first time.
		{unit: day, zone: "America/Havana", at: "2027-11-07T05:30:00Z", first: "2027-11-07", from: "2027-11-07T04:00:00Z", until: "2027-11-08T05:00:00Z", hours: 25},
		// Clocks that go back from 00:01 to 23:01: that was another day for a minute,
		// and it stays so when they show the old one again.
		{unit: day, zone: "America/St_Johns", at: "2010-11-07T02:29:59Z", first: "2010-11-06", from: "2010-11-06T02:30:00Z", until: "2010-11-07T02:30:00Z", hours: 24},
		{unit: day, zone: "America/St_Johns", at: "2010-11-07T03:00:00Z", first: "2010-11-07", from: "2010-11-07T02:30:00Z", until: "2010-11-08T03:30:00Z", hours: 25},
		{unit: month, zone: "America/St_Johns", anchor: 7, at: "2010-11-07T03:00:00Z", first: "2010-11-07", from: "2010-11-07T02:30:00Z", until: "2010-12-07T03:30:00Z"},
		// A day that a zone left out is empty, and what would begin on it begins after it.
		{unit: day, zone: "Pacific/Apia", at: "2011-12-30T09:59:59Z", first: "2011-12-29", from: "2011-12-29T10:00:00Z", until: "2011-12-30T10:00:00Z", hours: 24},
		{unit: day, zone: "Pacific/Apia", at: "2011-12-30T10:00:00Z", first: "2011-12-31", from: "2011-12-30T10:00:00Z", until: "2011-12-31T10:00:00Z", hours: 24},
		{unit: month, zone: "Pacific/Apia", anchor: 30, at: "2011-12-30T10:00:00Z", first: "2011-12-30", from: "2011-12-30T10:00:00Z", until: "2012-01-29T10:00:00Z"},
		// The last day of a leap year, where clocks change by a rule.
		{unit: day, zone: "Europe/Berlin", at: "2096-12-31T12:00:00Z", from: "2096-12-30T23:00:00Z", until: "2096-12-31T23:00:00Z", hours: 24},
		{unit: year, zone: "America/New_York", anchor: 1, at: "2096-12-31T12:00:00Z", from: "2096-01-01T05:00:00Z", until: "2097-01-01T05:00:00Z", hours: 366 * 24},
		// Before the epoch.
		{unit: day, at: "1969-12-31T23:59:59Z", from: "1969-12-31T00:00:00Z", until: "1970-01-01T00:00:00Z"},
	} {
		zone := mustZone(t, c.zone)
		if c.anchor == 0 {
			c.anchor = 1
		}
		if c.first == "" {
			c.first = instant(t, c.from).In(zone).Format(time.DateOnly)
		}
		at, from, until := instant(t, c.at), instant(t, c.from), instant(t, c.until)
		want := period{first: c.first, from: from, until: until}
		// What zone a time is written in says nothing about whose period it is in.
		for _, elsewhere := range []*time.Location{time.UTC, zone, mustZone(t, "Pacific/Chatham")} {
			if got := periodOf(c.unit, zone, c.anchor, at.In(elsewhere)); got != want {
				t.Errorf("%s from day %d in %q at %s:\n got %v\nwant %v", c.unit, c.anchor, c.zone, c.at, got, want)
			}
		}
		if hours := until.Sub(from).Hours(); c.hours != 0 && hours != c.hours {
			t.Errorf("%s in %q at %s has %v hours, want %v", c.unit, c.zone, c.at, hours, c.hours)
		}
	}
}

// shows is the date on a zone's clocks, in a form that sorts.
func shows(zone *time.Location, at time.Time) string { return at.In(zone).Format(time.DateOnly) }

func TestPeriodsTileTime(t *testing.T) {
	t.Parallel()
	first, last := instant(t, "1970-01-01T00:00:00Z").UnixMilli(), instant(t, "2100-12-31T00:00:00Z").UnixMilli()
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.SampledFrom(zones).Draw(t, "zone")
		zone := mustZone(t, name)
		unit := rapid.SampledFrom(quotad.Periods).Draw(t, "unit")
		anchor := rapid.IntRange(1, 31).Draw(t, "anchor")
		at := time.UnixMilli(rapid.Int64Range(first, last).Draw(t, "at"))
		if rapid.Bool().Draw(t, "near a change of clocks") {
			if _, end := at.In(zone).ZoneBounds(); !end.IsZero() {
				at = end.Add(time.Duration(rapid.Int64Range(-100_000, 100_000).Draw(t, "seconds away")) * time.Second)
			}
		}
		p := periodOf(unit, zone, anchor, at)
		if at.Before(p.from) || !at.Before(p.until) {
			t.Fatalf("%v does not hold %v", p, at)
		}
		for what, other := range map[string]time.Time{
			"first instant": p.from, "last instant": p.until.Add(-1), "middle": p.from.Add(p.until.Sub(p.from) / 2),
		} {
			if q := periodOf(unit, zone, anchor, other); q != p {
				t.Fatalf("its %s is in another: %v, not %v", what, q, p)
			}
		}
		after, before := periodOf(unit, zone, anchor, p.until), periodOf(unit, zone, anchor, p.from.Add(-1))
		if !after.from.Equal(p.until) || !before.until.Equal(p.from) || after.first <= p.first || before.first >= p.first {
			t.Fatalf("%v\nis between %v\nand %v", p, before, after)
		}
		holdsTheCalendar(t, p, unit, zone, anchor)
	})
}

// holdsTheCalendar wants a period to begin on the date that its rule says, at the
// first instant that the clocks show it.
func holdsTheCalendar(t *rapid.T, p period, unit quotad.Period, zone *time.Location, anchor int) {
	first, err := time.Parse(time.DateOnly, p.first)
	if err != nil {
		t.Fatal(err)
	}
	last := first.AddDate(0, 1, -first.Day()).Day() // of its month
	switch {
	case unit == quotad.Week && first.Weekday() != time.Monday,
		unit == quotad.Month && first.Day() != min(anchor, last),
		unit == quotad.Year && (first.Month() != time.January || first.Day() != anchor):
		t.Fatalf("a %s from day %d begins on %v", unit, anchor, first)
	}
	if shows(zone, p.from) < p.first {
		t.Fatalf("at %v the clocks show %s", p.from, shows(zone, p.from))
	}
	for ago := time.Second; ago < 40*time.Hour; ago += 7 * time.Minute {
		if shown := shows(zone, p.from.Add(-ago)); shown >= p.first {
			t.Fatalf("%v before %v the clocks show %s", ago, p.from, shown)
		}
	}
	longest := map[quotad.Period]time.Duration{quotad.Day: 1, quotad.Week: 7, quotad.Month: 31, quotad.Year: 366}[unit]
	if length := p.until.Sub(p.from); length <= 0 || length > longest*24*time.Hour+25*time.Hour {
		t.Fatalf("%v is %v long", p, length)
	}
}
