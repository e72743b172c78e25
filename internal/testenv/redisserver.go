package testenv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
)

// redisServer is a kind of server that the program redis-server can be.
type redisServer struct {
	files map[string]string                   // in its directory before its first start: name to content
	args  func(dir string, port int) []string // of its command line
	url   func(host string, port int) string
}

// plainRedis is a server with the settings args.
func plainRedis(args ...string) redisServer {
	return redisServer{
		args: func(dir string, port int) []string {
			return slices.Concat([]string{"--port", strconv.Itoa(port), "--dir", dir}, redisSettings, args)
		},
		url: redisURL,
	}
}

// redisSettings make no snapshots and never evict.
var redisSettings = []string{"--save", "", "--appendonly", "no", "--maxmemory-policy", "noeviction", "--protected-mode", "no"}

// redisKeeps are the settings with which a server that is killed and started again still has its data.
var redisKeeps = []string{"--appendonly", "yes", "--appendfsync", "no"}

func redisURL(host string, port int) string { return fmt.Sprintf("redis://%s:%d/0", host, port) }

// ways are the ways to start the server, by the words of WayEnv.
func (r redisServer) ways() map[string]way {
	return map[string]way{
		"docker": r.contained(startContainer),
		"local":  func(ctx context.Context) (instance, string, error) { return described(r.local(ctx)) },
	}
}

// contained is the way by which start starts the server in a container. It is none where a program of this machine was
// asked for by name.
func (r redisServer) contained(start func(context.Context, recipe) (instance, string, error)) way {
	return func(ctx context.Context) (instance, string, error) {
		if named := os.Getenv(RedisProgramEnv); named != "" {
			return nil, "", fmt.Errorf("%s asks for the program %s", RedisProgramEnv, named)
		}
		return start(ctx, r.container())
	}
}

// local starts the server as a process of this machine.
func (r redisServer) local(ctx context.Context) (*process, string, error) {
	bin, err := redisProgram(ctx)
	if err != nil {
		return nil, "", err
	}
	dir, err := os.MkdirTemp("", "quotad-redis-")
	if err != nil {
		return nil, "", fmt.Errorf("make a directory for redis: %w", err)
	}
	for name, content := range r.files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			return nil, "", errors.Join(err, os.RemoveAll(dir))
		}
	}
	proc, err := startProcess(ctx, program{
		dir: dir,
		argv: func(port int) []string {
			return slices.Concat([]string{bin}, r.args(dir, port), []string{"--bind", "127.0.0.1"})
		},
		end:   "KILL",
		url:   func(port int) string { return r.url("127.0.0.1", port) },
		ready: pingRedis,
	})
	return proc, bin, err
}

// container is the server in a container, where its directory is that of the official image.
func (r redisServer) container() recipe {
	const dir = "/data"
	files := map[string]string{}
	for name, content := range r.files {
		files[path.Join(dir, name)] = content
	}
	return recipe{
		image: redisImage,
		port:  6379,
		files: files,
		cmd:   func(port int) []string { return append([]string{"redis-server"}, r.args(dir, port)...) },
		url:   r.url,
		ready: pingRedis,
	}
}
