package main

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quotad/quotad/internal/testenv"
)

func TestTheExitCodeIsPassedOn(t *testing.T) {
	t.Parallel()
	err := launcher(t, "sh", "-c", "exit 7").Run()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 7 {
		t.Errorf("got %v, want exit status 7", err)
	}
}

func TestBothServersAreThereForTheCommandAndGoneAfterIt(t *testing.T) {
	t.Parallel()
	hosts, stdin, cmd := launch(t)
	for _, host := range hosts {
		if !answers(host) {
			t.Errorf("no server at %s while the command runs", host)
		}
	}
	stdin.Close() // ends the command
	if err := cmd.Wait(); err != nil {
		t.Errorf("the launcher ended with %v", err)
	}
	for _, host := range hosts {
		if answers(host) {
			t.Errorf("the server at %s outlived the launcher", host)
		}
	}
}

func TestServersEndEvenWhenTheLauncherIsKilled(t *testing.T) {
	t.Parallel()
	hosts, _, cmd := launch(t)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(5 * time.Minute)
	for _, host := range hosts {
		for answers(host) {
			if time.Now().After(deadline) {
				t.Fatalf("the server at %s outlived the killed launcher", host)
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
}

// launch starts the launcher with a command that lives as long as its standard input, and returns where the servers
// listen.
func launch(t *testing.T) (hosts []string, stdin io.Closer, cmd *exec.Cmd) {
	t.Helper()
	cmd = launcher(t, "sh", "-c", "echo $"+testenv.PostgresEnv+"; echo $"+testenv.RedisEnv+"; exec cat")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		cmd.Wait() // an error where the test has waited, or killed it
	})
	lines := bufio.NewScanner(out)
	for len(hosts) < 2 && lines.Scan() {
		u, err := url.Parse(lines.Text())
		if err != nil || u.Host == "" {
			t.Fatalf("the command was given the URL %q", lines.Text())
		}
		hosts = append(hosts, u.Host)
	}
	if len(hosts) < 2 {
		t.Fatalf("the command was given %d URLs, want 2", len(hosts))
	}
	return hosts, in, cmd
}

// launcher is a built launcher with servers of its own, whatever this test run uses.
func launcher(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	program := filepath.Join(t.TempDir(), "withservers")
	if out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	cmd := exec.Command(program, append([]string{"--"}, args...)...)
	cmd.Stderr = t.Output()
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, testenv.PostgresEnv+"=") && !strings.HasPrefix(variable, testenv.RedisEnv+"=") {
			cmd.Env = append(cmd.Env, variable)
		}
	}
	return cmd
}

func answers(host string) bool {
	conn, err := net.DialTimeout("tcp", host, time.Minute)
	if err != nil {
		return false
	}
	return conn.Close() == nil
}
