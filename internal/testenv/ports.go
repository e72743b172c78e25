package testenv

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
)

// ports are those that this process has taken, each locked as a byte of a file: a port is free for a while before its
// server listens, and while its server is stopped, and no other test may start one there meanwhile.
var ports struct {
	mu    sync.Mutex
	file  *os.File
	taken map[int]bool
}

// busOffset is how far above its port a node of a Redis cluster has a second one, for the other nodes.
const busOffset = 10_000

// freePort takes a port of 127.0.0.1, and that busOffset above it, until this process ends. Both are below the range
// that systems give to outgoing connections: there a client that keeps dialling a stopped server can end up connected
// to itself, and a server that is started again can find its port taken.
func freePort() (int, error) {
	ports.mu.Lock()
	defer ports.mu.Unlock()
	if ports.file == nil {
		file, err := os.OpenFile(filepath.Join(os.TempDir(), fmt.Sprintf("quotad-testenv-ports-%d.lock", os.Getuid())), os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return 0, fmt.Errorf("open the lock of ports: %w", err)
		}
		ports.file, ports.taken = file, map[int]bool{}
	}
	for range 1000 {
		port := 15000 + rand.IntN(32768-busOffset-15000) // so that no port is busOffset above another
		lock := syscall.Flock_t{Type: syscall.F_WRLCK, Start: int64(port), Len: 1}
		if ports.taken[port] || syscall.FcntlFlock(ports.file.Fd(), syscall.F_SETLK, &lock) != nil {
			continue
		}
		ports.taken[port] = true
		if isFree(port) && isFree(port+busOffset) {
			return port, nil
		}
	}
	return 0, errors.New("find a free port on 127.0.0.1: 1000 tries failed")
}

func isFree(port int) bool {
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	return err == nil && l.Close() == nil
}
