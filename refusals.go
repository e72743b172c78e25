package quotad

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"
)

// refusals remembers for how long a question is known to be refused, so that a
// caller who hammers costs no round trip.
//
// A refusal says after how many seconds the same question passes, rounded up. So
// for one second less than that it can't pass, whatever else is charged, unless an
// operator raises the limit; and since every other node of quotad sees an edit
// within a second, no refusal is told again for longer than that. The wait that it
// names is at most a second too long, and true otherwise as ever: if nothing else
// is charged meanwhile.
type refusals struct {
	seeds [2]maphash.Seed
	kept  atomic.Int64
	mu    sync.Mutex
	by    map[fingerprint]refusal
}

type refusal struct {
	answer *answer
	until  time.Time // by the monotonic clock
}

const (
	// refusalHolds is the longest that a refusal is told again.
	refusalHolds = time.Second
	// maxRefusals bounds the memory: a refusal is a few KB at most.
	maxRefusals = 4096
)

func newRefusals() *refusals {
	return &refusals{seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}, by: map[fingerprint]refusal{}}
}

// recall is what is known of a question, nil if nothing.
func (r *refusals) recall(q *CheckRequest, c credentials, language string, now time.Time) *answer {
	if r.kept.Load() == 0 || q.Cost != nil && *q.Cost == 0 {
		return nil
	}
	f := r.of(q, c, language)
	r.mu.Lock()
	defer r.mu.Unlock()
	known, ok := r.by[f]
	if !ok {
		return nil
	}
	if !now.Before(known.until) {
		r.drop(f)
		return nil
	}
	return known.answer
}

// learn keeps a refusal of a question that was sent at a time, and forgets one of
// a question that is no longer refused. A refusal by a failure policy is one
// node's, and the next one may know better.
func (r *refusals) learn(q *CheckRequest, c credentials, language string, sent time.Time, a *answer) {
	if q.Cost != nil && *q.Cost == 0 {
		return
	}
	d := &a.decision
	holds := refusalHolds
	if d.RetryAfter > 0 { // else it never passes
		holds = min(holds, time.Duration(d.RetryAfter-1)*time.Second)
	}
	refused := a.err == nil && !d.Allowed && !d.Degraded && holds > 0
	if !refused && r.kept.Load() == 0 {
		return
	}
	f := r.of(q, c, language)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drop(f)
	if !refused {
		return
	}
	if len(r.by) >= maxRefusals {
		for victim := range r.by {
			r.drop(victim)
			break
		}
	}
	r.by[f] = refusal{answer: a, until: sent.Add(holds)}
	r.kept.Store(int64(len(r.by)))
}

// drop forgets a refusal. r.mu is held.
func (r *refusals) drop(f fingerprint) {
	delete(r.by, f)
	r.kept.Store(int64(len(r.by)))
}

// fingerprint stands for a question with its credential, and for the language
// of its answer: 128 bits under seeds that nobody knows, so that two questions
// never share one, and a key is not kept.
type fingerprint [2]uint64

func (r *refusals) of(q *CheckRequest, c credentials, language string) (f fingerprint) {
	whole := struct {
		key, token                                    Credential
		tenant, group, method, path, subject, ip, lng string
		cost                                          int64
		costed, forwarded                             bool
		by                                            [16]byte
	}{
		key: c.key, token: c.token, tenant: q.Tenant, group: q.RouteGroup, method: q.Method, path: q.Path,
		subject: q.Subject, ip: q.IP, lng: language, forwarded: q.ForwardedFor.IsValid(), by: q.ForwardedFor.As16(),
	}
	if q.Cost != nil {
		whole.cost, whole.costed = *q.Cost, true
	}
	for i, seed := range r.seeds {
		f[i] = maphash.Comparable(seed, whole)
	}
	return f
}
