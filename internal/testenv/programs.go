package testenv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
)

// Program is a server program, other than the stores, that a test wants to run as a process of this machine.
type Program struct {
	Name string // of the program, at least where there is a Package
	// Package is the Debian package, if any, that brings the program, and Image an image in whose containers it runs
	// where it is not installed and cannot be. Then Stop and Freeze do not reach it.
	Package, Image string
	// Files are written into its directory dir each time that it is to start on a port of 127.0.0.1: name to content.
	Files func(dir string, port int) map[string]string
	Argv  func(dir string, port int) []string         // its command line, the program first (of a Package its name alone); it runs in dir
	Env   []string                                    // variables besides those of the test
	Ready func(ctx context.Context, url string) error // returns nil once the server at url answers
}

// OwnProgram starts a program for this test alone, and returns when it is ready. Its Server's URL is http. What the
// program writes on its standard output and error is its Log.
func OwnProgram(t testing.TB, p Program) *Server {
	t.Helper()
	run := func(_ string, argv []string) []string { return argv }
	if p.Package != "" {
		var err error
		if run, err = p.found(t.Context()); err != nil {
			t.Fatalf("testenv: %v", err)
		}
	}
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
			return run(dir, p.Argv(dir, port))
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

// found finds the program of a package, or an image with it, and returns how its command line is run in a directory.
func (p Program) found(ctx context.Context) (run func(dir string, argv []string) []string, err error) {
	ways := map[string]func(context.Context) (func(string, []string) []string, error){"local": p.installed, "docker": p.contained}
	order := []string{"local", "docker"}
	if forced := os.Getenv(WayEnv); forced != "" {
		if ways[forced] == nil {
			return nil, fmt.Errorf("%s must be docker, local or empty, not %q", WayEnv, forced)
		}
		order = []string{forced}
	}
	var errs []error
	for _, word := range order {
		run, err := ways[word](ctx)
		if err == nil {
			return run, nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", word, err))
	}
	return nil, fmt.Errorf("no %s for the tests. Install the Debian package %s, or start Docker. What was tried:\n%w", p.Name, p.Package, errors.Join(errs...))
}

// installed is the program of the package, which is installed where it is missing and that can be done.
func (p Program) installed(ctx context.Context) (func(string, []string) []string, error) {
	path, err := findOrInstall(ctx, p.Package, func() (string, bool) { return findProgram(p.Name) })
	if err != nil {
		return nil, err
	}
	return func(_ string, argv []string) []string { return slices.Concat([]string{path}, argv[1:]) }, nil
}

// contained is the program in a container that has this machine's network, the same directory, and the same user.
func (p Program) contained(ctx context.Context) (func(string, []string) []string, error) {
	path, err := exec.LookPath("docker")
	if err != nil {
		return nil, err
	}
	docker, err := dockerWith(ctx, p.Image)
	if err != nil {
		return nil, err
	}
	if err := docker.Close(); err != nil {
		return nil, fmt.Errorf("leave the Docker daemon: %w", err)
	}
	return func(dir string, argv []string) []string {
		command := []string{path, "run", "--rm", "--init", "--network", "host", "--volume", dir + ":" + dir, "--workdir", dir,
			"--user", fmt.Sprintf("%d:%d", os.Getuid(), os.Getgid())}
		for _, variable := range p.Env {
			command = append(command, "--env", variable)
		}
		return slices.Concat(command, []string{p.Image}, argv)
	}, nil
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
