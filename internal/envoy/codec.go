package envoy

import (
	"unicode/utf8"

	"google.golang.org/grpc/encoding"
	grpcproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// codec is gRPC's own, but for texts that are not UTF-8. Clients send such headers, and
// Envoys before 1.26 tell of them as they are (CVE-2023-27488). A message that can't be
// read is an error, and an error lets the call pass where Envoy fails open.
type codec struct{ encoding.CodecV2 }

func newCodec() codec { return codec{encoding.GetCodecV2(grpcproto.Name)} }

// Unmarshal reads a message, if need be without what is wrong with its texts.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	err := c.CodecV2.Unmarshal(data, v)
	m, ok := v.(proto.Message)
	if err == nil || !ok {
		return err
	}
	copied := data.Materialize()
	mend(copied, m.ProtoReflect().Descriptor(), maxDepth)
	return proto.Unmarshal(copied, m)
}

// maxDepth is how deep in a message texts are mended. What Envoy tells of a call stands
// less than ten deep.
const maxDepth = 32

// mend makes the texts in an encoded message UTF-8, in place.
func mend(b []byte, of protoreflect.MessageDescriptor, depth int) {
	for len(b) > 0 && depth > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return
		}
		b = b[n:]
		if n = protowire.ConsumeFieldValue(number, kind, b); n < 0 {
			return
		}
		if field := of.Fields().ByNumber(number); field != nil && kind == protowire.BytesType {
			value, _ := protowire.ConsumeBytes(b)
			switch field.Kind() {
			case protoreflect.StringKind:
				mendText(value)
			case protoreflect.MessageKind:
				mend(value, field.Message(), depth-1)
			}
		}
		b = b[n:]
	}
}

// substitute stands for a byte that can't be read (ASCII SUB). Nobody takes a control
// character in a key, a path or a subject, so that none of them becomes another one.
const substitute = 0x1a

func mendText(text []byte) {
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRune(text[i:])
		if r == utf8.RuneError && size == 1 {
			text[i] = substitute
		}
		i += size
	}
}
