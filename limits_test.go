package quotad

import (
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// tier is one that has no fault, but for what edit does to it.
func tier(edit func(*TierSpec)) TierSpec {
	t := TierSpec{Name: "pro", RateLimit: Units(10), RateWindow: 60}
	edit(&t)
	t.SetDefaults()
	return t
}

// wantFaulty wants exactly these fields to be faulty.
func wantFaulty(t *testing.T, name string, faults Faults, fields ...string) {
	t.Helper()
	slices.Sort(fields)
	if diff := cmp.Diff(fields, slices.Sorted(maps.Keys(faults))); diff != "" {
		t.Errorf("%s: faulty fields (-want +got):\n%s\n%v", name, diff, faults)
	}
}

func TestALimitCanNameEachAlgorithm(t *testing.T) {
	t.Parallel()
	for _, a := range []Algorithm{SlidingWindowCounter, SlidingWindowLog, FixedWindow, TokenBucket, LeakyBucket} {
		wantFaulty(t, string(a), tier(func(t *TierSpec) {
			t.Algorithm = a
			t.Limits = []Limit{{Name: "more", Algorithm: a, RateLimit: Units(0), RateWindow: 1}}
		}).Validate())
	}
	wantFaulty(t, "calendar_quota", tier(func(t *TierSpec) { t.Algorithm = CalendarQuota }).Validate(), "algorithm")
}

func TestOnlyBucketsHaveABurstAndOnlyQueuesADelay(t *testing.T) {
	t.Parallel()
	for _, a := range Algorithms {
		var want []string
		if a != TokenBucket && a != LeakyBucket {
			want = append(want, "burst", "limits[0].burst")
		}
		if a != LeakyBucket {
			want = append(want, "max_delay_ms", "limits[0].max_delay_ms")
		}
		wantFaulty(t, string(a), tier(func(t *TierSpec) {
			t.Algorithm, t.Burst, t.MaxDelayMS = a, Units(5), 500
			t.Limits = []Limit{{Name: "more", Algorithm: a, RateLimit: Units(1), RateWindow: 1, Burst: Units(5), MaxDelayMS: 500}}
		}).Validate(), want...)
	}
}

func TestTheBoundsOfADelay(t *testing.T) {
	t.Parallel()
	queue := func(rate *int64, window int64, burst *int64, delay int64) Faults {
		return tier(func(t *TierSpec) {
			t.Algorithm, t.RateLimit, t.RateWindow, t.Burst, t.MaxDelayMS = LeakyBucket, rate, window, burst, delay
		}).Validate()
	}
	for _, c := range []struct {
		name          string
		rate          *int64
		window        int64
		burst         *int64
		delay         int64
		faulty, fault string
	}{
		{"none", Units(10), 60, nil, 0, "", ""},
		{"the longest", Units(10), 60, nil, MaxDelayMS, "", ""},
		{"longer", Units(10), 60, nil, MaxDelayMS + 1, "max_delay_ms", "must be at most 60000"},
		{"negative", Units(10), 60, nil, -1, "max_delay_ms", "must be at least 0"},
		{"of nothing", Units(0), 60, nil, MaxDelayMS, "", ""},
		{"of no limit", nil, 60, nil, 1, "max_delay_ms", "has no meaning without a rate_limit"},
		{"with the largest queue", Units(1), MaxWindow, Units(MaxUnits / (MaxWindow * 1000)), 1, "", ""},
		{"with a larger one", Units(1), MaxWindow, Units(MaxUnits/(MaxWindow*1000) + 1), 1, "burst", "must be at most 284836 for leaky_bucket with this rate_window"},
		// 2^53 − 1 = 9,007,199,254,740,991 = 9,007,199,254,740 × 1,000 + 991
		{"with the largest rate", Units(9_007_199_254_740), 1, Units(1), 999, "", ""},
		{"a millisecond more", Units(9_007_199_254_740), 1, Units(1), 1000, "max_delay_ms", "must be at most 999 for a bucket of this size"},
		{"with the largest rate as its queue", Units(9_007_199_254_740), 1, nil, 1, "max_delay_ms", "must be at most 0 for a bucket of this size"},
	} {
		faults := queue(c.rate, c.window, c.burst, c.delay)
		if c.faulty == "" {
			wantFaulty(t, c.name, faults)
			continue
		}
		if wantFaulty(t, c.name, faults, c.faulty); faults[c.faulty] != c.fault {
			t.Errorf("%s: %s %q, want %q", c.name, c.faulty, faults[c.faulty], c.fault)
		}
	}
}

// What a leaky bucket computes with stays below 2^53, and with any more of one
// field it would not.
func TestWhatIsCountableIsAllThatIsExact(t *testing.T) {
	t.Parallel()
	for _, l := range []Limit{
		{RateLimit: Units(9_007_199_254_740), RateWindow: 1, Burst: Units(1), MaxDelayMS: 999},
		{RateLimit: Units(100_000_000_000), RateWindow: 60, Burst: Units(50_119_987), MaxDelayMS: 60_000},
		{RateLimit: Units(1), RateWindow: 1, Burst: Units(9_007_199_254_740), MaxDelayMS: 991},
	} {
		l.Algorithm = LeakyBucket
		for _, edit := range []func(*Limit){
			func(*Limit) {},
			func(l *Limit) { l.MaxDelayMS++ },
			func(l *Limit) { l.MaxDelayMS += 10 },
			func(l *Limit) { *l.Burst++ },
			func(l *Limit) { *l.RateLimit += *l.RateLimit / 10 },
		} {
			edit(&l)
			exact := *l.Burst*l.RateWindow*1000+l.MaxDelayMS**l.RateLimit <= MaxUnits
			if l.Countable() != exact {
				t.Errorf("burst %d, window %d, delay %d, rate %d: countable %v", *l.Burst, l.RateWindow, l.MaxDelayMS, *l.RateLimit, l.Countable())
			}
		}
	}
}
