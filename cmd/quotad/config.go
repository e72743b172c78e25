package main

import (
	"cmp"
	"log/slog"
	"net/netip"
	"time"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/envoy"
	"github.com/quotad/quotad/internal/quota"
	"github.com/quotad/quotad/internal/ratelimit"
)

// Config is all that a command is told. options is the table that fills it: what each field means, its bounds and its
// default stand there.
type Config struct {
	Listen, AdminListen string

	GatewayListen, Upstream string
	UpstreamTimeout         time.Duration
	GatewayWaiting          int

	GRPCListen string
	GRPCTrust  envoy.Trust

	Database, DatabaseDirect hidden
	Redis                    hidden
	RedisPrefix              string
	AdminToken               hidden

	RedisMode      ratelimit.Mode
	OnStoreFailure quotad.FailurePolicy
	StoreBudget    time.Duration
	MemoryCounters int

	CacheSize, UnknownCacheSize           int
	CacheTTL, UnknownCacheTTL, CacheStale time.Duration

	TrustedProxies []netip.Prefix
	IPv6Prefix     int
	IPLimit        quota.Rate
	FailedKeyLimit *quota.Rate // nil where nobody says; failedKeys is what holds
	IETFHeaders    bool
	CORSOrigins    []string

	ShutdownDelay, ShutdownGrace time.Duration
	LogLevel                     slog.Level
	LogFormat                    logFormat

	// Server is where the admin API of a running quotad is, for the commands that ask it.
	Server string

	// unknown are the names of environment variables that begin like ours and mean nothing to any command.
	unknown []string
}

// logFormat is how log lines are written.
type logFormat string

const (
	logJSON logFormat = "json"
	logText logFormat = "text"
)

// hidden is a text that may hold a password: however it is printed, it does not show.
type hidden string

// reveal is the only way to the text.
func (h hidden) reveal() string { return string(h) }

// String, GoString and LogValue say nothing of the text.
func (h hidden) String() string {
	if h == "" {
		return ""
	}
	return "[redacted]"
}

func (h hidden) GoString() string     { return h.String() }
func (h hidden) LogValue() slog.Value { return slog.StringValue(h.String()) }

// MarshalText keeps it out of every encoder.
func (h hidden) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

// failedKeys is the limit on the failed keys of an address: a tenth of that on its
// calls where nobody says.
func (c Config) failedKeys() quota.Rate {
	if c.FailedKeyLimit != nil {
		return *c.FailedKeyLimit
	}
	return quota.Rate{Units: (c.IPLimit.Units + 9) / 10, Window: c.IPLimit.Window}
}

// direct is the address of the database itself, for what a pooler does not pass on.
func (c Config) direct() string {
	return cmp.Or(c.DatabaseDirect, c.Database).reveal()
}
