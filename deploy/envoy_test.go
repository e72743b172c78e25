package deploy

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
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

	"github.com/quotad/quotad/internal/testenv"
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
	protocol  *corev3.HttpProtocolOptions
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
	parts := envoyParts{host: manager.GetRouteConfig().GetVirtualHosts()[0], protocol: manager.GetCommonHttpProtocolOptions()}
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

// What a client gets, by file: of the rate limit service every refusal is 429.
func TestEnvoyFilesAskWhatTheyShould(t *testing.T) {
	t.Parallel()
	for _, file := range envoyFiles {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			n := startQuotad(t, "--grpc-listen=127.0.0.1:0")
			n.tier("acme", 3, "")
			n.group("heavy", "POST /v1/heavy", `,"cost":2`)
			n.group("login", "POST /login", `,"auth":"none","limits":[{"name":"tries","route_group":"login","scope":"ip","rate_limit":1,"rate_window":86400}]`)
			key, local := n.key("acme", ""), n.key("acme", `,"allowed_cidrs":["192.0.2.1/32"]`)
			e := standFor(t, n, file)
			authenticates := e.parts.limit == nil
			for i, c := range []struct {
				method, path string
				header       []string
				want         string // of files that authenticate
			}{
				{"GET", "/v1/x", []string{"X-API-Key: " + key}, "200 2 acme"},
				{"GET", "/v1/x", []string{"x-api-key: " + key, "X-Quotad-Tenant: forged", "X-Quotad-Subject: forged", "X_Quotad_Tenant: forged"}, "200 1 acme"},
				{"HEAD", "/v1/x?a=b", []string{"X-API-Key: " + key}, "200 0 acme"},
				{"GET", "/v1/x", []string{"X-API-Key: " + key}, "429 rate_limit_exceeded"},
				{"GET", "/v1/x?deny_status=403", []string{"X-API-Key: " + key}, "429 rate_limit_exceeded"}, // not for a client to say
				{"POST", "/v1/heavy", []string{"X-API-Key: " + key}, "200 1 acme"},
				{"GET", "/v1/x", nil, "401 api_key_required"},
				{"GET", "/v1/x", []string{"X-Quotad-Tenant: acme"}, "401 api_key_required"},
				{"GET", "/v1/x", []string{"X-API-Key: "}, "401 api_key_required"},
				{"GET", "/v1/x", []string{"X-API-Key: qk_junk"}, "401 invalid_api_key"},
				{"GET", "/v1/x", []string{"X-API-Key: " + key, "X-API-Key: " + key}, "400 ambiguous_credentials"},
				{"GET", "/v1/x", []string{"X-API-Key: " + local}, "200 2 acme"}, // the address is the client's
				{"OPTIONS", "/v1/x", []string{"Origin: " + pageOrigin, "Access-Control-Request-Method: POST"}, "200  "},
				{"POST", "/login", nil, "200 0 "},
				{"POST", "/login", nil, "429 rate_limit_exceeded"},
			} {
				p := e.call(c.method, c.path, c.header...)
				got, want := p.words(), c.want
				if !authenticates {
					want = strings.TrimSuffix(want, "acme") // the API is told nothing
					want = strings.NewReplacer("401 ", "429 ", "400 ", "429 ").Replace(want)
				}
				if c.method == "HEAD" && p.status != 200 || got != want {
					t.Errorf("call %d: %s, want %s", i+1, got, want)
				}
				if p.api != nil && (p.api["x-api-key"] != nil || p.api["x_quotad_tenant"] != nil || strings.Contains(strings.Join(p.api["x-quotad-tenant"], ""), "forged") || strings.Contains(strings.Join(p.api["x-quotad-subject"], ""), "forged")) {
					t.Errorf("call %d reached the API with %v", i+1, p.api)
				}
				if len(p.client["x-ratelimit-limit"]) > 1 || len(p.client["ratelimit"]) > 1 {
					t.Errorf("call %d: the client reads the API's limits, too: %v", i+1, p.client)
				}
				if strings.Contains(c.want, "rate_limit_exceeded") && (p.client["retry-after"] == nil || p.client["content-type"][0] != "application/json" || p.client["cache-control"][0] != "no-store") {
					t.Errorf("call %d: the client reads %v", i+1, p.client)
				}
				if p.status == 401 && p.client["www-authenticate"] == nil {
					t.Errorf("call %d: 401 with %v", i+1, p.client)
				}
			}
		})
	}
}

// A quotad that is dead, and one whose Redis is away under the policy closed: by file, as shipped and as it fails open.
func TestEnvoyFilesFailAsTheySay(t *testing.T) {
	t.Parallel()
	open := map[string][]string{
		"ext-authz-grpc.yaml": {"failure_mode_allow: false", "failure_mode_allow: true"},
		"ext-authz-http.yaml": {"failure_mode_allow: false", "failure_mode_allow: true"},
		"ratelimit.yaml":      {"failure_mode_deny: true", "failure_mode_deny: false"},
	}
	redis := testenv.OwnRedis(t)
	n := startQuotad(t, "--grpc-listen=127.0.0.1:0", "--redis="+redis.URL(), "--on-store-failure=closed")
	n.tier("acme", 3, "")
	key := n.key("acme", "")
	stands, opens := map[string]*envoyStand{}, map[string]*envoyStand{}
	for _, file := range envoyFiles {
		stands[file], opens[file] = standFor(t, n, file), standFor(t, n, file, open[file]...)
	}
	want := func(what string, closed, open map[string]int) {
		t.Helper()
		for _, file := range envoyFiles {
			if p := stands[file].call("GET", "/v1/x", "X-API-Key: "+key); p.status != closed[file] {
				t.Errorf("%s, %s: %d, want %d", what, file, p.status, closed[file])
			}
			if p := opens[file].call("GET", "/v1/x", "X-API-Key: "+key); p.status != open[file] {
				t.Errorf("%s, %s that fails open: %d, want %d", what, file, p.status, open[file])
			}
		}
	}
	each := func(status int) map[string]int {
		return map[string]int{"ext-authz-grpc.yaml": status, "ext-authz-http.yaml": status, "ratelimit.yaml": status}
	}
	redis.Stop()
	// Over gRPC 503 is quotad's own answer, which is no failure; over HTTP Envoy can't tell it from one.
	want("Redis is away", each(503), map[string]int{"ext-authz-grpc.yaml": 503, "ext-authz-http.yaml": 200, "ratelimit.yaml": 200})
	n.Stop()
	want("quotad is dead", each(503), each(200))
}
