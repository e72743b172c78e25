package admin

import (
	"fmt"
	"net/netip"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/time/rate"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/callers"
)

// maxAddresses is how many addresses with failed logins are remembered; the one
// that was heard of longest ago gives way.
const maxAddresses = 10_000

// logins slows down who guesses admin tokens. Each address (an IPv6 address by
// its /64) has a bucket that a failed login takes one from; while it is empty,
// no login from there is looked at.
type logins struct {
	burst   int
	refill  rate.Limit
	buckets *lru.Cache[netip.Addr, *rate.Limiter] // by network
}

// newLogins allows burst failures at once and refills them evenly in a window.
func newLogins(burst int, window time.Duration) *logins {
	buckets, err := lru.New[netip.Addr, *rate.Limiter](maxAddresses)
	if err != nil {
		panic(err) // the size is a constant above 0
	}
	return &logins{burst: burst, refill: rate.Limit(float64(burst) / window.Seconds()), buckets: buckets}
}

// blocked is the refusal of an address whose bucket is empty, else nil.
func (l *logins) blocked(address string, now time.Time) error {
	bucket, ok := l.buckets.Get(network(address))
	if !ok {
		return nil
	}
	left := bucket.TokensAt(now)
	if left >= 1 {
		return nil
	}
	wait := time.Duration((1 - left) / float64(l.refill) * float64(time.Second))
	return &quotad.Error{
		Code: quotad.CodeRateLimitExceeded, RetryAfter: max(wait, time.Second),
		Detail: fmt.Sprintf("more than %d wrong admin tokens were presented from this address", l.burst),
	}
}

// recordFailure takes one from the address's bucket, or returns its refusal when
// there is none.
func (l *logins) recordFailure(address string, now time.Time) error {
	from := network(address)
	bucket, ok := l.buckets.Get(from)
	if !ok {
		bucket = rate.NewLimiter(l.refill, l.burst)
		if known, loaded, _ := l.buckets.PeekOrAdd(from, bucket); loaded {
			bucket = known
		}
	}
	if bucket.AllowN(now, 1) {
		return nil
	}
	return l.blocked(address, now)
}

// network is what one holder of an address can choose from: a single IPv4
// address, a /64 of IPv6.
func network(address string) netip.Addr {
	a, _ := callers.Address(address) // all that can't be read share one bucket
	return callers.Network(a, 64)
}
