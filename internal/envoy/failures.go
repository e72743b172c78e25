package envoy

import (
	"context"
	"log/slog"
	"runtime/debug"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// panicked logs a panic and is what the peer is told of it.
func (s *Server) panicked(ctx context.Context, method string, value any) error {
	s.logger.ErrorContext(ctx, "handler panicked", slog.String("method", method), slog.Any("error", value), slog.String("stack", string(debug.Stack())))
	return status.Error(codes.Internal, "internal: something went wrong on our side")
}
