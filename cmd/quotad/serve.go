package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/quotad/quotad"
	"github.com/quotad/quotad/internal/admin"
	"github.com/quotad/quotad/internal/admintokens"
	"github.com/quotad/quotad/internal/apikeys"
	"github.com/quotad/quotad/internal/database"
	"github.com/quotad/quotad/internal/envoy"
	"github.com/quotad/quotad/internal/events"
	"github.com/quotad/quotad/internal/httpapi"
	"github.com/quotad/quotad/internal/idempotency"
	"github.com/quotad/quotad/internal/quota"
	"github.com/quotad/quotad/internal/ratelimit"
	"github.com/quotad/quotad/internal/tiers"
	"github.com/quotad/quotad/migrations"
)

func (p *program) serveCommand() *cobra.Command {
	var withDemo bool
	c := p.does(&cobra.Command{
		Use:   "serve",
		Short: "Run a node",
		Long: "Run a node. With no configuration it keeps everything in a SQLite file and counts in this process; given a\n" +
			"Postgres and a Redis it is one of as many nodes as you like.",
	}, forServe, func(c *cobra.Command, config Config, _ []string) error {
		return p.serve(c.Context(), config, withDemo)
	})
	c.Flags().BoolVar(&withDemo, "demo", false,
		"print a call that works: an empty store gets a demo tier, tenant and key, that of an earlier demo a new secret\n"+
			"for its key, whose old one ends; any other store is left as it is")
	return c
}

// serve runs a node until ctx ends, then ends it gracefully. A nil error means that nothing was left undone.
func (p *program) serve(ctx context.Context, config Config, withDemo bool) error {
	logger := newLogger(p.stderr, config)
	for _, variable := range config.unknown {
		logger.Warn("environment variable is not known", "name", variable)
	}
	n, err := open(ctx, config, logger)
	if err != nil {
		return err
	}
	minted, err := n.bootstrap(ctx)
	if err == nil {
		err = n.welcome(p.stdout, minted)
	}
	if err == nil && withDemo {
		err = n.demo(ctx, p.stdout, minted)
	}
	if err != nil {
		return errors.Join(err, n.close())
	}
	logger.Info("serving", append([]any{"version", thisBuild().version, "listen", n.at.metered.String(), "admin_listen", n.at.admin.String(),
		"database", string(n.db.Engine()), "counters", n.counters()}, n.optional()...)...)
	n.warn(ctx)
	if p.started != nil {
		p.started(n.at)
	}
	return n.run(ctx, p.hurry)
}

// bootstrap sees to it that somebody can come in. What is wrong with the given token is said of the variable that gave it.
func (n *node) bootstrap(ctx context.Context) (minted string, err error) {
	minted, err = n.tokens.EnsureBootstrap(ctx, n.config.AdminToken.reveal())
	var refused *quotad.Error
	if errors.As(err, &refused) && refused.Fields.Has("admin_token") {
		return "", fmt.Errorf("QUOTAD_ADMIN_TOKEN %s", refused.Fields["admin_token"])
	}
	return minted, err
}

// addresses are where a node listens.
type addresses struct {
	metered, admin net.Addr
	gateway, grpc  net.Addr // nil without one
}

// node is all parts of a running quotad.
type node struct {
	config Config
	logger *slog.Logger

	db     *database.DB
	redis  redis.UniversalClient // nil without one
	log    *events.Log
	tiers  *tiers.Store
	keys   *apikeys.Store
	tokens *admintokens.Store

	touches  *apikeys.Touches
	answers  *idempotency.Store
	failover *ratelimit.Failover // nil without Redis
	watch    *watch

	api     *httpapi.Server
	metered *listener
	admin   *listener
	gateway *gateway      // nil without one
	grpc    *grpcListener // nil without one
	at      addresses
}

