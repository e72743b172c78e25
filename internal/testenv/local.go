package testenv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// localPostgres starts a Postgres server of this machine on a new data directory.
func localPostgres(ctx context.Context) (*process, string, error) {
	bin, err := postgresPrograms(ctx)
	if err != nil {
		return nil, "", err
	}
	dir, err := os.MkdirTemp("", "quotad-postgres-")
	if err != nil {
		return nil, "", fmt.Errorf("make a directory for postgres: %w", err)
	}
	cred, err := postgresUser(dir)
	if err != nil {
		return nil, "", errors.Join(err, os.RemoveAll(dir))
	}
	if err := initdb(ctx, filepath.Join(bin, "initdb"), dir, cred); err != nil {
		return nil, "", errors.Join(err, os.RemoveAll(dir))
	}
	proc, err := startProcess(ctx, program{
		dir: dir,
		argv: func(port int) []string {
			argv := []string{filepath.Join(bin, "postgres"), "-D", filepath.Join(dir, "data"), "-p", strconv.Itoa(port),
				"-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories="}
			return append(argv, postgresSettings...)
		},
		cred: cred,
		end:  "QUIT", // at once, but taking its shared memory with it
		url: func(port int) string {
			return fmt.Sprintf("postgres://postgres@127.0.0.1:%d/postgres?sslmode=disable", port)
		},
		ready: pingPostgres,
	})
	return proc, bin, err
}

// postgresSettings trade safety after a power cut, which no test has, for speed. A killed server still loses nothing.
// Autovacuum would now and then hold a template database that a test wants to clone.
var postgresSettings = []string{
	"-c", "fsync=off", "-c", "full_page_writes=off", "-c", "autovacuum=off", "-c", "max_connections=400",
	"-c", "wal_level=minimal", "-c", "max_wal_senders=0",
}

// postgresUser gives dir to an unprivileged user when we are root, whom Postgres refuses. Nil otherwise.
func postgresUser(dir string) (*syscall.Credential, error) {
	if os.Getuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		u, err = user.Lookup("nobody")
	}
	if err != nil {
		return nil, fmt.Errorf("find a user for postgres, which refuses root: %w", err)
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("read the user id of %s: %w", u.Username, err)
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("read the group id of %s: %w", u.Username, err)
	}
	if err := os.Chown(dir, int(uid), int(gid)); err != nil {
		return nil, fmt.Errorf("give %s to %s: %w", dir, u.Username, err)
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
}

// initdb makes the data directory dir/data. Text is sorted by a natural language's rules where the build can, as in
// most databases in use: a query that relies on byte order shows here, not there.
func initdb(ctx context.Context, program, dir string, cred *syscall.Credential) error {
	var errs []error
	for _, locale := range [][]string{{"--locale=C.UTF-8", "--locale-provider=icu", "--icu-locale=en-US"}, {"--no-locale"}} {
		data := filepath.Join(dir, "data")
		args := []string{"-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync"}
		cmd := exec.CommandContext(ctx, program, append(args, locale...)...)
		cmd.Dir = dir
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: cred}
		out, err := cmd.CombinedOutput()
		if err == nil {
			return nil
		}
		errs = append(errs, fmt.Errorf("run %s: %w\n%s", program, err, out), os.RemoveAll(data))
	}
	return errors.Join(errs...)
}
