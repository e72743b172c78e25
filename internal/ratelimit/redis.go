package ratelimit

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// RedisOptions tune a Redis. The zero value is ready to use.
type RedisOptions struct {
	// Prefix stands before every key; default "q:".
	Prefix string
	// Timeout bounds the round trip of calls that travel together, beside the
	// context of each; default 100 ms.
	Timeout time.Duration
	// Now, for tests that replay the past, takes the place of Redis's own clock;
	// keys then outlive their states by an hour.
	Now func() time.Time
}

// Redis is a Store in a Redis or Valkey server, or a Cluster of them, shared by any
// number of nodes. The clock of the server that holds a counter is the only clock.
//
// Calls that come while others are under way travel together, as one list that
// the script judges in order: it loads and stores each counter once, so that the
// calls of one busy key cost next to nothing. A call that is known to be refused
// still costs no round trip at all.
type Redis struct {
	nodes  nodes
	prefix string
	now    func() time.Time
	hash   string
	lanes  []*lane // one, or one for each hash tag

	refusals refusals
}

// NewRedis returns a store over the client, which must not retry: a command that
// is sent twice is charged twice. Connect makes such a client.
func NewRedis(client redis.UniversalClient, o RedisOptions) *Redis {
	if o.Prefix == "" {
		o.Prefix = "q:"
	}
	if o.Timeout <= 0 {
		o.Timeout = 100 * time.Millisecond
	}
	r := &Redis{nodes: oneNode{client}, prefix: o.Prefix, now: o.Now, hash: redis.NewScript(takeLua).Hash()}
	lanes := 1
	if cluster, ok := client.(*redis.ClusterClient); ok {
		r.nodes, lanes = &clusterNodes{client: cluster}, tags
	}
	for range lanes {
		r.lanes = append(r.lanes, &lane{send: r.send, slots: slots, timeout: o.Timeout})
	}
	return r
}

// lane is the one for a shard's calls. In a Cluster those of one hash tag travel
// together, as the keys of one script must share a slot.
func (r *Redis) lane(s Shard) *lane { return r.lanes[int(tagOf(s))%len(r.lanes)] }

// parts is the number of parts that can fail by themselves.
func (r *Redis) parts() int { return len(r.lanes) }

// Take implements Store. The call is counted at most once whatever fails; after
// an error it may or may not have been.
func (r *Redis) Take(ctx context.Context, call Call, status []Status) (Outcome, error) {
	sent := time.Now()
	if out, err, known := r.known(call, status, sent); known {
		return out, err
	}
	b, i, err := r.lane(call.Shard).take(ctx, call, sent)
	if err != nil {
		return Outcome{}, &batchError{b, err}
	}
	return r.read(b, i, call, status, sent, true)
}

// TakeAll implements Store. What does not fit into one list of calls goes once that is
// back, so that it sees what was charged there.
func (r *Redis) TakeAll(ctx context.Context, list []*Question) {
	sent := time.Now()
	asked := make([]*Question, 0, len(list))
	for _, q := range list {
		var known bool
		// What is sent before it may change what a refusal is to say.
		if q.Outcome, q.Err, known = r.known(q.Call, q.Status, sent); !known || q.Err == nil && concerns(asked, &q.Call) {
			asked = append(asked, q)
		}
	}
	eachPart(asked, len(r.lanes), func(part int, list []*Question) {
		r.lanes[part].takeAll(ctx, list, func(b *batch, first int, list []*Question, err error) {
			for i, q := range list {
				if err != nil {
					q.Outcome, q.Err = Outcome{}, &batchError{b, err}
					continue
				}
				// The next one that is alike is refused too, and says as much.
				last := i+1 == len(list) || !b.alike(first+i, first+i+1)
				q.Outcome, q.Err = r.read(b, first+i, q.Call, q.Status, b.sent, last)
			}
		})
	})
}

// known answers a call that need not be sent.
func (r *Redis) known(call Call, status []Status, now time.Time) (Outcome, error, bool) {
	if err := call.fits(); err != nil {
		return Outcome{}, err, true
	}
	switch n := len(call.Charges); {
	case n == 0:
		return Outcome{Allowed: true, Now: r.clock()}, nil, true
	case n > MaxCharges:
		return Outcome{}, fmt.Errorf("take: %d charges in one call, at most %d", n, MaxCharges), true
	}
	if r.now == nil {
		if out, ok := r.refusals.recall(call, status, now); ok {
			return out, nil, true
		}
	}
	return Outcome{}, nil, false
}

// read takes a call's answer out of its batch, and keeps a refusal if it is to be
// remembered.
func (r *Redis) read(b *batch, i int, call Call, status []Status, sent time.Time, remember bool) (Outcome, error) {
	out, err := b.outcome(i, status)
	switch {
	case err != nil:
		return out, fmt.Errorf("take over redis: %w", err)
	case out.Allowed:
		r.refusals.forget(call)
	case r.now == nil && remember:
		r.refusals.remember(call, status, b.states(i), b.reply[0], sent)
	}
	return out, nil
}

// send runs the script over a batch: EVALSHA, and EVAL if the server does not
// know the script, for then nothing of it ran.
func (r *Redis) send(ctx context.Context, b *batch) {
	e := encoders.Get().(*encoder)
	defer encoders.Put(e)
	if b.reply, b.err = r.run(ctx, e, b, "evalsha", r.hash); redis.HasErrorPrefix(b.err, "NOSCRIPT") {
		b.reply, b.err = r.run(ctx, e, b, "eval", takeLua)
	}
	if b.err == nil {
		b.err = b.check()
	}
}

func (r *Redis) run(ctx context.Context, e *encoder, b *batch, command, script string) ([]int64, error) {
	now, slack := int64(-1), int64(0)
	if r.now != nil {
		now, slack = r.now().UnixMilli(), time.Hour.Milliseconds()
	}
	args := e.encode(b, r.prefix, now, slack, command, script)
	b.locate(e.entries)
	if len(e.entries) == 0 { // all callers have gone
		return []int64{0}, nil
	}
	return r.nodes.process(ctx, e.keys[0], func() *redis.IntSliceCmd { return redis.NewIntSliceCmd(ctx, args...) }).Result()
}

func (r *Redis) clock() time.Time {
	if r.now != nil {
		return r.now().UTC()
	}
	return time.Now().UTC()
}

var _ Store = (*Redis)(nil)