// open makes a node from its configuration: this is where everything is wired. The schema is brought up before anything
// is served, and nothing runs yet.
func open(ctx context.Context, config Config, logger *slog.Logger) (_ *node, err error) {
	if err := migrations.Up(ctx, config.direct()); err != nil {
		return nil, err
	}
	registry := prometheus.NewRegistry()
	n := &node{config: config, logger: logger}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.close())
		}
	}()

	// What is kept.
	n.db, err = database.Open(ctx, config.Database.reveal(), database.Options{})
	if err != nil {
		return nil, err
	}
	n.log = events.NewLog(n.db, events.Options{Logger: logger, ListenURL: config.DatabaseDirect.reveal()})
	n.tiers = tiers.NewStore(n.db, n.log, tiers.Options{})
	n.keys = apikeys.NewStore(n.db, n.log, apikeys.Options{})
	n.tokens = admintokens.NewStore(n.db, n.log, admintokens.Options{})
	n.answers = idempotency.NewStore(n.db, idempotency.Options{})
	n.touches = apikeys.NewTouches(n.keys, apikeys.TouchesOptions{Logger: logger})

	// What is counted.
	memory := ratelimit.NewMemory(ratelimit.MemoryOptions{MaxCounters: config.MemoryCounters})
	var limiter quota.Limiter = memory
	if config.Redis != "" {
		n.redis, err = ratelimit.Connect(config.Redis.reveal(), ratelimit.ConnectOptions{
			Mode:    config.RedisMode,
			Timeout: max(config.StoreBudget, 250*time.Millisecond), // a connection must not give up before the budget does
		})
		if err != nil {
			return nil, err
		}
		n.failover = ratelimit.NewFailover(ratelimit.NewRedis(n.redis, ratelimit.RedisOptions{Prefix: config.RedisPrefix, Timeout: config.StoreBudget}), memory,
			ratelimit.FailoverOptions{Budget: config.StoreBudget, Logger: logger, Registerer: registry})
		limiter = n.failover
	}

	// The one question.
	checker := quota.New(
		quota.Sources{Keys: n.keys, Tenants: n.tiers, Tiers: n.tiers, RouteGroups: n.tiers, Tokens: n.tokens},
		limiter, quota.Options{
			CacheSize: config.CacheSize, UnknownSize: config.UnknownCacheSize, CacheTTL: config.CacheTTL,
			UnknownTTL: config.UnknownCacheTTL, CacheStale: max(config.CacheStale, time.Nanosecond),
			IPv6Prefix: config.IPv6Prefix, IPLimit: config.IPLimit, FailedKeyLimit: config.failedKeys(), OnStoreFailure: config.OnStoreFailure,
			Touch: n.touches, Logger: logger, Registerer: registry,
		})
	n.log.Subscribe(func(notice events.Notice) { checker.Invalidate(notice.Resource, notice.ID) }, checker.Resync)

	// Its doors.
	if n.watch, err = newWatch(ctx, n); err != nil {
		return nil, err
	}
	n.api = httpapi.New(checker, httpapi.Options{
		Logger: logger, TrustedProxies: config.TrustedProxies, OmitIETFHeaders: !config.IETFHeaders,
		CORSOrigins: config.CORSOrigins, Ready: n.watch.ready, Registerer: registry,
	})
	operators := admin.New(
		admin.Stores{Tiers: n.tiers, Keys: n.keys, AdminTokens: n.tokens, Events: n.log, Idempotency: n.answers},
		admin.Options{
			Logger: logger, TrustedProxies: config.TrustedProxies, Health: n.api.Health(), Ready: n.api.Ready(),
			Metrics: promhttp.HandlerFor(registry, promhttp.HandlerOpts{ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelError)}),
		})
	if n.metered, err = listen(config.Listen, "listen", "QUOTAD_LISTEN", n.api.HTTPServer()); err != nil {
		return nil, fmt.Errorf("listen for the metered API: %w", err)
	}
	if n.admin, err = listen(config.AdminListen, "admin-listen", "QUOTAD_ADMIN_LISTEN", operators.HTTPServer()); err != nil {
		return nil, fmt.Errorf("listen for the admin API: %w", err)
	}
	n.at = addresses{metered: n.metered.addr(), admin: n.admin.addr()}
	if config.GatewayListen != "" {
		if n.gateway, err = openGateway(n, checker, registry); err != nil {
			return nil, err
		}
		n.at.gateway = n.gateway.addr()
	}
	if config.GRPCListen != "" {
		if n.grpc, err = openGRPC(n, checker, registry); err != nil {
			return nil, err
		}
		n.at.grpc = n.grpc.addr()
	}
	n.register(registry, memory)
	return n, nil
}

// warn logs what a node can start with and its operator should know.
func (n *node) warn(ctx context.Context) {
	if n.grpc != nil && n.config.GRPCTrust == envoy.TrustTenants {
		n.logger.Warn("whoever reaches the gRPC listener may spend what is any tenant's", "grpc_listen", n.at.grpc.String())
	}
	if n.redis == nil {
		if n.db.Engine() == database.Postgres {
			n.logger.Warn("calls are counted in this process: each of several nodes admits the whole limit; set redis")
		}
		return
	}
	ctx, cancel := context.WithTimeout(ctx, n.config.StoreBudget)
	defer cancel()
	if err := n.redis.Ping(ctx).Err(); err != nil {
		n.logger.Warn("redis does not answer: failure policies answer in its place", "error", err)
	}
}

// counters names where calls are counted.
func (n *node) counters() string {
	if n.redis != nil {
		return "redis"
	}
	return "memory"
}

// optional names the listeners that are there only where they are asked for, as the log does.
func (n *node) optional() []any {
	var named []any
	if n.gateway != nil {
		named = append(named, "gateway_listen", n.at.gateway.String())
	}
	if n.grpc != nil {
		named = append(named, "grpc_listen", n.at.grpc.String())
	}
	return named
}

// close gives up what open took, where nothing runs any more.
func (n *node) close() error {
	var errs []error
	if n.metered != nil {
		errs = append(errs, n.metered.close())
	}
	if n.admin != nil {
		errs = append(errs, n.admin.close())
	}
	if n.gateway != nil {
		errs = append(errs, n.gateway.close())
	}
	if n.grpc != nil {
		errs = append(errs, n.grpc.close())
	}
	if n.redis != nil {
		errs = append(errs, n.redis.Close())
	}
	if n.db != nil {
		errs = append(errs, n.db.Close())
	}
	return errors.Join(errs...)
}
