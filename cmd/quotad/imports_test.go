package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/quotad/quotad"

// The families of packages that a room may have to do without, each under the words of the reasons below.
var families = map[string][]string{
	"sql":      {"database/sql", "github.com/jackc/pgx", "modernc.org/sqlite", "github.com/golang-migrate", module + "/internal/database", module + "/migrations"},
	"redis":    {"github.com/redis"},
	"http":     {"net/http/httputil", "github.com/labstack/echo"},
	"grpc":     {"google.golang.org/grpc"},
	"internal": {module + "/internal", module + "/cmd", module + "/migrations"},
	"commands": {"github.com/spf13", "github.com/knadh", module + "/cmd"},
	"testing":  {module + "/internal/testenv", module + "/internal/database/databasetest", "testing"},
}

// rule is what a room must do without, and why.
type rule struct {
	why string
	// never are families and rooms ("internal/tiers") that it must not reach, even indirectly.
	never []string
	// directly are those that it must not name itself; what it uses may.
	directly []string
}

// rooms is the house: every package has its rule.
var rooms = map[string]rule{
	"":                               {why: "clients import it, and get the standard library and nothing else", never: []string{"anything"}},
	"quotadecho":                     {why: "clients import it, and get echo and nothing else of what quotad is made of", never: []string{"internal", "sql", "redis", "grpc", "commands", "testing"}},
	"migrations":                     {why: "the schema knows no program", never: []string{"redis", "http", "grpc", "commands", "testing", "internal/events", "internal/tiers"}},
	"internal/secret":                {why: "pure text: whoever holds a secret must not be able to send it anywhere", never: []string{"anything"}},
	"internal/messages":              {why: "pure text", never: []string{"internal", "sql", "redis", "http", "grpc"}},
	"internal/replies":               {why: "every door says the same, whatever it speaks", never: []string{"internal", "sql", "redis", "http", "grpc", "commands", "testing"}},
	"internal/callers":               {why: "every door reads the same, whatever it speaks", never: []string{"internal", "sql", "redis", "http", "grpc", "commands", "testing"}},
	"internal/ratelimit":             {why: "algorithms and their stores know no tenant and no transport", never: []string{"internal", "sql", "http", "grpc", "commands", "testing"}},
	"internal/database":              {why: "the ground that everything else stands on", never: []string{"internal/admin", "internal/admintokens", "internal/apikeys", "internal/events", "internal/httpapi", "internal/idempotency", "internal/quota", "internal/ratelimit", "internal/secret", "internal/tiers", "redis", "http", "grpc", "commands", "testing"}},
	"internal/events":                {why: "it is told what was written, and asks nobody", never: []string{"internal/tiers", "internal/apikeys", "internal/admintokens", "internal/idempotency", "internal/quota", "redis", "http", "grpc", "commands", "testing"}},
	"internal/tiers":                 {why: "siblings never meet, and the database has no transport", never: []string{"internal/apikeys", "internal/admintokens", "internal/idempotency", "internal/quota", "redis", "http", "grpc", "commands", "testing"}},
	"internal/apikeys":               {why: "siblings never meet, and the database has no transport", never: []string{"internal/tiers", "internal/admintokens", "internal/idempotency", "internal/quota", "redis", "http", "grpc", "commands", "testing"}},
	"internal/admintokens":           {why: "siblings never meet, and the database has no transport", never: []string{"internal/tiers", "internal/apikeys", "internal/idempotency", "internal/quota", "redis", "http", "grpc", "commands", "testing"}},
	"internal/idempotency":           {why: "siblings never meet, and the database has no transport", never: []string{"internal/tiers", "internal/apikeys", "internal/admintokens", "internal/quota", "redis", "http", "grpc", "commands", "testing"}},
	"internal/quota":                 {why: "the question is the same through every door, and whatever the SQL", never: []string{"http", "grpc", "commands", "testing", "internal/httpapi", "internal/admin"}, directly: []string{"sql", "redis"}},
	"internal/httpapi":               {why: "a door decodes, asks and encodes", never: []string{"grpc", "commands", "testing", "internal/admin", "internal/admintokens", "internal/idempotency"}, directly: []string{"sql", "redis"}},
	"internal/envoy":                 {why: "a door decodes, asks and encodes, and brings gRPC to nobody else", never: []string{"github.com/labstack/echo", "commands", "testing", "internal/httpapi", "internal/admin", "internal/admintokens", "internal/idempotency"}, directly: []string{"sql", "redis"}},
	"internal/admin":                 {why: "a door decodes, calls and encodes; SQL and Redis are behind the stores", never: []string{"grpc", "commands", "testing", "internal/httpapi"}, directly: []string{"database/sql", "github.com/jackc/pgx", "redis"}},
	"internal/testenv":               {why: "it starts servers and knows nothing of what is tested on them", never: []string{"internal/database", "internal/tiers", "internal/apikeys", "internal/quota", "internal/ratelimit", "http", "grpc", "commands"}},
	"internal/testenv/withservers":   {why: "it starts servers and knows nothing of what is tested on them", never: []string{"internal/database", "internal/tiers", "internal/quota", "http", "grpc", "commands"}},
	"internal/testenv/accesslog":     {why: "it reads logs and knows nothing of what is asked of them", never: []string{"internal/database", "internal/tiers", "internal/quota", "internal/ratelimit", "http", "grpc", "commands"}},
	"internal/database/databasetest": {why: "it gives tests a database and knows nothing of what they do with it", never: []string{"internal/tiers", "internal/apikeys", "internal/quota", "internal/ratelimit", "http", "grpc", "commands"}},
	"deploy":                         {why: "it is configuration files and their tests", never: []string{"anything", "internal"}},
	"cmd/quotad":                     {why: "what ships starts no test servers", never: []string{"internal/testenv", "internal/database/databasetest", "testing"}},
}

