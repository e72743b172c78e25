package envoy

import (
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/quotad/quotad"
)

func TestWhoeverSendsNoTokenMayDoWhatTheOperatorSays(t *testing.T) {
	t.Parallel()
	const works = codes.OK
	for _, c := range []struct {
		trust                   Trust
		token                   string
		key, tenant, authorized codes.Code
	}{
		{"", "", works, codes.PermissionDenied, works},
		{TrustKeys, "", works, codes.PermissionDenied, works},
		{TrustNone, "", codes.Unauthenticated, codes.Unauthenticated, codes.Unauthenticated},
		{TrustTenants, "", works, works, works},
		{TrustNone, "Bearer qa_service", works, works, works},
		{TrustKeys, "bearer  qa_service", works, works, works},
		{TrustTenants, "Bearer qa_other", codes.Unauthenticated, codes.Unauthenticated, codes.Unauthenticated},
		{TrustKeys, "qa_service", codes.Unauthenticated, codes.Unauthenticated, codes.Unauthenticated},
		{TrustKeys, "Basic qa_service", codes.Unauthenticated, codes.Unauthenticated, codes.Unauthenticated},
		{TrustKeys, "Bearer ", codes.Unauthenticated, codes.Unauthenticated, codes.Unauthenticated},
	} {
		a := &answers{decision: admitted()}
		s := serve(t, a, Options{Trust: c.trust})
		var pairs []string
		if c.token != "" {
			pairs = []string{"authorization", c.token}
		}
		_, err := s.limits.ShouldRateLimit(within(t, pairs...), request(descriptor("api_key=qk_a")))
		_, errTenant := s.limits.ShouldRateLimit(within(t, pairs...), request(descriptor("api_key=qk_a"), descriptor("tenant=acme", "route_group=x")))
		_, errCheck := s.authorize.Check(within(t, pairs...), check("/v1/x"))
		if status.Code(err) != c.key || status.Code(errTenant) != c.tenant || status.Code(errCheck) != c.authorized {
			t.Errorf("trust %q, token %q: %v; %v; %v", c.trust, c.token, err, errTenant, errCheck)
		}
		if c.key != works && len(a.asked()) != 0 {
			t.Errorf("trust %q, token %q: the checker was asked", c.trust, c.token)
		}
	}
}

func TestTwoTokensAreNone(t *testing.T) {
	t.Parallel()
	s := serve(t, &answers{decision: admitted()}, Options{})
	_, err := s.limits.ShouldRateLimit(within(t, "authorization", "Bearer qa_service", "authorization", "Bearer qa_service"), request(descriptor("api_key=qk_a")))
	wantCode(t, err, codes.Unauthenticated, "one service token")
}

func TestATokenThatCannotBeLookedUpIsNotWrong(t *testing.T) {
	t.Parallel()
	s := serve(t, &answers{token: &quotad.Error{Code: quotad.CodeStoreUnavailable}}, Options{})
	_, err := s.limits.ShouldRateLimit(within(t, "authorization", "Bearer qa_service"), request(descriptor("api_key=qk_a")))
	wantCode(t, err, codes.Unavailable, "store_unavailable")
}
