package main

import (
	"net/netip"
	"time"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/envoy"
	"github.com/quotad/quotad/internal/quota"
	"github.com/quotad/quotad/internal/ratelimit"
)

// option is one thing that a command can be told. Flags, environment variables, keys of the configuration file, the help
// text and the table in docs/configuration.md all come from options.
type option struct {
	// name is the flag and the key of the file; env the environment variable.
	name, env string
	// standard is the text that holds when nobody says anything; "" is nothing at all.
	standard string
	// help is one line that begins in lower case and leaves out the default and what is accepted.
	help string
	// field is where the value goes, and what it must be.
	field field
	// needs is the option without which this one says nothing.
	needs string
	// commands are those that read it.
	commands command
	// noFlag and noFile keep it off the command line and out of the file.
	noFlag, noFile bool
}

// command is a set of commands.
type command int

const (
	forServe command = 1 << iota
	forMigrate
	forKeys

	forServer = forServe | forMigrate // what belongs to a node, and so into its file
)

// of returns the options of the commands.
func (c command) options() []option {
	var of []option
	for _, o := range options() {
		if o.commands&c != 0 {
			of = append(of, o)
		}
	}
	return of
}

// options lists them in the order in which people read of them.
func options() []option {
	return []option{
		{
			name: "listen", env: "QUOTAD_LISTEN", standard: ":8080", commands: forServe,
			help:  "where the metered API listens",
			field: address(func(c *Config) *string { return &c.Listen }),
		}, {
			name: "admin-listen", env: "QUOTAD_ADMIN_LISTEN", standard: "127.0.0.1:8081", commands: forServe,
			help:  "where the admin API, the metrics and openapi.yaml are served",
			field: address(func(c *Config) *string { return &c.AdminListen }),
		}, {
			name: "gateway-listen", env: "QUOTAD_GATEWAY_LISTEN", commands: forServe,
			help:  "where the gateway listens, which passes on to the upstream what is admitted; off without it",
			field: address(func(c *Config) *string { return &c.GatewayListen }),
		}, {
			name: "upstream", env: "QUOTAD_UPSTREAM", needs: "gateway-listen", commands: forServe,
			help:  "the service behind the gateway; those of some route groups may go to another",
			field: upstreams(func(c *Config) *string { return &c.Upstream }),
		}, {
			name: "upstream-timeout", env: "QUOTAD_UPSTREAM_TIMEOUT", standard: "1m", needs: "gateway-listen", commands: forServe,
			help:  "how long the upstream may take for the headers of its answer, once it has all of the request",
			field: duration(func(c *Config) *time.Duration { return &c.UpstreamTimeout }, 10*time.Millisecond, time.Hour),
		}, {
			name: "gateway-waiting", env: "QUOTAD_GATEWAY_WAITING", standard: "10000", needs: "gateway-listen", commands: forServe,
			help:  "the most calls that the gateway holds back at once for leaky buckets, which refuse while so many wait; of one tenant at most as many as are free for others",
			field: whole(func(c *Config) *int { return &c.GatewayWaiting }, 1, 1_000_000),
		}, {
			name: "grpc-listen", env: "QUOTAD_GRPC_LISTEN", commands: forServe,
			help:  "where Envoy asks over gRPC: RateLimitService, ext_authz and grpc.health.v1; for your own Envoys only; off without it",
			field: address(func(c *Config) *string { return &c.GRPCListen }),
		}, {
			name: "grpc-trust", env: "QUOTAD_GRPC_TRUST", standard: string(envoy.TrustKeys), needs: "grpc-listen", commands: forServe,
			help:  "what an Envoy without a service token may do there: nothing, present API keys and addresses, or name tenants too",
			field: choice(func(c *Config) *envoy.Trust { return &c.GRPCTrust }, envoy.Trusts...),
		}, {
			name: "database", env: "QUOTAD_DATABASE_URL", standard: "sqlite://quotad-data/quotad.db", commands: forServer,
			help:  "the database",
			field: databaseURL(func(c *Config) *hidden { return &c.Database }),
		}, {
			name: "database-direct", env: "QUOTAD_DATABASE_DIRECT_URL", commands: forServer,
			help:  "the same Postgres past a pooler in transaction mode, for LISTEN and migrations",
			field: postgresURL(func(c *Config) *hidden { return &c.DatabaseDirect }),
		}, {
			// Before redis, which is read by it.
			name: "redis-mode", env: "QUOTAD_REDIS_MODE", standard: string(ratelimit.Standalone), needs: "redis", commands: forServe,
			help:  "how the servers behind the redis URL work together",
			field: choice(func(c *Config) *ratelimit.Mode { return &c.RedisMode }, ratelimit.Modes...),
		}, {
			name: "redis", env: "QUOTAD_REDIS_URL", commands: forServe,
			help:  "the counter store that nodes share; without it counters live in this process",
			field: redisURL(func(c *Config) *hidden { return &c.Redis }),
		}, {
			name: "redis-prefix", env: "QUOTAD_REDIS_PREFIX", standard: "q:", needs: "redis", commands: forServe,
			help:  "what every key in Redis begins with",
			field: keyPrefix(func(c *Config) *string { return &c.RedisPrefix }),
		}, {
			name: "admin-token", env: "QUOTAD_ADMIN_TOKEN", commands: forServe, noFlag: true, noFile: true,
			help:  "the text of the bootstrap token, an owner; a new text at a later start replaces it and ends the old one at once; without it the first start makes one and prints it once",
			field: token(func(c *Config) *hidden { return &c.AdminToken }),
		}, {
			name: "on-store-failure", env: "QUOTAD_ON_STORE_FAILURE", standard: string(quotad.FailLocal), needs: "redis", commands: forServe,
			help:  "what answers while Redis is away, where the tier does not say",
			field: choice(func(c *Config) *quotad.FailurePolicy { return &c.OnStoreFailure }, quotad.FailurePolicies...),
		}, {
			name: "store-budget", env: "QUOTAD_STORE_BUDGET", standard: "100ms", needs: "redis", commands: forServe,
			help:  "the most time that a call spends on Redis before that policy answers",
			field: duration(func(c *Config) *time.Duration { return &c.StoreBudget }, time.Millisecond, 5*time.Second),
		}, {
			name: "memory-counters", env: "QUOTAD_MEMORY_COUNTERS", standard: "1000000", commands: forServe,
			help:  "the most counters kept in this process, about 100 bytes each",
			field: whole(func(c *Config) *int { return &c.MemoryCounters }, 256, 100_000_000),
		}, {
			name: "cache-size", env: "QUOTAD_CACHE_SIZE", standard: "50000", commands: forServe,
			help:  "the most API keys, and the most tenants, remembered from the database, about 2 kB each",
			field: whole(func(c *Config) *int { return &c.CacheSize }, 1, 10_000_000),
		}, {
			name: "cache-ttl", env: "QUOTAD_CACHE_TTL", standard: "1m", commands: forServe,
			help:  "how long what is remembered is served without asking again: how late a change is seen where notifications fail",
			field: duration(func(c *Config) *time.Duration { return &c.CacheTTL }, time.Second, time.Hour),
		}, {
			name: "cache-stale", env: "QUOTAD_CACHE_STALE", standard: "10m", commands: forServe,
			help:  "how much longer it is served while the database is away",
			field: duration(func(c *Config) *time.Duration { return &c.CacheStale }, 0, 24*time.Hour),
		}, {
			name: "unknown-cache-size", env: "QUOTAD_UNKNOWN_CACHE_SIZE", standard: "10000", commands: forServe,
			help:  "the most ids remembered as unknown",
			field: whole(func(c *Config) *int { return &c.UnknownCacheSize }, 1, 10_000_000),
		}, {
			name: "unknown-cache-ttl", env: "QUOTAD_UNKNOWN_CACHE_TTL", standard: "2s", commands: forServe,
			help:  "how long an id is remembered as unknown",
			field: duration(func(c *Config) *time.Duration { return &c.UnknownCacheTTL }, 100*time.Millisecond, 2*time.Second),
		}, {
			name: "trusted-proxies", env: "QUOTAD_TRUSTED_PROXIES", commands: forServe,
			help:  "the peers whose X-Forwarded-*, X-Original-* and X-Quotad-Subject headers are believed",
			field: ranges(func(c *Config) *[]netip.Prefix { return &c.TrustedProxies }),
		}, {
			name: "ipv6-prefix", env: "QUOTAD_IPV6_PREFIX", standard: "64", commands: forServe,
			help:  "how many bits of an IPv6 address make one caller where addresses are counted",
			field: whole(func(c *Config) *int { return &c.IPv6Prefix }, 48, 128),
		}, {
			name: "ip-limit", env: "QUOTAD_IP_LIMIT", standard: "off", commands: forServe,
			help:  "the most calls of one client address before anybody is authenticated, on each node; calls with a service token that works are not counted",
			field: rate(func(c *Config, r quota.Rate) { c.IPLimit = r }),
		}, {
			name: "failed-key-limit", env: "QUOTAD_FAILED_KEY_LIMIT", commands: forServe,
			help:  "the most failed keys of one client address, on each node, after which failed ones (never those that work) are refused as 429; by default a tenth of ip-limit",
			field: rate(func(c *Config, r quota.Rate) { c.FailedKeyLimit = &r }),
		}, {
			name: "ietf-headers", env: "QUOTAD_IETF_HEADERS", standard: "true", commands: forServe,
			help:  "whether RateLimit and RateLimit-Policy are sent beside the X-RateLimit headers",
			field: onOff(func(c *Config) *bool { return &c.IETFHeaders }),
		}, {
			name: "cors-origins", env: "QUOTAD_CORS_ORIGINS", commands: forServe,
			help:  "the origins whose pages may call the metered API",
			field: origins(func(c *Config) *[]string { return &c.CORSOrigins }),
		}, {
			name: "shutdown-delay", env: "QUOTAD_SHUTDOWN_DELAY", standard: "1s", commands: forServe,
			help:  "how long calls are still taken once readiness fails, so that balancers notice",
			field: duration(func(c *Config) *time.Duration { return &c.ShutdownDelay }, 0, 5*time.Minute),
		}, {
			name: "shutdown-grace", env: "QUOTAD_SHUTDOWN_GRACE", standard: "25s", commands: forServe,
			help:  "how long the rest of a shutdown may take before it is cut short",
			field: duration(func(c *Config) *time.Duration { return &c.ShutdownGrace }, time.Second, time.Hour),
		}, {
			name: "log-level", env: "QUOTAD_LOG_LEVEL", standard: "info", commands: forServe,
			help:  "the least level that is logged",
			field: level(),
		}, {
			name: "log-format", env: "QUOTAD_LOG_FORMAT", standard: string(logJSON), commands: forServe,
			help:  "how log lines are written on standard error",
			field: choice(func(c *Config) *logFormat { return &c.LogFormat }, logJSON, logText),
		}, {
			name: "server", env: "QUOTAD_ADMIN_URL", standard: "http://127.0.0.1:8081", commands: forKeys, noFile: true,
			help:  "where the admin API of a running quotad is",
			field: serverURL(func(c *Config) *string { return &c.Server }),
		}, {
			name: "token", env: "QUOTAD_ADMIN_TOKEN", commands: forKeys, noFile: true,
			help:  "an admin token of role operator or owner, or viewer to list",
			field: token(func(c *Config) *hidden { return &c.AdminToken }),
		},
	}
}
