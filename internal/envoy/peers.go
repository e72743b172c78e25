package envoy

import (
	"context"
	"errors"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/quotad/quotad"
)

// peer is what is known of who asks: mayNameTenants is true for one that speaks for
// any tenant. The error is one of gRPC, on which Envoy does as its failure mode says:
// what is wrong here is wrong with the operator's configuration, never with a client.
func (s *Server) peer(ctx context.Context) (mayNameTenants bool, err error) {
	lines := metadata.ValueFromIncomingContext(ctx, "authorization")
	if len(lines) == 0 {
		if s.trust == TrustNone {
			return false, status.Error(codes.Unauthenticated, "a service token is required: send it in the metadata as authorization: Bearer")
		}
		return s.trust == TrustTenants, nil
	}
	scheme, token, _ := strings.Cut(lines[0], " ")
	token = strings.TrimSpace(token)
	if len(lines) > 1 || !strings.EqualFold(scheme, "Bearer") || token == "" {
		return false, status.Error(codes.Unauthenticated, "the metadata authorization must be Bearer and one service token")
	}
	err = s.checker.CheckServiceToken(ctx, token)
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, quotad.ErrInvalidAPIKey):
		return false, status.Error(codes.Unauthenticated, "the service token is not valid")
	default:
		return false, unanswered(ctx, err)
	}
}

// unanswered is the error of gRPC for a call that could not be decided. Why is the
// Checker's to log.
func unanswered(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return status.FromContextError(ctx.Err()).Err()
	}
	p, code := quotad.ProblemOf(err), codes.Internal
	if p.Error == quotad.CodeLimiterUnavailable || p.Error == quotad.CodeStoreUnavailable {
		code = codes.Unavailable
	}
	return status.Error(code, string(p.Error)+": "+p.Message)
}

// isDecided reports whether the error is an answer to the caller, rather than a failure
// of ours.
func isDecided(err error) bool {
	var e *quotad.Error
	return errors.As(err, &e) && e.Code.Status() < 500
}
