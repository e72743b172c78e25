package quota

import (
	"context"
	"encoding/binary"
	"errors"
	"hash/maphash"
	"net/netip"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/callers"
	"github.com/quotad/quotad/internal/ratelimit"
)

// Rate is a limit on what one address may do: at most Units in each Window, which is
// whole seconds. The zero Rate is no limit.
type Rate struct {
	Units  int64
	Window time.Duration
}

// The policies that an address is refused by.
const (
	policyAddress    = "address"
	policyFailedKeys = "failed-keys"
)

var addressPolicies = [...]string{policyAddress, policyFailedKeys}

// addresses count calls by the address that they come from, before anybody knows
// whose they are. They count in the memory of this node: a call that brings nothing
// but an address causes no work anywhere else. The memory is one of their own, so
// that a flood of addresses pushes out no tenant's counter.
type addresses struct {
	calls, failures addressLimit
	memory          *ratelimit.Memory
	bits            int // of an IPv6 address
	seeds           [2]maphash.Seed
}

// addressLimit is one of the limits on an address; it is off with 0 units.
type addressLimit struct {
	policy string
	limit  ratelimit.Limit
	// refused counts what it refuses.
	refused prometheus.Counter
}

// newAddresses returns nil where neither limit is on. clock is that of the
// counters; nil for one that never steps.
func newAddresses(o Options, clock func() time.Time, m *metrics) *addresses {
	if o.IPLimit.Units <= 0 && o.FailedKeyLimit.Units <= 0 {
		return nil
	}
	limit := func(at int, r Rate) addressLimit {
		return addressLimit{
			policy: addressPolicies[at], refused: m.addresses[at],
			limit: ratelimit.Limit{Algorithm: quotad.SlidingWindowCounter, Units: r.Units, Window: r.Window},
		}
	}
	return &addresses{
		calls: limit(0, o.IPLimit), failures: limit(1, o.FailedKeyLimit), bits: o.IPv6Prefix,
		memory: ratelimit.NewMemory(ratelimit.MemoryOptions{Now: clock, MaxCounters: 2 * o.Addresses}),
		seeds:  [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()},
	}
}

// take counts one call of an address. Where the limit refuses it, the decision says
// so, and take reports false.
func (a *addresses) take(l *addressLimit, of netip.Addr, d *quotad.Decision) bool {
	if l.limit.Units <= 0 {
		return true
	}
	counter := a.counter(l, of)
	charge := [1]ratelimit.Charge{{Counter: counter, Limit: l.limit}}
	var status [1]ratelimit.Status
	out, err := a.memory.Take(context.Background(), ratelimit.Call{Shard: ratelimit.Shard(counter[0]), Cost: 1, Charges: charge[:]}, status[:])
	if err != nil || out.Allowed { // a cost of 1 fits every limit: there is no error
		return true
	}
	l.refused.Inc()
	d.Cost = 1
	d.Limits = []quotad.LimitStatus{{
		Policy: l.policy, Scope: quotad.ScopeIP, Algorithm: l.limit.Algorithm,
		Limit: l.limit.Units, Window: quotad.WholeSeconds(l.limit.Window),
	}}
	report(d, out, status[:])
	return false
}

// counter names the counter of an address: by a hash with a key that nobody knows
// and that ends with the process, as the counters do.
func (a *addresses) counter(l *addressLimit, of netip.Addr) (c ratelimit.Counter) {
	var name [17]byte
	if l == &a.failures {
		name[0] = 1
	}
	*(*[16]byte)(name[1:]) = callers.Network(of, a.bits).As16()
	for i, seed := range a.seeds {
		binary.LittleEndian.PutUint64(c[8*i:], maphash.Bytes(seed, name[:]))
	}
	return c
}

// enter counts a call by its address before anything is looked up for it. stop is
// true where the call ends here: by the error, or by a limit, as the decision says.
//
// A service that proves who it is asks for others and is not counted: its token is
// looked at first, from the cache when it is known. One that fails counts like any
// other call, and as a failed key.
func (c *Checker) enter(ctx context.Context, call Call, now time.Time, d *quotad.Decision) (stop bool, err error) {
	fault := call.Fault
	if !ofCredential(fault) {
		fault = nil // of the call itself, which is looked at later
	}
	if c.addresses == nil || !call.Address.IsValid() {
		return fault != nil, fault
	}
	if call.ServiceToken != "" && fault == nil {
		fault = c.checkToken(ctx, call.ServiceToken, now)
		if !errors.Is(fault, quotad.ErrInvalidAPIKey) {
			return fault != nil, fault
		}
	}
	switch {
	case !c.addresses.take(&c.addresses.calls, call.Address, d):
		return true, nil
	case fault != nil:
		return true, c.failed(call, fault, d)
	}
	return false, nil
}

// leave is the end of a call that entered. A call with a key that fails, whatever
// is wrong with it, counts as one; a key that works is never held to it, so that
// one bad client does not lock out the good ones behind the same address.
func (c *Checker) leave(call Call, err error, d *quotad.Decision) error {
	if err == nil || c.addresses == nil || !call.Address.IsValid() || call.APIKey == "" { // a token that fails does not enter
		return err
	}
	return c.failed(call, err, d)
}

// failed counts a failed key: the error stays what the caller is told until the
// limit on them refuses, which the decision then says in its place.
func (c *Checker) failed(call Call, err error, d *quotad.Decision) error {
	code := codeOf(err)
	if code != quotad.CodeInvalidAPIKey && code != quotad.CodeAmbiguousCredentials ||
		c.addresses.take(&c.addresses.failures, call.Address, d) {
		return err
	}
	return nil
}
