package ratelimit

import (
	"fmt"
	"net"
	"net/url"
	"runtime/pprof"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/Shopify/toxiproxy/v2/toxics"
	"github.com/rs/zerolog"
)

// wire is a network that can be broken, between a client and the server at an address.
type wire struct {
	t     testing.TB
	proxy *toxiproxy.Proxy
}

func newWire(t testing.TB, address string) *wire {
	t.Helper()
	zerolog.SetGlobalLevel(zerolog.Disabled)
	toxics.Register("stall", new(stall))
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	w := &wire{t: t, proxy: toxiproxy.NewProxy(server, t.Name(), "127.0.0.1:0", address)}
	if err := w.proxy.Start(); err != nil {
		t.Fatalf("start a proxy: %v", err)
	}
	t.Cleanup(w.proxy.Stop)
	return w
}

// address is where the client is to connect to.
func (w *wire) address() string { return w.proxy.Listen }

// poison makes the wire do something to what flows from the client ("upstream") or
// to it ("downstream").
func (w *wire) poison(kind, stream, attributes string) {
	w.t.Helper()
	_, err := w.proxy.Toxics.AddToxicJson(strings.NewReader(fmt.Sprintf(`{"type":%q,"stream":%q,"attributes":%s}`, kind, stream, attributes)))
	if err != nil {
		w.t.Fatalf("poison the wire: %v", err)
	}
}

// mend removes all that poisons the wire.
func (w *wire) mend() { w.proxy.Toxics.ResetToxics(w.t.Context()) }

// cut closes all connections and refuses new ones, until splice.
func (w *wire) cut() { w.proxy.Stop() }

func (w *wire) splice() {
	w.t.Helper()
	if err := w.proxy.Start(); err != nil {
		w.t.Fatalf("start a proxy again: %v", err)
	}
}

// stall holds every so many-th packet up, and with it its connection.
type stall struct {
	Every int64 `json:"every"` // counted over all connections
	MS    int64 `json:"ms"`    // for how long, in milliseconds

	seen atomic.Int64
}

// Pipe implements toxics.Toxic.
func (s *stall) Pipe(stub *toxics.ToxicStub) {
	for {
		select {
		case <-stub.Interrupt:
			return
		case c := <-stub.Input:
			if c == nil {
				stub.Close()
				return
			}
			if s.seen.Add(1)%s.Every == 0 {
				select {
				case <-time.After(time.Duration(s.MS) * time.Millisecond):
				case <-stub.Interrupt:
					stub.Output <- c
					return
				}
			}
			stub.Output <- c
		}
	}
}

// hostPort is the address in a URL.
func hostPort(t testing.TB, address string) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	return u.Host
}

// deafListener returns an address that swallows connections. Where accepts is true they
// are made and never answered, else not even that: packets to it are lost.
func deafListener(t testing.TB, accepts bool) string {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	backlog := 0
	if accepts {
		backlog = 1024
	}
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Listen(fd, backlog); err != nil {
		t.Fatal(err)
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	address := net.JoinHostPort("127.0.0.1", fmt.Sprint(name.(*syscall.SockaddrInet4).Port))
	if !accepts { // fill the queue of those who wait to be accepted
		for {
			conn, err := net.DialTimeout("tcp", address, 50*time.Millisecond)
			if err != nil {
				break
			}
			t.Cleanup(func() { _ = conn.Close() })
		}
	}
	return address
}

// goroutines counts those that are not the wires'.
func goroutines() int {
	var all strings.Builder
	_ = pprof.Lookup("goroutine").WriteTo(&all, 2)
	n := 0
	for one := range strings.SplitSeq(all.String(), "\n\n") {
		if !strings.Contains(one, "toxiproxy") {
			n++
		}
	}
	return n
}
