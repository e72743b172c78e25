package quotad

import (
	"strconv"
	"testing"
	"time"
)

func TestRefusalsAreBounded(t *testing.T) {
	t.Parallel()
	r, now := newRefusals(), time.Unix(1000, 0)
	refused := &answer{decision: Decision{RetryAfter: 60}}
	for i := range 3 * maxRefusals {
		q := CheckRequest{RouteGroup: "exports", Subject: strconv.Itoa(i)}
		r.learn(&q, credentials{}, "", now, refused)
		if r.recall(&q, credentials{}, "", now) != refused {
			t.Fatal("the newest refusal is not known")
		}
	}
	if len(r.by) != maxRefusals || r.kept.Load() != maxRefusals {
		t.Errorf("%d are kept, and %d counted", len(r.by), r.kept.Load())
	}
}
