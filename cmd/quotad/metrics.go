package main

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/quotad/quotad/internal/ratelimit"
)

// register adds what no room measures by itself: the process, the build, the pools and the listeners.
func (n *node) register(r *prometheus.Registry, memory *ratelimit.Memory) {
	b := thisBuild()
	r.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		gauge("quotad_build_info", "1, with what this program was made from.",
			prometheus.Labels{"version": b.version, "commit": b.commit, "go": b.goVersion}, func() float64 { return 1 }),
		gauge("quotad_ready", "Whether /readyz says that calls may be sent here.", nil, n.readyGauge),
		gauge("quotad_listen_connected", "Whether notices of changes at other nodes arrive.", nil,
			func() float64 { return truth(n.log.Connected()) }),
		gauge("quotad_last_uses_pending", "Keys whose last use is yet to be written.", nil,
			func() float64 { return float64(n.touches.Pending()) }),
		gauge("quotad_memory_counters", "Counters kept in this process.", nil,
			func() float64 { return float64(memory.Len()) }),
		counter("quotad_memory_counters_evicted_total", "Counters in use that gave way to new ones at the bound, --memory-counters.", nil,
			func() float64 { return float64(memory.Evicted()) }),
	)
	listeners := map[string]*listener{"metered": n.metered, "admin": n.admin}
	if n.gateway != nil {
		listeners["gateway"] = n.gateway.listener
	}
	for name, l := range listeners {
		r.MustRegister(gauge("quotad_http_in_flight", "Requests being answered, by listener.",
			prometheus.Labels{"listener": name}, func() float64 { return float64(l.inFlight.Load()) }))
	}
	if n.grpc != nil {
		r.MustRegister(gauge("quotad_grpc_in_flight", "Calls being answered over gRPC.", nil, func() float64 { return float64(n.grpc.InFlight()) }))
	}
	n.registerDatabase(r)
	if n.redis != nil {
		n.registerRedis(r)
	}
}

func (n *node) registerDatabase(r *prometheus.Registry) {
	const connections = "Connections to the database, by state; those of state max are the most that there can be."
	for state, of := range map[string]func() int{
		"max":    func() int { return n.db.Stats().Max },
		"in_use": func() int { return n.db.Stats().InUse },
		"idle":   func() int { return n.db.Stats().Idle },
	} {
		r.MustRegister(gauge("quotad_database_connections", connections, prometheus.Labels{"state": state},
			func() float64 { return float64(of()) }))
	}
	r.MustRegister(
		counter("quotad_database_waits_total", "Times that a connection to the database had to be waited for.", nil,
			func() float64 { return float64(n.db.Stats().Waits) }),
		counter("quotad_database_wait_seconds_total", "How long connections to the database were waited for.", nil,
			func() float64 { return n.db.Stats().Waited.Seconds() }),
	)
}

func (n *node) registerRedis(r *prometheus.Registry) {
	const connections = "Connections to Redis, by state; those of state max are the most that there can be."
	for state, of := range map[string]func() float64{
		"max": func() float64 { return ratelimit.DefaultPoolSize },
		"in_use": func() float64 {
			s := n.redis.PoolStats()
			return float64(s.TotalConns - min(s.IdleConns, s.TotalConns))
		},
		"idle": func() float64 { return float64(n.redis.PoolStats().IdleConns) },
	} {
		r.MustRegister(gauge("quotad_redis_connections", connections, prometheus.Labels{"state": state}, of))
	}
	r.MustRegister(
		counter("quotad_redis_pool_timeouts_total", "Times that no connection to Redis came free in time.", nil,
			func() float64 { return float64(n.redis.PoolStats().Timeouts) }),
		counter("quotad_redis_waits_total", "Times that a connection to Redis had to be waited for.", nil,
			func() float64 { return float64(n.redis.PoolStats().WaitCount) }),
		counter("quotad_redis_wait_seconds_total", "How long connections to Redis were waited for.", nil,
			func() float64 { return time.Duration(n.redis.PoolStats().WaitDurationNs).Seconds() }),
	)
}

func (n *node) readyGauge() float64 {
	return truth(!n.metered.draining.Load() && len(n.watch.ready(context.Background()).Reasons) == 0)
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func gauge(name, help string, labels prometheus.Labels, of func() float64) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: labels}, of)
}

func counter(name, help string, labels prometheus.Labels, of func() float64) prometheus.Collector {
	return prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help, ConstLabels: labels}, of)
}
