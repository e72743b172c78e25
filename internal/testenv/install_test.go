package testenv

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Packages of several tests install at once, and so may the machine itself.
func TestAptGetWaitsForLocks(t *testing.T) {
	dir := t.TempDir()
	tries := filepath.Join(dir, "tries")
	aptGetIs(t, dir, `echo >>`+tries+`; [ "$(wc -l <`+tries+`)" -gt 1 ] || { echo "E: Could not get lock /var/cache/apt/archives/lock." >&2; exit 100; }`)
	if err := aptGet(t.Context(), "install", "nginx"); err != nil {
		t.Errorf("the lock was given back, and yet: %v", err)
	}
	aptGetIs(t, dir, `echo "E: Unable to locate package $4" >&2; exit 100`)
	began := time.Now()
	if err := aptGet(t.Context(), "install", "nginx"); err == nil || !strings.Contains(err.Error(), "locate package nginx") {
		t.Errorf("no such package: got %v, want what apt-get says", err)
	}
	if took := time.Since(began); took > aptPatience/2 {
		t.Errorf("that there is no such package took %v", took)
	}
}

// aptGetIs puts a script in the place of apt-get for this test.
func aptGetIs(t *testing.T, dir, script string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, "apt-get"), []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}
