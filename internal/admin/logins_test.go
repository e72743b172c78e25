package admin

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/quotad/quotad"
)

func TestFailedLoginsBlockAnAddress(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	l := newLogins(3, time.Minute)
	for i := range 3 {
		if err := l.recordFailure("192.0.2.1", now); err != nil {
			t.Fatalf("failure %d: %v", i, err)
		}
	}
	var refused *quotad.Error
	if err := l.blocked("192.0.2.1", now); !errors.As(err, &refused) || refused.Code != quotad.CodeRateLimitExceeded {
		t.Fatalf("got %v", err)
	}
	if err := l.recordFailure("192.0.2.1", now); !errors.As(err, &refused) {
		t.Fatalf("a failure more: got %v", err)
	}
	if err := l.blocked("192.0.2.2", now); err != nil {
		t.Errorf("another address: %v", err)
	}
	if refused.RetryAfter != 20*time.Second {
		t.Errorf("got a wait of %v", refused.RetryAfter)
	}
	if err := l.blocked("192.0.2.1", now.Add(19*time.Second)); err == nil {
		t.Error("not blocked before the wait is over")
	}
	if err := l.blocked("192.0.2.1", now.Add(refused.RetryAfter)); err != nil {
		t.Errorf("after the wait: %v", err)
	}
}

func TestFailedLoginsOfOneNetworkAreOne(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	l := newLogins(3, time.Minute)
	for i := range 3 {
		_ = l.recordFailure(fmt.Sprintf("2001:db8:1:2::%x", i+1), now)
	}
	if l.blocked("2001:db8:1:2:ffff::1", now) == nil {
		t.Error("another address of the /64 is not blocked")
	}
	if err := l.blocked("2001:db8:1:3::1", now); err != nil {
		t.Errorf("another /64: %v", err)
	}
	for range 3 {
		_ = l.recordFailure("::ffff:192.0.2.9", now)
	}
	if l.blocked("192.0.2.9", now) == nil {
		t.Error("the same IPv4 address written as IPv6 is another one")
	}
}

func TestFailedLoginsAreBounded(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	l := newLogins(3, time.Minute)
	for i := range maxAddresses * 2 {
		_ = l.recordFailure(fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255), now)
	}
	if n := l.buckets.Len(); n > maxAddresses {
		t.Errorf("%d addresses are remembered", n)
	}
}
