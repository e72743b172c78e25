package ratelimit

import (
	"context"
	"sync"
	"time"
)

// budget bounds the time of calls. Those that begin within a hundredth of it share one
// context, and have that much less at most: a timer for each would cost a busy node
// more than the rest of its way through Failover.
type budget struct {
	most time.Duration

	mu    sync.Mutex
	begun time.Time
	ctx   context.Context
	stop  context.CancelFunc // never called: the context ends by itself
}

// begin returns the context of a call that begins now. It ends when the budget is spent,
// whatever becomes of the caller.
func (b *budget) begin(now time.Time) context.Context {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ctx == nil || now.Sub(b.begun) >= b.most/100 {
		b.begun = now
		b.ctx, b.stop = context.WithDeadline(context.Background(), now.Add(b.most))
	}
	return b.ctx
}
