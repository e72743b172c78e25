package httpapi

import (
	"context"
	"encoding/json"
	"net/http"
	"time"
)

// Readiness is whether the node can serve.
type Readiness struct {
	// Reasons say why it can't; it is ready when there are none.
	Reasons []string
	// Notes are what operators should know although it can, such as a breaker that is open.
	Notes []string
}

// readyTimeout is how long Options.Ready may take.
const readyTimeout = 2 * time.Second

// Health answers 200 while the process lives. Another listener may mount it too.
func (s *Server) Health() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		writeHealth(w, http.StatusOK, health{Status: "ok"})
	})
}

// Ready answers 200, or 503 with the reasons why calls should go elsewhere.
// Another listener may mount it too.
func (s *Server) Ready() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.draining.Load() {
			writeHealth(w, http.StatusServiceUnavailable, health{Status: "not ready", Reasons: []string{"shutting down"}})
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), readyTimeout)
		defer cancel()
		ready := s.ready(ctx)
		if len(ready.Reasons) > 0 {
			writeHealth(w, http.StatusServiceUnavailable, health{Status: "not ready", Reasons: ready.Reasons, Notes: ready.Notes})
			return
		}
		writeHealth(w, http.StatusOK, health{Status: "ready", Notes: ready.Notes})
	})
}

type health struct {
	Status  string   `json:"status"`
	Reasons []string `json:"reasons,omitempty"`
	Notes   []string `json:"notes,omitempty"`
}

func writeHealth(w http.ResponseWriter, status int, h health) {
	w.Header()["Content-Type"] = jsonType
	w.Header()["Cache-Control"] = noStore
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(h) // strings always encode, and nobody is left to be told of a lost connection
}

func (x *exchange) healthz() error {
	x.Health().ServeHTTP(x.w, x.r)
	return nil
}

func (x *exchange) readyz() error {
	x.Ready().ServeHTTP(x.w, x.r)
	return nil
}
