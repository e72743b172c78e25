package deploy

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	extauthzv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_authz/v3"
	mutationv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/header_mutation/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ratelimit/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"
)

// envoyFiles are the configurations for Envoy.
var envoyFiles = []string{"ext-authz-grpc.yaml", "ext-authz-http.yaml", "ratelimit.yaml"}

// readEnvoy reads a file as Envoy does: every name in it must be one of Envoy's own definitions.
func readEnvoy(t testing.TB, file string, edits ...string) *bootstrapv3.Bootstrap {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("envoy", file))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(edits); i += 2 {
		if !bytes.Contains(text, []byte(edits[i])) {
			t.Fatalf("%s has no %q to edit", file, edits[i])
		}
		text = bytes.Replace(text, []byte(edits[i]), []byte(edits[i+1]), 1)
	}
	var tree any
	if err := yaml.Unmarshal(text, &tree); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	object, err := json.Marshal(tree)
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	config := &bootstrapv3.Bootstrap{}
	if err := protojson.Unmarshal(object, config); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return config
}

// invalid returns what breaks the rules that Envoy's definitions carry, also within typed configurations.
func invalid(m proto.Message) (faults []string) {
	if v, ok := m.(interface{ ValidateAll() error }); ok {
		if err := v.ValidateAll(); err != nil {
			faults = append(faults, err.Error())
		}
	}
	if a, ok := m.(*anypb.Any); ok {
		inner, err := a.UnmarshalNew()
		if err != nil {
			return append(faults, err.Error())
		}
		return append(faults, invalid(inner)...)
	}
	m.ProtoReflect().Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		switch {
		case field.Message() == nil:
		case field.IsMap():
			value.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool {
				if field.MapValue().Message() != nil {
					faults = append(faults, invalid(v.Message().Interface())...)
				}
				return true
			})
		case field.IsList():
			for i := range value.List().Len() {
				faults = append(faults, invalid(value.List().Get(i).Message().Interface())...)
			}
		default:
			faults = append(faults, invalid(value.Message().Interface())...)
		}
		return true
	})
	return faults
}

func TestEnvoyFilesAreWhatEnvoyReads(t *testing.T) {
	t.Parallel()
	for _, file := range envoyFiles {
		if faults := invalid(readEnvoy(t, file)); len(faults) > 0 {
			t.Errorf("%s: %s", file, strings.Join(faults, "\n"))
		}
		readEnvoy(t, file, "code: ServiceUnavailable", "code: TooManyRequests") // the check itself reads what it is given
	}
	broken := readEnvoy(t, "ratelimit.yaml", "domain: quotad", `domain: ""`)
	if len(invalid(broken)) == 0 {
		t.Error("a rate limit filter without a domain is taken for valid")
	}
}

// envoyParts are the parts of a file that say what Envoy asks and what it makes of the answers.
type envoyParts struct {
	host      *routev3.VirtualHost
	mutation  *mutationv3.HeaderMutation
	authorize *extauthzv3.ExtAuthz   // nil where there is none
	limit     *ratelimitv3.RateLimit // nil where there is none
}

func partsOf(t testing.TB, config *bootstrapv3.Bootstrap) envoyParts {
	t.Helper()
	manager := &hcmv3.HttpConnectionManager{}
	if err := config.GetStaticResources().GetListeners()[0].GetFilterChains()[0].GetFilters()[0].GetTypedConfig().UnmarshalTo(manager); err != nil {
		t.Fatal(err)
	}
	parts := envoyParts{host: manager.GetRouteConfig().GetVirtualHosts()[0]}
	for _, filter := range manager.GetHttpFilters() {
		m, err := filter.GetTypedConfig().UnmarshalNew()
		if err != nil {
			t.Fatal(err)
		}
		switch m := m.(type) {
		case *mutationv3.HeaderMutation:
			parts.mutation = m
		case *extauthzv3.ExtAuthz:
			parts.authorize = m
		case *ratelimitv3.RateLimit:
			parts.limit = m
		}
	}
	return parts
}
