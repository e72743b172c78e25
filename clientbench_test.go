package quotad_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/ratelimit"
	"github.com/quotad/quotad/internal/testenv"
)

// benchWorld is a quotad that counts in memory, with a tenant of many units and one
// of none.
func benchWorld(b *testing.B) (c *quotad.Client, many, none quotad.Credential) {
	b.Helper()
	w := worldOn(b, testenv.NewClock(), ratelimit.NewMemory(ratelimit.MemoryOptions{}))
	w.tier(quotad.TierSpec{Name: "many", RateLimit: quotad.Units(quotad.MaxUnits)})
	w.tier(quotad.TierSpec{Name: "none", RateLimit: quotad.Units(0)})
	w.tenant(quotad.TenantSpec{ID: "many", Tier: "many"})
	w.tenant(quotad.TenantSpec{ID: "none", Tier: "none"})
	return w.metered(), w.key("many"), w.key("none")
}

// BenchmarkClientCheck asks over the loopback interface; quotad is in this process
// and part of what is counted. "refused" is told from memory.
func BenchmarkClientCheck(b *testing.B) {
	c, many, none := benchWorld(b)
	for name, key := range map[string]quotad.Credential{"admitted": many, "refused": none} {
		ask := func(b *testing.B) {
			if d, err := c.Check(context.Background(), exports(key)); err != nil || d.Allowed != (name == "admitted") {
				b.Fatalf("got %+v, %v", d, err)
			}
		}
		b.Run(name+"/one caller", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				ask(b)
			}
		})
		b.Run(name+"/64 callers", func(b *testing.B) {
			b.ReportAllocs()
			b.SetParallelism(32)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					ask(b)
				}
			})
		})
	}
}

// BenchmarkClientCheckAll is 50 questions in one call.
func BenchmarkClientCheckAll(b *testing.B) {
	c, many, _ := benchWorld(b)
	questions := make([]quotad.CheckRequest, 50)
	for i := range questions {
		questions[i] = exports(many)
	}
	b.ReportAllocs()
	for b.Loop() {
		if results, err := c.CheckAll(context.Background(), questions); err != nil || results[49].Status != 200 {
			b.Fatal(err)
		}
	}
}

// BenchmarkMiddlewareRefused is a whole refusal from memory, written to its caller.
func BenchmarkMiddlewareRefused(b *testing.B) {
	c, _, none := benchWorld(b)
	handler := c.Middleware(quotad.MiddlewareOptions{})(http.NotFoundHandler())
	r := httptest.NewRequest("GET", "/v1/things", nil)
	r.Header.Set("X-API-Key", string(none))
	b.ReportAllocs()
	for b.Loop() {
		w := discarding{http.Header{}}
		if handler.ServeHTTP(w, r); w.h.Get("X-RateLimit-Limit") != "0" {
			b.Fatal("it was not refused")
		}
	}
}

type discarding struct{ h http.Header }

func (d discarding) Header() http.Header       { return d.h }
func (discarding) Write(b []byte) (int, error) { return len(b), nil }
func (discarding) WriteHeader(int)             {}
