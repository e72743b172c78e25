package testenv

import (
	"context"
	"slices"
	"testing"
)

// Server is a server of one test alone, for the faults that a shared one must not have. Its methods fail the test
// when they cannot do what they say, and belong on the test's goroutine. It is removed when the test ends.
type Server struct {
	t        testing.TB
	instance instance
}

// OwnRedis starts a Redis server for this test alone. args are settings as for the command line of redis-server
// ("--maxmemory", "2mb"). Data survive Stop and Start, through an append-only file.
func OwnRedis(t testing.TB, args ...string) *Server {
	t.Helper()
	return own(t, "redis", plainRedis(slices.Concat(redisKeeps, args)...).ways())
}

// OwnPostgres starts a Postgres server for this test alone. URL names its database "postgres", which is empty; what
// was committed survives Stop and Start.
func OwnPostgres(t testing.TB) *Server {
	t.Helper()
	return own(t, "postgres", postgresWays())
}

func own(t testing.TB, name string, ways map[string]way) *Server {
	t.Helper()
	started, err := start(t.Context(), name, ways, "local", "docker")
	if err != nil {
		t.Fatalf("testenv: %v", err)
	}
	t.Cleanup(func() {
		if err := started.Close(); err != nil {
			t.Errorf("testenv: remove the test's own %s server: %v", name, err)
		}
	})
	return &Server{t: t, instance: started.instance}
}

// URL is the server's address, the same before and after Stop and Start.
func (s *Server) URL() string { return s.instance.address() }

// Log is what a server that OwnProgram started has written since it was last started; "" of a container.
func (s *Server) Log() string {
	if p, ok := s.instance.(*process); ok {
		return p.log()
	}
	return ""
}

// Stop kills the server without a warning (SIGKILL, frozen or not) and returns when it is gone.
func (s *Server) Stop() {
	s.t.Helper()
	s.do("stop", s.instance.kill)
}

// Start starts a stopped server on the same port with the data it had and returns when it answers.
func (s *Server) Start() {
	s.t.Helper()
	s.do("start", s.instance.start)
}

// Freeze stops the server where it stands (SIGSTOP, with all its children): connections stay open, new ones are
// accepted by the kernel, and nothing is answered.
func (s *Server) Freeze() {
	s.t.Helper()
	s.do("freeze", s.instance.freeze)
}

// Resume lets a frozen server go on; what it was sent meanwhile it now answers.
func (s *Server) Resume() {
	s.t.Helper()
	s.do("resume", s.instance.resume)
}

func (s *Server) do(what string, method func(context.Context) error) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), Patience)
	defer cancel()
	if err := method(ctx); err != nil {
		s.t.Fatalf("testenv: %s the test's own server: %v", what, err)
	}
}
