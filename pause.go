package quotad

import (
	"sync"
	"time"
)

// pause keeps calls off a quotad that does not answer, so that each does not wait
// in vain. After so many failures in a row as are tolerated, no call is sent for a
// while; then one is, and what becomes of it decides for all.
//
// So a quotad that hangs costs a timeout to the calls that are on their way when it
// begins to, to those tolerated, and from then on to one call in each pause. It is
// asked again by all as soon as it has answered one.
type pause struct {
	mu      sync.Mutex
	failed  int       // in a row, while calls pass
	until   time.Time // not zero while calls are kept off
	ended   int       // pauses
	probing bool
}

const (
	// toleratedFailures in a row begin a pause: one lost connection is no reason.
	toleratedFailures = 5
	pauseLength       = time.Second
)

// turn is what a call may do, from when it began.
type turn struct {
	barred bool
	probe  bool // it is the one call that finds out for all
	after  int  // the pauses that had ended: that it fails says nothing of the time after a later one
}

// result is what became of a call that passed.
type result int

const (
	abandoned result = iota // by its caller; it says nothing of quotad
	answered
	failed
)

func (p *pause) enter(now time.Time) turn {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.until.IsZero():
		return turn{after: p.ended}
	case p.probing || now.Before(p.until):
		return turn{barred: true}
	default:
		p.probing = true
		return turn{probe: true, after: p.ended}
	}
}

// leave ends what enter began, and reports whether the pause begins or ends with it.
func (p *pause) leave(t turn, r result, now time.Time) (begins, ends bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	paused := !p.until.IsZero()
	if t.probe && t.after == p.ended {
		p.probing = false
	}
	switch {
	case r == answered:
		p.failed, p.until = 0, time.Time{}
		if paused {
			p.probing = false
			p.ended++
		}
		return false, paused
	case r != failed || t.after != p.ended:
	case paused && t.probe:
		p.until = now.Add(pauseLength)
	case !paused:
		if p.failed++; p.failed >= toleratedFailures {
			p.until = now.Add(pauseLength)
			return true, false
		}
	}
	return false, false
}
