package admin

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/quotad/quotad"
)

func TestConditions(t *testing.T) {
	t.Parallel()
	made := time.UnixMicro(36 * 36)
	plain := tag{created: made, version: 3}
	viewed := tag{created: made, version: 3, view: "active"}
	tests := map[string]struct {
		lines   []string
		now     tag
		matches bool // If-Match lets the write go ahead
		holds   bool // If-None-Match keeps the client's copy
	}{
		"the tag":                 {[]string{`"100-3"`}, plain, true, true},
		"any":                     {[]string{`*`}, plain, true, true},
		"an older one":            {[]string{`"100-2"`}, plain, false, false},
		"made again":              {[]string{`"zz-3"`}, plain, false, false},
		"a list":                  {[]string{`"100-1", "100-3"`}, plain, true, true},
		"a list over lines":       {[]string{`"100-1"`, `"100-3"`}, plain, true, true},
		"a list with empty parts": {[]string{`, "100-3" ,,`}, plain, true, true},
		"weak":                    {[]string{`W/"100-3"`}, plain, false, true},
		"weak and strong":         {[]string{`W/"100-3", "100-3"`}, plain, true, true},
		"empty":                   {[]string{``}, plain, false, false},
		"the same view":           {[]string{`"100-3.active"`}, viewed, true, true},
		"another view":            {[]string{`"100-3.expired"`}, viewed, true, false},
		"no view":                 {[]string{`"100-3"`}, viewed, true, false},
		"a comma inside":          {[]string{`"100-3,"`}, plain, false, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cond, err := parseCondition(http.Header{"If-Match": test.lines}, "If-Match")
			if err != nil {
				t.Fatal(err)
			}
			if got := cond.matches(test.now); got != test.matches {
				t.Errorf("matches: got %v", got)
			}
			if got := cond.holds(test.now); got != test.holds {
				t.Errorf("holds: got %v", got)
			}
		})
	}
}

func TestBrokenConditionsAreRefused(t *testing.T) {
	t.Parallel()
	for _, line := range []string{`100-3`, `"100-3`, `"a" "b"`, `w/"a"`, `*, "a"`, `W/*`} {
		_, err := parseCondition(http.Header{"If-Match": {line}}, "If-Match")
		if !errors.Is(err, &quotad.Error{Code: quotad.CodeInvalidRequest}) {
			t.Errorf("%s: got %v", line, err)
		}
	}
}
