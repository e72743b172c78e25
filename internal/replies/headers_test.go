package replies

import (
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quotad/quotad"
)

// now is the time in these tests.
var now = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func TestResetRoundsUp(t *testing.T) {
	t.Parallel()
	for at, want := range map[time.Time]int64{
		time.Unix(100, 0): 100, time.Unix(100, 1): 101, time.Unix(100, 999_999_999): 101,
	} {
		if got := reset(&quotad.LimitStatus{ResetAt: at}, now); got != want {
			t.Errorf("%v: got %d, want %d", at, got, want)
		}
	}
	if got := reset(&quotad.LimitStatus{ResetAfter: 7}, now); got != now.Unix()+7 {
		t.Errorf("without a moment: got %d", got)
	}
}

func TestValuesComeOutInOrderAndOnce(t *testing.T) {
	t.Parallel()
	var v Values
	gather := func() {
		v.Set("A", "")
		v.SetInt("B", -1)
		v.Set("C", "text")
	}
	gather()
	var got []string
	v.Each(func(i int, name, value string) {
		if i != len(got) {
			t.Errorf("%s is number %d", name, i)
		}
		got = append(got, name+"="+value)
	})
	if diff := cmp.Diff([]string{"A=", "B=-1", "C=text"}, got); diff != "" {
		t.Error(diff)
	}
	if v.Len() != 0 {
		t.Error("they would come out again")
	}
	gather()
	h := http.Header{"B": {"before"}}
	v.Flush(h)
	if diff := cmp.Diff(http.Header{"A": {""}, "B": {"-1"}, "C": {"text"}}, h); diff != "" {
		t.Error(diff)
	}
	h["A"] = append(h["A"], "more")
	if diff := cmp.Diff([]string{"-1"}, h["B"]); diff != "" {
		t.Errorf("a header's values run into the next one's: %s", diff)
	}
}

// The longest answer there is fits.
func TestAnAnswerFits(t *testing.T) {
	t.Parallel()
	var v Values
	d := quotad.Decision{DegradedBy: quotad.FailLocal, DelayMS: 1, Limits: []quotad.LimitStatus{{Policy: "base", Limit: 1, Window: 60}}}
	v.Decision(&d, now, true)
	p := Denial(&d)
	p.Status, p.RetryAfter = http.StatusUnauthorized, 1
	v.Refusal(&p)
	if v.Len() > maxValues-8 {
		t.Errorf("%d headers leave no room for those of the doors", v.Len())
	}
}
