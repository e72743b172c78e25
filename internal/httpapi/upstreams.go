package httpapi

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/quotad/quotad"
)

// Upstream is a service that calls are passed on to.
type Upstream struct {
	scheme, host string
	name         string // as logs name it
}

// Upstreams are where calls go: those of some route groups to their own, all others to
// one.
type Upstreams struct {
	standard *Upstream
	byGroup  map[string]*Upstream
}

// ParseUpstreams reads a list such as "exports=http://10.0.0.7:3000,http://10.0.0.5:3000":
// one address without a name, for all calls that no other is for, and others behind the
// name of a route group.
func ParseUpstreams(text string) (Upstreams, error) {
	u := Upstreams{byGroup: map[string]*Upstream{}}
	for part := range strings.SplitSeq(text, ",") {
		part = strings.TrimSpace(part)
		group, address, named := strings.Cut(part, "=")
		if !named {
			group, address = "", part
		}
		one, err := parseUpstream(address)
		if err != nil {
			return Upstreams{}, err
		}
		switch {
		case !named && u.standard != nil:
			return Upstreams{}, errors.New("more than one upstream is without a route group")
		case !named:
			u.standard = one
		case !quotad.ValidName(group):
			return Upstreams{}, errors.New("what stands before = is no name of a route group")
		case u.byGroup[group] != nil:
			return Upstreams{}, fmt.Errorf("route group %s has more than one upstream", group)
		default:
			u.byGroup[group] = one
		}
	}
	if u.standard == nil {
		return Upstreams{}, errors.New("no upstream is without a route group")
	}
	return u, nil
}

// parseUpstream reads an address. A path in it would make the upstream see another one
// than was judged.
func parseUpstream(text string) (*Upstream, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil ||
		strings.Trim(u.Path, "/") != "" || strings.ContainsAny(text, "?#") || u.Opaque != "" || !validPort(u) {
		return nil, errors.New("an upstream is http://host:port or https://host:port, without a path or a password")
	}
	return &Upstream{scheme: u.Scheme, host: u.Host, name: u.Scheme + "://" + u.Host}, nil
}

// validPort reports whether one can dial the port of an address, or there is none.
func validPort(u *url.URL) bool {
	port := u.Port()
	if port == "" {
		return !strings.HasSuffix(u.Host, ":")
	}
	n, err := strconv.ParseUint(port, 10, 16)
	return err == nil && n > 0
}

// of is the upstream of a route group.
func (u Upstreams) of(group string) *Upstream {
	if one := u.byGroup[group]; one != nil {
		return one
	}
	return u.standard
}

// Bounds of connections to upstreams.
const (
	dialTimeout = 5 * time.Second
	// keepIdle is shorter than what common servers keep an idle connection for (2 s and
	// more): a POST that is sent just when the other end closes can't be sent again.
	keepIdle = 1500 * time.Millisecond
	// maxIdle is the most idle connections to one upstream.
	maxIdle = 512
	// continueTimeout is how long an upstream may take to ask for the body of a request
	// that offers to wait for that.
	continueTimeout = time.Second
)

func newTransport(timeout time.Duration) *http.Transport {
	return &http.Transport{
		DialContext:            (&net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second}).DialContext,
		TLSHandshakeTimeout:    dialTimeout,
		MaxIdleConnsPerHost:    maxIdle,
		IdleConnTimeout:        keepIdle,
		ResponseHeaderTimeout:  timeout,
		ExpectContinueTimeout:  continueTimeout,
		MaxResponseHeaderBytes: 1 << 20,
		// What the client and the upstream agree on stays as it is.
		DisableCompression: true,
	}
}

// buffers are the buffers that answers are copied through.
type buffers struct{ pool sync.Pool }

const bufferSize = 32 << 10

func (b *buffers) Get() []byte {
	if kept, ok := b.pool.Get().(*[bufferSize]byte); ok {
		return kept[:]
	}
	return make([]byte, bufferSize)
}

func (b *buffers) Put(buffer []byte) { b.pool.Put((*[bufferSize]byte)(buffer)) }
