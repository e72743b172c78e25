package quota

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/quotad/quotad"
)

// brief is a list of limits as "name declared:group algorithm size/window" lines.
func brief(limits []limit) string {
	var b strings.Builder
	for _, l := range limits {
		size, _ := l.Size()
		shadow := ""
		if l.Shadow {
			shadow = " shadow"
		}
		fmt.Fprintf(&b, "%s %s:%s %s %s %d/%d%s\n", l.Name, l.Declared, l.RouteGroup, l.Scope, l.Algorithm, size, l.RateWindow, shadow)
	}
	return b.String()
}

func rate(name, group string, scope quotad.Scope, units, window int64) quotad.Limit {
	l := quotad.Limit{Name: name, RouteGroup: group, Scope: scope, RateLimit: quotad.Units(units), RateWindow: window}
	l.SetDefaults()
	return l
}

func TestLimitsOfACall(t *testing.T) {
	shadow := rate("try", "exports", quotad.ScopeKey, 2, 60)
	shadow.Shadow = true
	unlimited := rate("free", "exports", quotad.ScopeKey, 0, 60)
	unlimited.RateLimit = nil
	bucket := rate("bucket", "exports", quotad.ScopeKey, 10, 300)
	bucket.Algorithm, bucket.Burst = quotad.TokenBucket, quotad.Units(20)

	pro := quotad.TierSpec{
		Name: "pro", RateLimit: quotad.Units(100), RateWindow: 60, Algorithm: quotad.TokenBucket, Burst: quotad.Units(500),
	}
	with := func(limits ...quotad.Limit) quotad.TierSpec {
		tier := pro
		tier.Limits = limits
		return tier
	}
	override := func(units, window int64) *quotad.KeySpec {
		return &quotad.KeySpec{RateLimit: quotad.Units(units), RateWindow: &window}
	}
	none := pro
	none.RateLimit = nil
	nothing := pro
	nothing.RateLimit, nothing.Burst = quotad.Units(0), nil

	for name, c := range map[string]struct {
		tier  quotad.TierSpec
		key   *quotad.KeySpec
		group []quotad.Limit
		want  string
	}{
		"the base limit counts each group by itself": {
			tier: pro,
			want: "base tier:exports key token_bucket 500/60\n",
		},
		"a base limit of 0 admits nothing":           {tier: nothing, want: "base tier:exports key token_bucket 0/60\n"},
		"a base limit of null counts nothing":        {tier: none, want: ""},
		"a limit of another group is not of concern": {tier: with(rate("uploads", "uploads", quotad.ScopeKey, 1, 60)), want: "base tier:exports key token_bucket 500/60\n"},
		"a limit of this group and scope key takes the base limit's place": {
			tier: with(bucket),
			want: "bucket tier:exports key token_bucket 20/300\n",
		},
		"several of them do so together": {
			tier: with(bucket, rate("day", "exports", quotad.ScopeKey, 50, 86400)),
			want: "bucket tier:exports key token_bucket 20/300\nday tier:exports key sliding_window_counter 50/86400\n",
		},
		"so does one that is unlimited": {tier: with(unlimited), want: ""},
		"one that is a shadow does not": {
			tier: with(shadow),
			want: "base tier:exports key token_bucket 500/60\ntry tier:exports key sliding_window_counter 2/60 shadow\n",
		},
		"every other limit is added": {
			tier: with(rate("all", "*", quotad.ScopeKey, 1000, 60), rate("company", "exports", quotad.ScopeTenant, 5, 1), rate("user", "*", quotad.ScopeSubject, 6, 1)),
			want: "base tier:exports key token_bucket 500/60\nall tier:* key sliding_window_counter 1000/60\n" +
				"company tier:exports tenant sliding_window_counter 5/1\nuser tier:* subject sliding_window_counter 6/1\n",
		},
		"the group's own limits are added and replace nothing": {
			tier:  with(rate("same", "*", quotad.ScopeTenant, 7, 60)),
			group: []quotad.Limit{rate("same", "exports", quotad.ScopeKey, 3, 60)},
			want: "base tier:exports key token_bucket 500/60\nsame tier:* tenant sliding_window_counter 7/60\n" +
				"same route_group:exports key sliding_window_counter 3/60\n",
		},
		"a key's own rate overrides the base limit without its burst": {
			tier: with(rate("all", "*", quotad.ScopeKey, 1000, 60)), key: override(30, 10),
			want: "base tier:exports key token_bucket 30/10\nall tier:* key sliding_window_counter 1000/60\n",
		},
		"a key's own rate of 0 admits nothing": {tier: none, key: override(0, 10), want: "base tier:exports key token_bucket 0/10\n"},
		"a key's own rate overrides no base limit that another has taken the place of": {
			tier: with(bucket), key: override(30, 10),
			want: "bucket tier:exports key token_bucket 20/300\n",
		},
		"a key's own rate that the tier's algorithm cannot hold is counted by one that can": {
			tier: pro, key: override(1_000_000, 365*86400),
			want: "base tier:exports key sliding_window_counter 1000000/31536000\n",
		},
		"of whatever size": {
			tier: pro, key: override(quotad.MaxUnits, 365*86400),
			want: "base tier:exports key fixed_window 9007199254740991/31536000\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			group := quotad.RouteGroupSpec{Name: "exports", Limits: c.group}
			if diff := cmp.Diff(c.want, brief(limitsOf(&c.tier, c.key, &group))); diff != "" {
				t.Error(diff)
			}
		})
	}
}
