package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// RedisOptions tune a Redis. The zero value is ready to use.
type RedisOptions struct {
	// Prefix stands before every key; default "q:".
	Prefix string
	// Now, for tests that replay the past, takes the place of Redis's own clock;
	// keys then outlive their states by an hour.
	Now func() time.Time
}

// Redis is a Store in a Redis or Valkey server, shared by any number of nodes.
// The server's clock is the only clock.
type Redis struct {
	client redis.UniversalClient
	prefix string
	now    func() time.Time
	script *redis.Script
}

// NewRedis returns a store over the client, which must not retry: a command that
// is sent twice is charged twice. Connect makes such a client.
func NewRedis(client redis.UniversalClient, o RedisOptions) *Redis {
	if o.Prefix == "" {
		o.Prefix = "q:"
	}
	return &Redis{client: client, prefix: o.Prefix, now: o.Now, script: redis.NewScript(takeLua)}
}

// Take implements Store. The call is counted at most once whatever fails; after
// an error it may or may not have been.
func (r *Redis) Take(ctx context.Context, call Call, status []Status) (Outcome, error) {
	if err := call.fits(); err != nil {
		return Outcome{}, err
	}
	if len(call.Charges) == 0 {
		return Outcome{Allowed: true, Now: r.clock()}, nil
	}
	if len(call.Charges) > maxCharges {
		return Outcome{}, fmt.Errorf("take: %d charges in one call, at most %d", len(call.Charges), maxCharges)
	}
	now, slack := "", "0"
	if r.now != nil {
		now, slack = strconv.FormatInt(r.now().UnixMilli(), 10), "3600000"
	}
	reply, err := r.run(ctx, encode(call, r.prefix, now, slack))
	if err != nil {
		return Outcome{}, fmt.Errorf("take over redis: %w", err)
	}
	if len(reply) == 0 {
		return Outcome{}, errors.New("take over redis: empty reply")
	}
	_, allowed, err := decode(reply[1:], reply[0], call, status)
	if err != nil {
		return Outcome{}, fmt.Errorf("take over redis: %w", err)
	}
	return Outcome{Allowed: allowed, Now: time.UnixMilli(reply[0]).UTC()}, nil
}

// run sends EVALSHA, and EVAL if the server does not know the script: then
// nothing of it ran.
func (r *Redis) run(ctx context.Context, q request) ([]int64, error) {
	reply, err := r.eval(ctx, "evalsha", r.script.Hash(), q)
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		reply, err = r.eval(ctx, "eval", takeLua, q)
	}
	return reply, err
}

func (r *Redis) eval(ctx context.Context, command, script string, q request) ([]int64, error) {
	args := make([]any, 0, 3+len(q.keys)+len(q.args))
	args = append(args, command, script, len(q.keys))
	args = append(args, q.keys...)
	args = append(args, q.args...)
	cmd := redis.NewIntSliceCmd(ctx, args...)
	_ = r.client.Process(ctx, cmd)
	return cmd.Result()
}

func (r *Redis) clock() time.Time {
	if r.now != nil {
		return r.now().UTC()
	}
	return time.Now().UTC()
}

var _ Store = (*Redis)(nil)
