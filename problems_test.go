package quotad

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"
)

func TestEveryCodeHasAStatusAndAMessage(t *testing.T) {
	t.Parallel()
	for code := range statuses {
		if messages[code] == "" {
			t.Errorf("%s has no message", code)
		}
	}
	for code := range messages {
		if _, ok := statuses[code]; !ok {
			t.Errorf("%s has no status", code)
		}
	}
}

func TestProblemOfAnErrorShowsWhatTheCallerNeeds(t *testing.T) {
	t.Parallel()
	err := fmt.Errorf("update tier: %w", &Error{
		Code: CodeInvalidFields, Fields: Faults{"rate_window": "must be at least 1"}, Cause: errors.New("hidden"),
	})
	got, _ := json.Marshal(ProblemOf(err))
	want := `{"error":"invalid_fields","message":"Some fields are not valid.","type":"about:blank",` +
		`"title":"Unprocessable Entity","status":422,"detail":"Some fields are not valid.",` +
		`"fields":{"rate_window":"must be at least 1"}}`
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestProblemOfAWaitRoundsUp(t *testing.T) {
	t.Parallel()
	p := ProblemOf(&Error{Code: CodeLimiterUnavailable, RetryAfter: 1001 * time.Millisecond})
	if p.RetryAfter != 2 || p.Status != 503 {
		t.Errorf("got retry_after %d, status %d", p.RetryAfter, p.Status)
	}
}

func TestProblemOfAnUnknownErrorShowsNothingOfIt(t *testing.T) {
	t.Parallel()
	got, _ := json.Marshal(ProblemOf(errors.New("dial tcp 10.0.0.1: password=hunter2")))
	want := `{"error":"internal","message":"Something went wrong on our side.","type":"about:blank",` +
		`"title":"Internal Server Error","status":500,"detail":"Something went wrong on our side."}`
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
