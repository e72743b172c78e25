package main

import (
	"flag"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the table of options into the documentation")

// documented is where the table of options stands, between two marks.
const documented = "../../docs/configuration.md"

const tableBegins, tableEnds = "<!-- options -->\n", "<!-- /options -->"

func TestConfigurationIsDocumented(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile(documented)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(raw), tableBegins)
	table, after, ok2 := strings.Cut(rest, tableEnds)
	if !ok || !ok2 {
		t.Fatalf("%s lacks the marks %q and %q", documented, tableBegins, tableEnds)
	}
	if table == configurationTable() {
		return
	}
	if !*update {
		t.Fatalf("%s does not have the table of options as it is: go test ./cmd/quotad -run Documented -update", documented)
	}
	if err := os.WriteFile(documented, []byte(before+tableBegins+configurationTable()+tableEnds+after), 0o644); err != nil {
		t.Fatal(err)
	}
}
