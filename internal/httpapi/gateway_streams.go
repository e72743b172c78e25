package httpapi

import (
	"io"
	"mime"
	"net/http"
	"sync"
)

// streams are the answers that have no end of their own: event streams and upgraded
// connections. They can all be ended.
type streams struct {
	mu    sync.Mutex
	ended bool
	open  map[*stream]struct{}
}

// stream is the body of such an answer.
type stream struct {
	io.ReadCloser
	of    *streams
	mu    sync.Mutex
	ended bool
}

// isStream reports whether an answer has no end of its own.
func isStream(res *http.Response) bool {
	if res.StatusCode == http.StatusSwitchingProtocols {
		return true
	}
	media, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type"))
	return media == "text/event-stream"
}

// track returns the body as one that end ends.
func (s *streams) track(body io.ReadCloser) io.ReadCloser {
	one := &stream{ReadCloser: body, of: s}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == nil {
		s.open = map[*stream]struct{}{}
	}
	s.open[one] = struct{}{}
	if s.ended {
		one.end()
	}
	if _, ok := body.(io.ReadWriteCloser); ok {
		return &upgraded{one}
	}
	return one
}

func (s *streams) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	for one := range s.open {
		one.end()
	}
}

// end ends the stream as if the upstream had.
func (s *stream) end() {
	s.mu.Lock()
	s.ended = true
	s.mu.Unlock()
	_ = s.ReadCloser.Close() // what it was reading ends with an error, which Read hides
}

func (s *stream) Read(b []byte) (int, error) {
	n, err := s.ReadCloser.Read(b)
	if err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.ended {
			err = io.EOF
		}
	}
	return n, err
}

func (s *stream) Close() error {
	s.of.mu.Lock()
	delete(s.of.open, s)
	s.of.mu.Unlock()
	return s.ReadCloser.Close()
}

// upgraded is a stream in both directions.
type upgraded struct{ *stream }

// Read tells an end that was brought about as an error: an end of the upstream's own
// would leave the other direction open.
func (u *upgraded) Read(b []byte) (int, error) { return u.ReadCloser.Read(b) }

func (u *upgraded) Write(b []byte) (int, error) { return u.ReadCloser.(io.Writer).Write(b) }

// CloseWrite tells the upstream that the client sends no more.
func (u *upgraded) CloseWrite() error {
	if half, ok := u.ReadCloser.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return u.ReadCloser.Close()
}
