package ratelimit

import (
	_ "embed"
	"fmt"
	"strconv"

	"github.com/quotad/quotad"
)

//go:embed take.lua
var takeLua string

// maxCharges is the number of charges of one call that take.lua's bit set and
// reply are made for; two full sets of quotad.MaxLimits with the base limit fit
// only in part, so that callers must keep to it.
const maxCharges = 50

// request is the arguments of one run of take.lua.
type request struct {
	keys []any
	args []any
}

// letter is the name of an algorithm in take.lua.
func letter(a quotad.Algorithm) string {
	switch a {
	case quotad.FixedWindow:
		return "f"
	case quotad.TokenBucket:
		return "t"
	default:
		return "s"
	}
}

// appendLimit adds a limit's four arguments.
func appendLimit(args []any, l Limit) []any {
	return append(args, letter(l.Algorithm), l.Units, l.windowMS(), l.Size())
}

// encode writes a call as a list of one, each charge with a limit of its own.
func encode(call Call, prefix, now, slack string) request {
	n := len(call.Charges)
	r := request{keys: make([]any, 0, n), args: make([]any, 0, 5+6*n)}
	r.args = append(r.args, now, slack, n)
	for i := range call.Charges {
		r.keys = append(r.keys, key(prefix, call.Shard, call.Charges[i].Counter))
		r.args = appendLimit(r.args, call.Charges[i].Limit)
	}
	r.args = append(r.args, call.Cost, n)
	for i := range call.Charges {
		limit := i + 1
		if call.Charges[i].Shadow {
			limit = -limit
		}
		r.args = append(r.args, i+1, limit)
	}
	return r
}

// key names a counter in Redis: prefix, the shard as hash tag, the counter. With
// the default prefix it is 28 bytes, the most that Redis keeps in 32.
func key(prefix string, s Shard, c Counter) string {
	const hex = "0123456789abcdef"
	b := make([]byte, 0, len(prefix)+26)
	b = append(b, prefix...)
	b = append(b, '{', hex[s>>4], hex[s&15], '}')
	b = appendCounter(b, c)
	return string(b)
}

// decode reads one call's part of a reply into status and returns the rest.
func decode(reply []int64, now int64, call Call, status []Status) (rest []int64, allowed bool, err error) {
	n := len(call.Charges)
	if len(reply) < 1+3*n {
		return nil, false, fmt.Errorf("reply of %s integers for %d charges", strconv.Itoa(len(reply)), n)
	}
	refusing := reply[0]
	allowed = true
	for i := range call.Charges {
		c := &call.Charges[i]
		s := state{epoch: reply[1+3*i], a: reply[2+3*i], b: reply[3+3*i], present: true}
		ok := refusing&(1<<i) == 0
		status[i] = c.Limit.status(s, now, call.Cost, ok)
		allowed = allowed && (ok || c.Shadow)
	}
	return reply[1+3*n:], allowed, nil
}
