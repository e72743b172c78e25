package httpapi

import (
	"sync"
	"sync/atomic"
	"time"
)

// queue is where calls wait for as long as a leaky bucket asks. There is no line in
// which they stand: each waits for its own moment, which the bucket gave out in the
// order in which it admitted them, over all nodes.
//
// A tenant gets a place while it has fewer than are free. So one alone gets half of
// them, and each of n that want all they can get an n+1th: what is then free is for
// those who come next, and who fills its share keeps nobody else out.
type queue struct {
	waiting atomic.Int64

	mu   sync.Mutex
	free int
	// taken are the places of each tenant, also those of calls that may turn out not
	// to wait.
	taken map[string]int
}

func newQueue(room int) *queue { return &queue{free: room, taken: map[string]int{}} }

// enter takes a place for a call of the tenant.
func (q *queue) enter(tenant string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.taken[tenant] >= q.free {
		return false
	}
	q.free--
	q.taken[tenant]++
	return true
}

func (q *queue) leave(tenant string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.free++
	if q.taken[tenant]--; q.taken[tenant] == 0 {
		delete(q.taken, tenant)
	}
}

// place is what a call got that may have to wait.
type place struct {
	tenant      string
	asked, held bool
}

// Enter takes a place for the call before it is known whether it has to wait: a call
// that is charged and then finds none would have paid for nothing.
func (p *passage) Enter(tenant string) bool {
	if !p.place.asked {
		p.place = place{tenant: tenant, asked: true, held: p.queue.enter(tenant)}
	}
	return p.place.held
}

// leave gives up the place, if there is one.
func (p *passage) leave() {
	if p.place.held {
		p.place.held = false
		p.queue.leave(p.place.tenant)
	}
}

// wait holds the call back, and gives up its place. It is false when the client hung
// up meanwhile.
func (p *passage) wait(delay time.Duration) bool {
	p.queue.waiting.Add(1)
	defer p.queue.waiting.Add(-1)
	defer p.leave()
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
