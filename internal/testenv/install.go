package testenv

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"
)

// Tool returns the path of a program of this machine, installing the Debian package that has it where that can be done.
func Tool(t testing.TB, pkg, program string) string {
	t.Helper()
	path, err := findOrInstall(t.Context(), pkg, func() (string, bool) {
		path, err := exec.LookPath(program)
		return path, err == nil
	})
	if err != nil {
		t.Fatalf("testenv: %v", err)
	}
	return path
}

// postgresPrograms returns the directory of initdb and postgres, installing them where that can be done.
func postgresPrograms(ctx context.Context) (string, error) {
	return findOrInstall(ctx, "postgresql", findPostgresPrograms)
}

// redisProgram returns the path of the program that RedisProgramEnv names, or of redis-server, installing that where it
// can be done.
func redisProgram(ctx context.Context) (string, error) {
	if named := os.Getenv(RedisProgramEnv); named != "" {
		path, err := exec.LookPath(named)
		if err != nil {
			return "", fmt.Errorf("find the program that %s names: %w", RedisProgramEnv, err)
		}
		return path, nil
	}
	return findOrInstall(ctx, "redis-server", func() (string, bool) {
		path, err := exec.LookPath("redis-server")
		return path, err == nil
	})
}

// findPostgresPrograms looks where packages put them, highest version first, and then on the PATH.
func findPostgresPrograms() (string, bool) {
	var dirs []string
	for _, pattern := range []string{"/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/opt/homebrew/opt/postgresql*/bin", "/usr/local/opt/postgresql*/bin"} {
		found, _ := filepath.Glob(pattern) // fails only on a malformed pattern
		slices.Sort(found)
		slices.Reverse(found)
		dirs = append(dirs, found...)
	}
	if path, err := exec.LookPath("initdb"); err == nil {
		dirs = append(dirs, filepath.Dir(path))
	}
	for _, dir := range dirs {
		_, err := os.Stat(filepath.Join(dir, "postgres"))
		_, err2 := os.Stat(filepath.Join(dir, "initdb"))
		if err == nil && err2 == nil {
			return dir, true
		}
	}
	return "", false
}

func findOrInstall(ctx context.Context, pkg string, find func() (string, bool)) (string, error) {
	if path, ok := find(); ok {
		return path, installed()
	}
	if _, err := exec.LookPath("apt-get"); err != nil || os.Getuid() != 0 {
		return "", fmt.Errorf("%s is not installed, and only root on Debian can be helped with that", pkg)
	}
	if err := install(ctx, pkg, find); err != nil {
		return "", fmt.Errorf("install %s: %w", pkg, err)
	}
	path, ok := find()
	if !ok {
		return "", fmt.Errorf("install %s: its programs are not where they were expected", pkg)
	}
	return path, nil
}

// installLock is the file that is locked by the test process that installs packages.
func installLock() string { return filepath.Join(os.TempDir(), "quotad-testenv-install.lock") }

// installed waits until no other test process installs packages: what one of them has just unpacked is not usable yet.
func installed() error {
	lock, err := os.Open(installLock())
	if err != nil {
		return nil // nobody has, or somebody whose doings are not ours
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_SH); err != nil {
		return fmt.Errorf("wait for the installation of packages: %w", err)
	}
	return nil
}

// install installs a Debian package without letting it start a service, unless another test process did so meanwhile.
func install(ctx context.Context, pkg string, find func() (string, bool)) error {
	lock, err := os.OpenFile(installLock(), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("open the lock: %w", err)
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return fmt.Errorf("take the lock: %w", err)
	}
	if _, ok := find(); ok {
		return nil
	}
	restore, err := denyServices()
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "testenv: installing the Debian package %s\n", pkg)
	err = aptGet(ctx, "install", "-y", "--no-install-recommends", pkg)
	if err != nil { // a fresh machine has no package lists yet
		if err = aptGet(ctx, "update"); err == nil {
			err = aptGet(ctx, "install", "-y", "--no-install-recommends", pkg)
		}
	}
	return errors.Join(err, restore())
}

// denyServices keeps package scripts from starting services, by the file that Debian has for that, and returns what
// undoes it. A file that is there already is somebody's decision and stays.
func denyServices() (restore func() error, err error) {
	const policy = "/usr/sbin/policy-rc.d"
	f, err := os.OpenFile(policy, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if errors.Is(err, fs.ErrExist) {
		return func() error { return nil }, nil
	}
	if err != nil {
		return nil, fmt.Errorf("deny the start of services: %w", err)
	}
	_, err = f.WriteString("#!/bin/sh\nexit 101\n")
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("deny the start of services: %w", err)
	}
	return func() error { return os.Remove(policy) }, nil
}

// aptPatience is how long apt-get is tried while somebody else works on packages.
const aptPatience = 5 * time.Minute

// aptGet runs apt-get. That waits for one of its locks by itself, and gives up at once where another is held.
func aptGet(ctx context.Context, args ...string) error {
	for began := time.Now(); ; {
		cmd := exec.CommandContext(ctx, "apt-get", append([]string{"-o", fmt.Sprint("DPkg::Lock::Timeout=", aptPatience.Seconds())}, args...)...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C")
		out, err := cmd.CombinedOutput()
		if err == nil {
			return nil
		}
		if !bytes.Contains(out, []byte("Could not get lock")) || time.Since(began) > aptPatience {
			return fmt.Errorf("apt-get %v: %w\n%s", args, err, out[max(0, len(out)-2000):])
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return fmt.Errorf("apt-get %v: %w", args, ctx.Err())
		}
	}
}
