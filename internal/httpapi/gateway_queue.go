package httpapi

import (
	"sync/atomic"
	"time"
)

// queue is where calls wait for as long as a leaky bucket asks. There is no line in
// which they stand: each waits for its own moment, which the bucket gave out in the
// order in which it admitted them, over all nodes.
type queue struct {
	room    int64
	places  atomic.Int64 // taken, also by calls that may turn out not to wait
	waiting atomic.Int64
}

// enter takes a place, before it is known whether the call has to wait: a call that is
// charged and then finds no place would have paid for nothing.
func (q *queue) enter() bool {
	if q.places.Add(1) > q.room {
		q.places.Add(-1)
		return false
	}
	return true
}

func (q *queue) leave() { q.places.Add(-1) }

// wait holds the call back, and gives up its place. It is false when the client hung
// up meanwhile.
func (p *passage) wait(delay time.Duration) bool {
	defer p.queue.leave()
	p.queue.waiting.Add(1)
	defer p.queue.waiting.Add(-1)
	if p.upload != nil {
		p.upload.readAhead(p.x.r.ContentLength)
	}
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		p.passed.waits[waitPassed].Inc()
		return true
	case <-p.x.r.Context().Done():
		p.passed.waits[waitHungUp].Inc()
		return false
	}
}
