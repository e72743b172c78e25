package deploy

import (
	"io"
	"net"
	"sync/atomic"
	"testing"
)

// relay passes connections on to an address and counts the bytes that go there.
type relay struct {
	net.Listener
	to   string
	sent atomic.Int64
}

func startRelay(t testing.TB, to string) *relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{Listener: l, to: to}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			go r.pass(from)
		}
	}()
	return r
}

func (r *relay) pass(from net.Conn) {
	defer from.Close()
	to, err := net.Dial("tcp", r.to)
	if err != nil {
		return
	}
	defer to.Close()
	go func() {
		io.Copy(counting{to, &r.sent}, from)
		to.(*net.TCPConn).CloseWrite()
	}()
	io.Copy(from, to)
}

// counting counts what is written.
type counting struct {
	io.Writer
	n *atomic.Int64
}

func (c counting) Write(p []byte) (int, error) {
	n, err := c.Writer.Write(p)
	c.n.Add(int64(n))
	return n, err
}
