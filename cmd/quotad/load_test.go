package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/quota"
	"github.com/quotad/quotad/internal/ratelimit"
)

// loadServe reads a configuration of serve from a command line, an environment and the text of a file ("" is none).
func loadServe(t *testing.T, args, environ []string, file string) (Config, error) {
	t.Helper()
	return loadFor(t, forServe, args, environ, file)
}

func loadFor(t *testing.T, command command, args, environ []string, file string) (Config, error) {
	t.Helper()
	if file != "" {
		path := filepath.Join(t.TempDir(), "quotad.yaml")
		if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, "--config", path)
	}
	flags := pflag.NewFlagSet("quotad", pflag.ContinueOnError)
	command.addFlags(flags)
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	return load(command, flags, environ)
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	got, err := loadServe(t, nil, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	want := Config{
		Listen: ":8080", AdminListen: "127.0.0.1:8081",
		UpstreamTimeout: time.Minute, GatewayWaiting: 10_000, GRPCTrust: "keys",
		Database: "sqlite://quotad-data/quotad.db", RedisPrefix: "q:",
		RedisMode: ratelimit.Standalone, OnStoreFailure: quotad.FailLocal, StoreBudget: 100 * time.Millisecond, MemoryCounters: 1_000_000,
		CacheSize: 50_000, CacheTTL: time.Minute, CacheStale: 10 * time.Minute,
		UnknownCacheSize: 10_000, UnknownCacheTTL: 2 * time.Second,
		IPv6Prefix: 64, IETFHeaders: true,
		ShutdownDelay: time.Second, ShutdownGrace: 25 * time.Second,
		LogLevel: slog.LevelInfo, LogFormat: logJSON,
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(Config{})); diff != "" {
		t.Errorf("defaults (-want +got):\n%s", diff)
	}
}

func TestFlagsOverEnvironmentOverFileOverDefaults(t *testing.T) {
	t.Parallel()
	file := "cache-ttl: 10s\ncache-size: 10\nredis: redis://h:1\nstore-budget: 10ms\ntrusted-proxies: [10.0.0.0/8, 192.0.2.7]\nietf-headers: false\n"
	environ := []string{"QUOTAD_CACHE_TTL=20s", "QUOTAD_CACHE_SIZE=20", "QUOTAD_LOG_LEVEL=", "PATH=/bin"}
	got, err := loadServe(t, []string{"--cache-ttl=30s"}, environ, file)
	if err != nil {
		t.Fatal(err)
	}
	type part struct {
		TTL     time.Duration
		Size    int
		Budget  time.Duration
		Stale   time.Duration
		Level   slog.Level
		IETF    bool
		Proxies string
	}
	want := part{30 * time.Second, 20, 10 * time.Millisecond, 10 * time.Minute, slog.LevelInfo, false, "[10.0.0.0/8 192.0.2.7/32]"}
	if diff := cmp.Diff(want, part{got.CacheTTL, got.CacheSize, got.StoreBudget, got.CacheStale, got.LogLevel, got.IETFHeaders,
		fmt.Sprint(got.TrustedProxies)}); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestAllRefusalsAtOnce(t *testing.T) {
	t.Parallel()
	file := `listen: 8080
nonsense: 1
# a comment
admin-token: abc
cors-origins:
  inner: map
shutdown-grace: 30
redis:
`
	environ := []string{"QUOTAD_CACHE_SIZE=0", "QUOTAD_ON_STORE_FAILURE=ignore", "QUOTAD_ADMIN_TOKEN=tooshort"}
	_, err := loadServe(t, []string{"--cache-ttl", "2h", "--ipv6-prefix=129"}, environ, file)
	want := `the configuration is refused:
  quotad.yaml:2: nonsense: is not an option
  quotad.yaml:4: admin-token: is not taken from a file: set QUOTAD_ADMIN_TOKEN
  quotad.yaml:1: listen: must be host:port or :port, not "8080"
  quotad.yaml:8: redis: has no value
  QUOTAD_ADMIN_TOKEN: must be 16 to 512 printable ASCII characters without spaces (its value is not shown)
  QUOTAD_ON_STORE_FAILURE: must be local, open or closed, not "ignore"
  QUOTAD_CACHE_SIZE: must be a whole number, 1 to 10000000, not "0"
  --cache-ttl: must be a duration with its unit, 1s to 1h, not "2h"
  --ipv6-prefix: must be a whole number, 48 to 128, not "129"
  quotad.yaml:5: cors-origins: must be a value or a list of values
  quotad.yaml:7: shutdown-grace: must be a duration with its unit, 1s to 1h, not "30"`
	if diff := cmp.Diff(want, fmt.Sprint(err)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestFileFaults(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ file, want string }{
		"not a mapping": {"- listen", "quotad.yaml: line 1: must be lines of the form option: value"},
		"twice":         {"listen: :1\nredis-prefix: a\nlisten: :2", "quotad.yaml: line 3: listen stands on line 1 already"},
		"bad YAML":      {"listen: :1\nredis: [", "quotad.yaml: yaml: line 2: did not find expected node content"},
		"two documents": {"listen: :1\n---\nlisten: :2", "quotad.yaml: line 2: only one document is read"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := loadServe(t, nil, nil, c.file)
			if got := fmt.Sprint(err); got != "the configuration is refused:\n  "+c.want {
				t.Errorf("got %s\nwant %s", got, c.want)
			}
		})
	}
	if _, err := loadServe(t, nil, nil, "# nothing\n"); err != nil {
		t.Errorf("a file of comments: %v", err)
	}
	if _, err := loadServe(t, []string{"--config", "no/such/file.yaml"}, nil, ""); err == nil || !strings.Contains(err.Error(), "--config: open no/such/file.yaml") {
		t.Errorf("a missing file: %v", err)
	}
}

// Passwords stand in addresses, and people mistype addresses.
func TestSecretsAreNeverRepeated(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ option, env, value string }{
		{"database", "QUOTAD_DATABASE_URL", "postgres://quotad:s3cr%t@db:5432/quotad"},
		{"database", "QUOTAD_DATABASE_URL", "mysql://quotad:s3cret@db/quotad"},
		{"database", "QUOTAD_DATABASE_URL", "host=db password=s3cret"},
		{"database-direct", "QUOTAD_DATABASE_DIRECT_URL", "sqlite://s3cret"},
		{"redis", "QUOTAD_REDIS_URL", "redis://:s3cr#t@redis:6379/0"},
		{"redis", "QUOTAD_REDIS_URL", "redis://:s3cret@redis:6379/zero"},
		{"redis", "QUOTAD_REDIS_URL", "s3cret"},
		{"admin-token", "QUOTAD_ADMIN_TOKEN", "s3cret s3cret s3cret"},
	} {
		attempts := map[string]func() error{
			"environment": func() error { _, err := loadServe(t, nil, []string{c.env + "=" + c.value}, ""); return err },
			"file":        func() error { _, err := loadServe(t, nil, nil, c.option+": '"+c.value+"'"); return err },
		}
		if c.option != "admin-token" {
			attempts["flag"] = func() error { _, err := loadServe(t, []string{"--" + c.option, c.value}, nil, ""); return err }
		}
		for from, attempt := range attempts {
			err := attempt()
			if refused := new(refusals); !errors.As(err, refused) {
				t.Errorf("%s %s: accepted", c.option, from)
				continue
			}
			if strings.Contains(err.Error(), "s3cr") {
				t.Errorf("%s from %s is repeated: %v", c.option, from, err)
			}
			if !strings.Contains(err.Error(), c.option) && !strings.Contains(err.Error(), c.env) {
				t.Errorf("%s from %s is not named: %v", c.option, from, err)
			}
		}
	}

	c := Config{Database: "postgres://u:s3cret@db/q", AdminToken: "s3cret"}
	var log strings.Builder
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "config", c, "url", c.Database)
	for _, printed := range []string{fmt.Sprint(c), fmt.Sprintf("%+v", c), fmt.Sprintf("%#v", c), fmt.Sprintf("%q", c.Database), log.String()} {
		if strings.Contains(printed, "s3cret") {
			t.Errorf("printed: %s", printed)
		}
	}
}

