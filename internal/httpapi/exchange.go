package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"

	"github.com/labstack/echo/v4"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/quota"
	"github.com/quotad/quotad/internal/replies"
)

// handler answers one request. An error that it returns is written as a problem.
type handler func(x *exchange) error

// exchange is one request and its answer on the way. Exchanges are reused, so
// nothing may keep one, nor a slice of its buffers.
type exchange struct {
	*Server
	current
	values replies.Values
	body   []byte
}

// current is what an exchange holds of one request, and loses with it.
type current struct {
	door door
	r    *http.Request
	w    *echo.Response
	id   string
	// call is what is known of the call that the checker is to be asked about.
	call quota.Call
	// denied takes the place of the statuses that nginx does not know; 0 for none.
	denied int
	// asked is true once the checker is.
	asked bool
	// bodyRead is true when nothing of the request's body is left.
	bodyRead bool
	// gone is true when the client hung up before the answer.
	gone bool
}

// through is the way of every request: request id, CORS, the handler with its
// panics caught, the problem where it fails, metrics.
func (s *Server) through(d door, h handler) echo.HandlerFunc {
	return func(c echo.Context) error {
		started := s.now()
		x := s.exchanges.Get().(*exchange)
		x.current = current{door: d, r: c.Request(), w: c.Response()}
		x.id = s.ids.of(x.r)
		if s.cors != nil {
			s.cors.allow(x)
		}
		if err := x.run(h); err != nil {
			x.fail(err)
		}
		status := x.w.Status
		if x.gone {
			status = statusClientClosed
		}
		s.metrics.observe(d, status, s.now().Sub(started))
		x.release()
		return nil
	}
}

// run calls the handler and turns a panic into an error.
func (x *exchange) run(h handler) (err error) {
	defer func() {
		switch p := recover(); p {
		case nil:
		case http.ErrAbortHandler:
			panic(p)
		default:
			err = &panicked{value: p, stack: debug.Stack()}
		}
	}()
	return h(x)
}

// question is the call as the checker is to be asked, once: with where it came from and
// through which door.
func (x *exchange) question() quota.Call {
	x.asked = true
	x.call.Address, x.call.Door = x.client(x.r), x.door.String()
	return x.call
}

// fail answers a request that its handler could not. One of a metered door that is
// refused before the checker was asked is told to it, with what is known of the call:
// limits on an address hold for those that send nonsense, too, and what is wrong with a
// call is told to who proves who it is. So handlers read the credential first.
func (x *exchange) fail(err error) {
	var wrong *quotad.Error
	if x.door.metered() && !x.asked && errors.As(err, &wrong) && wrong.Code.Status() < http.StatusInternalServerError {
		var decision quotad.Decision
		x.call.Fault = err
		decision, err = x.checker.Check(x.r.Context(), x.question())
		if err == nil {
			_ = x.deny(&decision)
			return
		}
	}
	x.refuse(err)
}

// panicked is a panic of a handler.
type panicked struct {
	value any
	stack []byte
}

func (p *panicked) Error() string { return fmt.Sprintf("panic: %v", p.value) }

// maxKept is the largest body buffer that is kept for the next exchange, in bytes:
// enough for the answer to a hundred checks of two limits.
const maxKept = 64 << 10

func (x *exchange) release() {
	x.current = current{}
	x.values.Reset()
	if cap(x.body) > maxKept {
		x.body = nil
	}
	x.Server.exchanges.Put(x)
}

// write sends the status, the headers gathered so far and the body.
func (x *exchange) write(status int, body []byte) error {
	x.values.Set("X-Request-Id", x.id)
	// net/http counts short bodies itself, but not those that HEAD leaves out.
	if len(body) > 1024 || x.r.Method == http.MethodHead && status != http.StatusNoContent {
		x.values.SetInt("Content-Length", int64(len(body)))
	}
	x.values.Flush(x.w.Header())
	x.w.WriteHeader(status)
	if len(body) == 0 || x.r.Method == http.MethodHead {
		return nil
	}
	if _, err := x.w.Write(body); err != nil {
		x.gone = true // nobody is left to be told
	}
	return nil
}

// answerAtOnce keeps net/http from reading the request's body before it sends
// the answer: whoever uploads slowly, or waits to be told to go on, gets it now.
// The price is the connection, and only where a body was sent that nobody reads;
// gateways send none. (Full duplex would keep the connection, but net/http
// corrupts it when the rest of the body arrives after the answer.)
func (x *exchange) answerAtOnce() {
	if x.r.ContentLength != 0 && !x.bodyRead && x.r.ProtoMajor == 1 {
		x.w.Header()["Connection"] = closeConnection
	}
}

// hungUp reports whether the error is only the client's going away.
func (x *exchange) hungUp(err error) bool {
	return errors.Is(err, context.Canceled) && x.r.Context().Err() != nil
}
