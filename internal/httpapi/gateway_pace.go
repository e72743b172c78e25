package httpapi

import (
	"bufio"
	"net"
	"net/http"
	"time"
)

// maxStall is how long a client may neither send what it announced nor take what it
// is sent. It bounds no call that moves on, however long it lasts.
const maxStall = time.Minute

// pacedWriter gives the client maxStall for each piece of an answer.
type pacedWriter struct {
	http.ResponseWriter
	stall time.Duration
	// hijacked is true once the connection is no longer net/http's to answer on.
	hijacked bool
}

func (w *pacedWriter) WriteHeader(status int) {
	w.extend()
	w.ResponseWriter.WriteHeader(status)
}

func (w *pacedWriter) Write(b []byte) (int, error) {
	w.extend()
	return w.ResponseWriter.Write(b)
}

// FlushError is how http.ResponseController flushes.
func (w *pacedWriter) FlushError() error {
	w.extend()
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// Hijack takes the connection over, which then has no deadline.
func (w *pacedWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	w.hijacked = err == nil
	return conn, rw, err
}

// Unwrap leads http.ResponseController to what else the writer can do.
func (w *pacedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// extend gives the client the time for one piece from now. A writer without a
// connection, as tests have, needs no deadline.
func (w *pacedWriter) extend() {
	if c, ok := w.ResponseWriter.(interface{ SetWriteDeadline(time.Time) error }); ok {
		_ = c.SetWriteDeadline(time.Now().Add(w.stall))
	}
}
