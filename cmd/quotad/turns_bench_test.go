package main

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// rival is one of several that are asked for the same.
type rival struct {
	name     string
	conns    []*rawConn
	requests []string

	took  time.Duration
	times []time.Duration // of each request
	cpu   time.Duration   // of this process: the asking and the answering
	redis time.Duration   // of Redis
}

func newRival(b *testing.B, name, addr string, connections int, requests []string) *rival {
	r := &rival{name: name, requests: requests, conns: make([]*rawConn, connections)}
	first := dialRaw(b, addr)
	defer first.Close()
	for _, request := range requests { // every key is known before the clock starts
		if response, err := first.ask(request); err != nil || !strings.HasPrefix(response, "HTTP/1.1 200") {
			b.Fatal(response, err)
		}
	}
	for i := range r.conns {
		r.conns[i] = dialRaw(b, addr)
		b.Cleanup(func() { r.conns[i].Close() })
		if _, err := r.conns[i].ask(requests[i%len(requests)]); err != nil { // a server waits 5 s for a first request
			b.Fatal(err)
		}
	}
	return r
}

// takeTurns asks b.N requests of each rival, in short rounds by turns, so that what else the machine does slows them alike. It
// reports each, and the rate of the last as a part of the first's. redis is the processor time that Redis has used.
func takeTurns(b *testing.B, redis func() time.Duration, rivals ...*rival) {
	b.Helper()
	const round = 2000
	for left := b.N; left > 0 && !b.Failed(); left -= round {
		for _, r := range rivals {
			ofRedis, ours := redis(), processorTime()
			r.ask(b, min(round, left))
			r.cpu += processorTime() - ours
			r.redis += redis() - ofRedis
		}
	}
	if b.Failed() {
		return
	}
	for _, r := range rivals {
		slices.Sort(r.times)
		µs := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 }
		b.ReportMetric(float64(b.N)/r.took.Seconds(), r.name+"-answers/s")
		b.ReportMetric(µs(r.times[b.N/2]), r.name+"-p50-µs")
		b.ReportMetric(µs(r.times[b.N*99/100]), r.name+"-p99-µs")
		b.ReportMetric(µs(r.cpu)/float64(b.N), r.name+"-cpu-µs")
		if r.redis > 0 {
			b.ReportMetric(µs(r.redis)/float64(b.N), r.name+"-redis-µs")
		}
	}
	b.ReportMetric(rivals[0].took.Seconds()/rivals[len(rivals)-1].took.Seconds(), "of-bare")
	b.ReportMetric(0, "ns/op") // of all together it says nothing
}

// ask asks so many requests over all connections at once.
func (r *rival) ask(b *testing.B, count int) {
	var left atomic.Int64
	left.Store(int64(count))
	times := make([][]time.Duration, len(r.conns))
	begun := time.Now()
	var all sync.WaitGroup
	for i, c := range r.conns {
		all.Go(func() {
			for left.Add(-1) >= 0 {
				asked := time.Now()
				if response, err := c.ask(r.requests[rand.IntN(len(r.requests))]); err != nil || !strings.HasPrefix(response, "HTTP/1.1 200") {
					b.Error(fmt.Sprint(response, err))
					return
				}
				times[i] = append(times[i], time.Since(asked))
			}
		})
	}
	all.Wait()
	r.took += time.Since(begun)
	r.times = append(r.times, slices.Concat(times...)...)
}

// redisTime returns what tells the processor time that the Redis among the stores has used: none, where there is no Redis.
func redisTime(b *testing.B, stores []string) func() time.Duration {
	b.Helper()
	for _, variable := range stores {
		url, ok := strings.CutPrefix(variable, "QUOTAD_REDIS_URL=")
		if !ok {
			continue
		}
		options, err := redis.ParseURL(url)
		if err != nil {
			b.Fatal(err)
		}
		client := redis.NewClient(options)
		b.Cleanup(func() { client.Close() })
		return func() (used time.Duration) {
			info, err := client.InfoMap(context.Background(), "cpu").Result()
			if err != nil {
				b.Fatal(err)
			}
			for _, kind := range []string{"used_cpu_user", "used_cpu_sys"} {
				s, err := strconv.ParseFloat(info["CPU"][kind], 64)
				if err != nil {
					b.Fatal(err)
				}
				used += time.Duration(s * float64(time.Second))
			}
			return used
		}
	}
	return func() time.Duration { return 0 }
}

// rawConn speaks just enough HTTP/1.1 to cost little beside what is measured.
type rawConn struct {
	net.Conn
	r *bufio.Reader
}

func dialRaw(b *testing.B, addr string) *rawConn {
	b.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		b.Fatal(err)
	}
	return &rawConn{c, bufio.NewReader(c)}
}

func (c *rawConn) ask(request string) (string, error) {
	if _, err := c.Write([]byte(request)); err != nil {
		return "", err
	}
	var response strings.Builder
	length := 0
	for {
		line, err := c.r.ReadString('\n')
		if err != nil {
			return "", err
		}
		response.WriteString(line)
		if line == "\r\n" {
			break
		}
		if v, ok := strings.CutPrefix(line, "Content-Length: "); ok {
			length, _ = strconv.Atoi(strings.TrimSpace(v))
		}
	}
	body := make([]byte, length)
	for read := 0; read < length; {
		n, err := c.r.Read(body[read:])
		if err != nil {
			return "", err
		}
		read += n
	}
	response.Write(body)
	return response.String(), nil
}