func TestUnknownEnvironmentIsNamed(t *testing.T) {
	t.Parallel()
	environ := []string{
		"QUOTAD_LISTENN=:1", "QUOTAD_ADMIN_URL=http://x", "QUOTAD_SERVICE_HOST=10.0.0.1",
		"QUOTAD_PORT_8080_TCP=tcp://10.0.0.1:8080", "OTHER=1",
	}
	c, err := loadServe(t, nil, environ, "")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"QUOTAD_LISTENN"}, c.unknown); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// The address of Redis is read as redis-mode says.
func TestRedisModes(t *testing.T) {
	t.Parallel()
	one, cluster, sentinels := "redis://h:1/2", "redis://h:1?addr=h:2&addr=h:3", "redis://h:1/0?addr=h:2&master_name=quotad"
	for mode, takes := range map[string]map[string]bool{
		"standalone": {one: true, cluster: false, sentinels: false},
		"cluster":    {one: true, cluster: true, sentinels: false},
		"sentinel":   {one: false, cluster: false, sentinels: true},
	} {
		for url, want := range takes {
			_, err := loadServe(t, []string{"--redis", url, "--redis-mode", mode}, nil, "")
			if got := err == nil; got != want {
				t.Errorf("%s as %s: %v, want %v", url, mode, err, want)
			}
		}
	}
}

