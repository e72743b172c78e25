package main

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version is set by the linker (-X main.version=…).
var version = ""

// build is what this program was made from.
type build struct{ version, commit, goVersion string }

func thisBuild() build {
	b := build{version: version, goVersion: runtime.Version()}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	if b.version == "" {
		b.version = info.Main.Version // "(devel)" from a working copy
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			b.commit = s.Value
		}
	}
	return b
}

func (p *program) versionCommand() *cobra.Command {
	return p.does(&cobra.Command{Use: "version", Short: "Print the version of this program"}, 0,
		func(*cobra.Command, Config, []string) error {
			b := thisBuild()
			_, err := fmt.Fprintf(p.stdout, "quotad %s (commit %s, %s, %s/%s)\n", cmp.Or(b.version, "unknown"), cmp.Or(b.commit, "unknown"), b.goVersion, runtime.GOOS, runtime.GOARCH)
			return err
		})
}
