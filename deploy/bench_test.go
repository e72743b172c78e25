package deploy

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quotad/quotad/internal/testenv"
)

// aloneConf is nginx in front of the same API without a question to anybody.
const aloneConf = `
upstream api { server %s; keepalive 64; }
server {
	listen %d;
	location / {
		proxy_pass http://api;
		proxy_http_version 1.1;
		proxy_set_header Connection "";
		proxy_buffering off;
	}
}
`

// BenchmarkNginx measures calls through nginx that quotad authorizes beside the same calls through nginx alone, by
// turns in one run. ratio is how many times as long a call takes, ask-µs what the question adds.
func BenchmarkNginx(b *testing.B) {
	w := nginx.build(b, variant{patient: true})
	w.quotad.tier("measured", 1_000_000_000, "")
	key := w.quotad.key("measured", "")
	bare := startAlone(b, w.api.URL)
	for _, callers := range []int{1, 16} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			const turns = 5
			var asked, alone []time.Duration
			n := max(b.N/turns, callers)
			load(b, w.gateway.URL(), key, callers, n)
			load(b, bare, key, callers, n)
			b.ResetTimer()
			for range turns {
				asked = append(asked, load(b, w.gateway.URL(), key, callers, n))
				alone = append(alone, load(b, bare, key, callers, n))
			}
			slices.Sort(asked)
			slices.Sort(alone)
			with, without := asked[turns/2], alone[turns/2]
			b.ReportMetric(float64(with.Nanoseconds())/float64(n), "ns/op")
			b.ReportMetric(float64(with)/float64(without), "ratio")
			b.ReportMetric(float64((with-without).Nanoseconds())/1e3/float64(n), "ask-µs/call")
			b.ReportMetric(float64(n)/with.Seconds(), "calls/s")
			b.ReportMetric(float64(n)/without.Seconds(), "calls/s-alone")
		})
	}
}

// startAlone starts nginx without quotad and returns its URL.
func startAlone(b *testing.B, api string) string {
	b.Helper()
	return testenv.OwnProgram(b, testenv.Program{
		Name:    nginx.pkg,
		Package: nginx.pkg,
		Image:   nginx.image,
		Files: func(_ string, port int) map[string]string {
			conf := fmt.Sprintf(aloneConf, strings.TrimPrefix(api, "http://"), port)
			return map[string]string{"nginx.conf": nginx.extra["nginx.conf"], "conf.d/alone.conf": conf}
		},
		Argv:  func(dir string, _ int) []string { return nginx.argv(dir) },
		Ready: routes,
	}).URL()
}

// load makes n calls over as many connections as there are callers, and returns how long that took.
func load(b *testing.B, url, key string, callers, n int) time.Duration {
	b.Helper()
	client := &http.Client{Timeout: patience, Transport: &http.Transport{MaxIdleConnsPerHost: callers}}
	defer client.CloseIdleConnections()
	var made, failed atomic.Int64
	var wg sync.WaitGroup
	began := time.Now()
	for range callers {
		wg.Go(func() {
			for made.Add(1) <= int64(n) {
				if err := get(client, url, key); err != nil {
					failed.Add(1)
					b.Log(err)
				}
			}
		})
	}
	wg.Wait()
	if failed.Load() > 0 {
		b.Fatalf("%d of %d calls failed", failed.Load(), n)
	}
	return time.Since(began)
}

func get(client *http.Client, url, key string) error {
	req, err := http.NewRequest(http.MethodGet, url+"/v1/things", nil)
	if err != nil {
		return err
	}
	req.Header.Set("X-API-Key", key)
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if _, err := io.Copy(io.Discard, res.Body); err != nil || res.StatusCode != http.StatusOK {
		return fmt.Errorf("%s, %w", res.Status, err)
	}
	return nil
}
