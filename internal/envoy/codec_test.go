package envoy

import (
	"bytes"
	"testing"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"

	"github.com/quotad/quotad"
)

// unclean sends messages as an Envoy that does not look at what its clients send: XX is bytes that are no UTF-8.
type unclean struct{ encoding.CodecV2 }

func (u unclean) Marshal(v any) (mem.BufferSlice, error) {
	data, err := u.CodecV2.Marshal(v)
	return mem.BufferSlice{mem.SliceBuffer(bytes.ReplaceAll(data.Materialize(), []byte("XX"), []byte("\xc3\xff")))}, err
}

func TestWhatClientsSendThatIsNotUTF8IsJudgedAllTheSame(t *testing.T) {
	t.Parallel()
	a := &answers{err: &quotad.Error{Code: quotad.CodeInvalidAPIKey}}
	s := serve(t, a, Options{})
	asIs := grpc.ForceCodecV2(unclean{newCodec().CodecV2})
	limited, err := s.limits.ShouldRateLimit(within(t), request(descriptor("api_key=qk_XX", "method=GET", "path=/é/XX")), asIs)
	if err != nil || limited.GetOverallCode() != ratelimitv3.RateLimitResponse_OVER_LIMIT {
		t.Fatalf("the rate limit service: %v, %v", limited, err)
	}
	if calls := a.asked(); len(calls) != 1 || calls[0].APIKey != "qk_\x1a\x1a" || calls[0].Path != "/é/\x1a\x1a" {
		t.Errorf("asked %+v", calls)
	}
	for _, r := range []*authv3.CheckRequest{check("/v1/x", "user-agent: XX"), check("/v1/x", "x-api-key: qk_XX"), check("/v1/XX")} {
		answer, err := s.authorize.Check(within(t), r, asIs)
		if err != nil || answer.GetDeniedResponse().GetStatus().GetCode() != 401 {
			t.Errorf("ext_authz: %v, %v", answer, err)
		}
	}
	if calls := a.asked(); len(calls) != 3 || calls[0].Path != "/v1/x" || calls[2].Path != "/v1/\x1a\x1a" {
		t.Errorf("asked %+v", calls)
	}
}

func TestWhatIsNoMessageIsRefused(t *testing.T) {
	t.Parallel()
	for _, b := range []string{"\xff", "\x0a\x7f", "\x0a\x02\xc3", "\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"} {
		if err := newCodec().Unmarshal(mem.BufferSlice{mem.SliceBuffer(b)}, &ratelimitv3.RateLimitRequest{}); err == nil {
			t.Errorf("%q is read", b)
		}
	}
}
