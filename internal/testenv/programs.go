package testenv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Program is a server program, other than the stores, that a test wants to run as a process of this machine.
type Program struct {
	Name string // in messages
	// Files are written into its directory dir each time that it is to start on a port of 127.0.0.1: name to content.
	Files func(dir string, port int) map[string]string
	Argv  func(dir string, port int) []string         // its command line, the program first; it runs in dir
	Env   []string                                    // variables besides those of the test
	Ready func(ctx context.Context, url string) error // returns nil once the server at url answers
}

// OwnProgram starts a program for this test alone, and returns when it is ready. Its Server's URL is http. What the
// program writes on its standard output and error is its Log.
func OwnProgram(t testing.TB, p Program) *Server {
	t.Helper()
	dir, err := os.MkdirTemp("", "quotad-"+p.Name+"-")
	if err != nil {
		t.Fatalf("testenv: make a directory for %s: %v", p.Name, err)
	}
	proc, err := startProcess(t.Context(), program{
		dir: dir,
		argv: func(port int) []string {
			if p.Files != nil {
				if err := writeFiles(dir, p.Files(dir, port)); err != nil {
					t.Errorf("testenv: %s: %v", p.Name, err)
				}
			}
			return p.Argv(dir, port)
		},
		env:   p.Env,
		end:   "TERM",
		url:   func(port int) string { return fmt.Sprintf("http://127.0.0.1:%d", port) },
		ready: p.Ready,
	})
	if err != nil {
		t.Fatalf("testenv: start the test's own %s: %v", p.Name, err)
	}
	t.Cleanup(func() {
		if err := proc.remove(); err != nil {
			t.Errorf("testenv: remove the test's own %s: %v", p.Name, err)
		}
	})
	return &Server{t: t, instance: proc}
}

func writeFiles(dir string, files map[string]string) error {
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o644)); err != nil {
			return err
		}
	}
	return nil
}

// Installed returns the path of a program that the Debian package of the given name brings, and installs the package
// where it is missing and that can be done. Where it cannot, the test fails with what to install.
func Installed(t testing.TB, pkg, program string) string {
	t.Helper()
	path, err := findOrInstall(t.Context(), pkg, func() (string, bool) { return findProgram(program) })
	if err != nil {
		t.Fatalf("testenv: %s is needed: install the Debian package %s: %v", program, pkg, err)
	}
	return path
}

// findProgram looks on the PATH, and where servers are that the PATH of an ordinary user leaves out.
func findProgram(name string) (string, bool) {
	for _, name := range []string{name, "/usr/sbin/" + name, "/usr/local/sbin/" + name} {
		if path, err := exec.LookPath(name); err == nil {
			return path, true
		}
	}
	return "", false
}
