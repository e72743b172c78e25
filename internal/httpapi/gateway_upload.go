package httpapi

import (
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// upload is the body of a request on its way to an upstream. It is not buffered, but
// for its beginning while the call waits in the queue: net/http notices that a client
// hangs up only while somebody reads.
type upload struct {
	body     io.Reader
	deadline func(time.Time) error // of the next read; nil without a connection
	stall    time.Duration
	trailer  http.Header
	closed   atomic.Bool
	ended    atomic.Bool // nothing of it is left

	mu      sync.Mutex
	over    bool       // the call is: its connection is net/http's again
	ahead   []byte     // read ahead, and not yet taken
	reading *sync.Cond // while somebody reads ahead, else nil
	wanted  bool       // reading ahead is to stop
	err     error      // that ended it
}

func newUpload(r *http.Request, w *pacedWriter) *upload {
	u := &upload{body: r.Body, trailer: r.Trailer, stall: w.stall}
	u.strip()
	if c, ok := w.ResponseWriter.(interface{ SetReadDeadline(time.Time) error }); ok {
		u.deadline = c.SetReadDeadline
	}
	return u
}

var errUploadClosed = errors.New("the call is over")

// Read gives what was read ahead, and then the rest from the client.
func (u *upload) Read(b []byte) (int, error) {
	if u.closed.Load() {
		return 0, errUploadClosed
	}
	if n, err := u.takeAhead(b); n > 0 || err != nil {
		return n, err
	}
	n, err := u.read(b)
	if err != nil {
		u.mu.Lock()
		u.err = err
		u.mu.Unlock()
	}
	return n, err
}

// read reads from the client, which may stall for maxStall.
func (u *upload) read(b []byte) (int, error) {
	if !u.bound(time.Now().Add(u.stall)) {
		return 0, errUploadClosed
	}
	n, err := u.body.Read(b)
	if err == io.EOF {
		u.bound(time.Time{}) // net/http goes on reading, to notice a hang-up
		u.strip()
		u.ended.Store(true)
	}
	return n, err
}

// bound sets the deadline of the next read, unless the call is over: whoever still reads
// then, in a goroutine of its own, would hold net/http up at the end of it.
func (u *upload) bound(until time.Time) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.over && u.deadline != nil {
		_ = u.deadline(until)
	}
	return !u.over
}

// strip takes out of the trailer what a client may not say in headers either. No proxy
// says there where a call came from, so that is out whoever sends it.
func (u *upload) strip() {
	for name := range u.trailer {
		if isReserved(name, false) {
			delete(u.trailer, name)
		}
	}
}

// takeAhead takes what was read ahead, if anything was.
func (u *upload) takeAhead(b []byte) (int, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.wanted = true
	for u.reading != nil && len(u.ahead) == 0 {
		u.reading.Wait()
	}
	n := copy(b, u.ahead)
	u.ahead = u.ahead[n:]
	if len(u.ahead) == 0 && u.reading == nil {
		return n, u.err
	}
	return n, nil
}

// maxAhead is how much of a body is read while its call waits, in bytes.
const maxAhead = 8 << 10

// readAhead reads the beginning of the body until it is wanted, in a goroutine. A body
// with a trailer is left alone: net/http writes into the request at its end.
func (u *upload) readAhead(size int64) {
	if len(u.trailer) > 0 {
		return
	}
	if size < 0 || size > maxAhead {
		size = maxAhead
	}
	buffer := make([]byte, 0, size)
	u.reading = sync.NewCond(&u.mu)
	go func() {
		for {
			n, err := u.read(buffer[len(buffer):cap(buffer)])
			u.mu.Lock()
			buffer = buffer[:len(buffer)+n]
			u.ahead = buffer[len(buffer)-n-len(u.ahead):]
			u.err = err
			over := err != nil || u.wanted || len(buffer) == cap(buffer)
			if over {
				u.reading.Broadcast()
				u.reading = nil
			}
			u.mu.Unlock()
			if over {
				return
			}
		}
	}()
}

// fault is what kept the client's body from being read; nil where all is well.
func (u *upload) fault() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.err == io.EOF {
		return nil
	}
	return u.err
}

// Close ends all reading of it. It is the transport's to call.
func (u *upload) Close() error {
	u.closed.Store(true)
	return nil
}

// linger is how long net/http may wait for the rest of a body that nobody wants.
const linger = time.Second

// abandon closes the body at the end of the call. net/http reads some of what is left
// of it, for whoever sends all of a request before reading the answer.
func (u *upload) abandon() {
	_ = u.Close()
	u.mu.Lock()
	defer u.mu.Unlock()
	u.over = true
	if u.deadline != nil && !u.ended.Load() {
		_ = u.deadline(time.Now().Add(min(linger, u.stall)))
	}
}