func TestFieldsTogether(t *testing.T) {
	t.Parallel()
	_, err := loadServe(t, []string{"--listen=:9000", "--admin-listen=:9000"}, []string{"QUOTAD_DATABASE_DIRECT_URL=postgres://db/q"}, "")
	want := `the configuration is refused:
  QUOTAD_DATABASE_DIRECT_URL: has no meaning where database is a sqlite file
  --admin-listen: must not be where the metered API listens`
	if diff := cmp.Diff(want, fmt.Sprint(err)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// What an option says of something that is not there is nobody's wish.
func TestOptionsThatDoNothingAreRefused(t *testing.T) {
	t.Parallel()
	for said, without := range map[string]string{
		"upstream=http://a": "gateway-listen", "upstream-timeout=1m": "gateway-listen", "gateway-waiting=10000": "gateway-listen",
		"grpc-trust=keys": "grpc-listen", "redis-mode=standalone": "redis", "redis-prefix=q:": "redis", "on-store-failure=closed": "redis", "store-budget=1s": "redis",
	} {
		name, value, _ := strings.Cut(said, "=")
		of := options()[slices.IndexFunc(options(), func(o option) bool { return o.name == name })]
		present := map[string][]string{
			"gateway-listen": {"--gateway-listen=:1", "--upstream=http://a"}, "grpc-listen": {"--grpc-listen=:1"}, "redis": {"--redis=redis://h:1"},
		}[without]
		for where, say := range map[string]func(args ...string) (Config, error){
			"--" + name:              func(args ...string) (Config, error) { return loadServe(t, append(args, "--"+said), nil, "") },
			of.env:                   func(args ...string) (Config, error) { return loadServe(t, args, []string{of.env + "=" + value}, "") },
			"quotad.yaml:1: " + name: func(args ...string) (Config, error) { return loadServe(t, args, nil, name+": "+strconv.Quote(value)) },
		} {
			want := "the configuration is refused:\n  " + where + ": has no meaning without " + without
			if _, err := say(); fmt.Sprint(err) != want {
				t.Errorf("got %v, want %s", err, want)
			}
			if _, err := say("--" + without + "="); fmt.Sprint(err) != want {
				t.Errorf("with an empty one: got %v, want %s", err, want)
			}
			if _, err := say(present...); err != nil {
				t.Errorf("%s beside %s: %v", where, without, err)
			}
		}
	}
	for _, o := range options() {
		if o.needs != "" && !slices.ContainsFunc(options(), func(other option) bool { return other.name == o.needs }) {
			t.Errorf("%s needs %s, which is no option", o.name, o.needs)
		}
	}
	// The file belongs to the node: what another command does not read of it may stand in the environment.
	if _, err := loadFor(t, forMigrate, nil, nil, "upstream: http://a\nstore-budget: 1s\n"); err != nil {
		t.Error(err)
	}
}

// Each option fills a field of its own, and its default is one that it accepts.
func TestOptionsAreSound(t *testing.T) {
	t.Parallel()
	names := map[string]bool{}
	for _, o := range options() {
		if names[o.name] {
			t.Errorf("%s: twice", o.name)
		}
		names[o.name] = true
		if o.standard != "" && !o.field.set(new(Config), o.standard) {
			t.Errorf("%s: its default is refused", o.name)
		}
		if want := "QUOTAD_" + strings.ToUpper(strings.ReplaceAll(o.name, "-", "_")); o.env != want {
			switch o.name {
			case "database", "database-direct", "redis", "server", "token": // as the world calls them
			default:
				t.Errorf("%s: the variable is %s, not %s", o.name, o.env, want)
			}
		}
	}
}

func TestRates(t *testing.T) {
	t.Parallel()
	minute := func(units int64) quota.Rate { return quota.Rate{Units: units, Window: time.Minute} }
	for _, c := range []struct {
		args          []string
		calls, failed quota.Rate
	}{
		{nil, quota.Rate{}, quota.Rate{}},
		{[]string{"--ip-limit=300/60"}, minute(300), minute(30)},
		{[]string{"--ip-limit=301/60"}, minute(301), minute(31)},
		{[]string{"--ip-limit=1/60"}, minute(1), minute(1)},
		{[]string{"--ip-limit=1000000000/86400"}, quota.Rate{Units: 1_000_000_000, Window: 24 * time.Hour}, quota.Rate{Units: 100_000_000, Window: 24 * time.Hour}},
		{[]string{"--ip-limit=300/60", "--failed-key-limit=off"}, minute(300), quota.Rate{}},
		{[]string{"--failed-key-limit=7/60"}, quota.Rate{}, minute(7)},
		{[]string{"--ip-limit=off"}, quota.Rate{}, quota.Rate{}},
	} {
		got, err := loadServe(t, c.args, nil, "")
		if err != nil {
			t.Fatal(err)
		}
		if got.IPLimit != c.calls || got.failedKeys() != c.failed {
			t.Errorf("%v: %v and %v, want %v and %v", c.args, got.IPLimit, got.failedKeys(), c.calls, c.failed)
		}
	}
	for _, text := range []string{"300", "0/60", "300/0", "-1/60", "+1/60", "1e3/60", "0.5/60", "300/60s", "300/60/1", "300 /60", "1000000001/60", "1/86401", "OFF", "/", "99999999999999999999/60"} {
		_, err := loadServe(t, []string{"--ip-limit=" + text}, nil, "")
		want := "the configuration is refused:\n  --ip-limit: must be calls/seconds such as 300/60, at most 1000000000 in at most 86400 seconds, or off, not \"" + text + `"`
		if got := fmt.Sprint(err); got != want {
			t.Errorf("got %s\nwant %s", got, want)
		}
	}
}