func TestImportsPointOneWay(t *testing.T) {
	t.Parallel()
	imports := readImports(t)
	for path := range imports {
		if room, ok := inModule(path); ok {
			if _, ruled := rooms[room]; !ruled {
				t.Errorf("package %q has no rule: add it to rooms", room)
			}
		}
	}
	for room, rule := range rooms {
		path := strings.TrimSuffix(module+"/"+room, "/")
		if _, exists := imports[path]; !exists {
			t.Errorf("rooms has a rule for %q, which is no package", room)
			continue
		}
		for _, dep := range slices.Sorted(maps.Keys(reach(imports, path))) {
			if broken := forbids(rule.never, path, dep); broken != "" {
				t.Errorf("%s reaches %s (%s): %s\n  by way of %s", path, dep, broken, rule.why, way(imports, path, dep))
			}
		}
		for _, dep := range imports[path] {
			if broken := forbids(rule.directly, path, dep); broken != "" {
				t.Errorf("%s imports %s (%s): %s", path, dep, broken, rule.why)
			}
		}
	}
}

// forbids returns which of the families or rooms named a package belongs to, "" for none. A room's own packages are its
// own.
func forbids(named []string, path, dep string) string {
	for _, name := range named {
		if name == "anything" {
			if first, _, _ := strings.Cut(dep, "/"); strings.Contains(first, ".") && dep != module {
				return "not the standard library"
			}
			continue
		}
		members, known := families[name]
		switch {
		case known:
		case strings.HasPrefix(name, "internal/"):
			members = []string{module + "/" + name}
		default:
			members = []string{name}
		}
		for _, m := range members {
			if within(dep, m) && !within(dep, path) {
				return name
			}
		}
	}
	return ""
}

func within(path, parent string) bool { return path == parent || strings.HasPrefix(path, parent+"/") }

func inModule(path string) (room string, ok bool) {
	if path == module {
		return "", true
	}
	return strings.CutPrefix(path, module+"/")
}

// readImports asks go list for the imports of every package that what we build depends on, tests left out.
func readImports(t *testing.T) map[string][]string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-json=ImportPath,Imports", module+"/...")
	cmd.Dir = "../.."
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.String())
	}
	imports := map[string][]string{}
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p struct {
			ImportPath string
			Imports    []string
		}
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return imports
		} else if err != nil {
			t.Fatal(err)
		}
		imports[p.ImportPath] = p.Imports
	}
}

// reach is everything that a package depends on, itself left out, each with the package through which it was found.
func reach(imports map[string][]string, from string) map[string]string {
	found := map[string]string{}
	for next := []string{from}; len(next) > 0; next = next[1:] {
		for _, dep := range imports[next[0]] {
			if _, seen := found[dep]; !seen && dep != from {
				found[dep] = next[0]
				next = append(next, dep)
			}
		}
	}
	return found
}

// way is the chain of imports from one package to another.
func way(imports map[string][]string, from, to string) string {
	by := reach(imports, from)
	chain := to
	for at := to; at != from; at = by[at] {
		chain = fmt.Sprintf("%s → %s", by[at], chain)
	}
	return chain
}
