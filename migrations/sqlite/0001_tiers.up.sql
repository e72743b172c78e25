-- What each file of migrations did, written in the file's own transaction: the
-- truth that "quotad migrate up --repair" goes by.
CREATE TABLE schema_history (
	version    bigint PRIMARY KEY,
	applied_at timestamp NOT NULL
);
INSERT INTO schema_history (version, applied_at) VALUES (1, strftime('%Y-%m-%d %H:%M:%f+00:00', 'now'));

-- One row for each thing that only one writer may decide on at a time. A
-- transaction that updates the row waits for any other that did.
CREATE TABLE locks (
	name  text PRIMARY KEY,
	taken bigint NOT NULL DEFAULT 0
);
INSERT INTO locks (name) VALUES ('route_groups'), ('admin_tokens');

CREATE TABLE tiers (
	name             text PRIMARY KEY CHECK (name GLOB '[a-z0-9]*' AND name NOT GLOB '*[^a-z0-9._-]*' AND length(name) <= 63),
	description      text NOT NULL,
	rate_limit       bigint CHECK (rate_limit BETWEEN 0 AND 9007199254740991), -- NULL is unlimited
	rate_window      bigint NOT NULL CHECK (rate_window BETWEEN 1 AND 31622400), -- seconds
	algorithm        text NOT NULL CHECK (algorithm IN ('sliding_window_counter', 'sliding_window_log', 'fixed_window', 'token_bucket', 'leaky_bucket')),
	burst            bigint CHECK (burst BETWEEN 1 AND 9007199254740991), -- NULL means rate_limit
	max_delay_ms     bigint NOT NULL DEFAULT 0 CHECK (max_delay_ms BETWEEN 0 AND 60000),
	on_store_failure text CHECK (on_store_failure IN ('local', 'open', 'closed')), -- NULL is the server's own
	shadow           boolean NOT NULL CHECK (shadow IN (0, 1)),
	version          bigint NOT NULL CHECK (version >= 1),
	created_at       timestamp NOT NULL,
	updated_at       timestamp NOT NULL,
	CHECK (burst IS NULL OR (rate_limit IS NOT NULL AND algorithm IN ('token_bucket', 'leaky_bucket'))),
	CHECK (max_delay_ms = 0 OR (rate_limit IS NOT NULL AND algorithm = 'leaky_bucket'))
);

CREATE TABLE route_groups (
	name       text PRIMARY KEY CHECK (name GLOB '[a-z0-9]*' AND name NOT GLOB '*[^a-z0-9._-]*' AND length(name) <= 63),
	patterns   text NOT NULL CHECK (json_valid(patterns)), -- JSON list, the API's "match"
	cost       bigint NOT NULL CHECK (cost BETWEEN 0 AND 9007199254740991),
	auth       text NOT NULL CHECK (auth IN ('key', 'none')),
	version    bigint NOT NULL CHECK (version >= 1),
	created_at timestamp NOT NULL,
	updated_at timestamp NOT NULL,
	CHECK (name <> 'default' OR (patterns = '[]' AND auth = 'key'))
);
INSERT INTO route_groups (name, patterns, cost, auth, version, created_at, updated_at)
VALUES ('default', '[]', 1, 'key', 1, strftime('%Y-%m-%d %H:%M:%f+00:00', 'now'), strftime('%Y-%m-%d %H:%M:%f+00:00', 'now'));

-- The further limits of a tier, or the own limits of a route group.
CREATE TABLE limits (
	tier         text REFERENCES tiers (name) ON DELETE CASCADE,
	owner_group  text REFERENCES route_groups (name) ON DELETE CASCADE,
	ordinal      integer NOT NULL CHECK (ordinal >= 0), -- place in the list
	name         text NOT NULL CHECK (name GLOB '[a-z0-9]*' AND name NOT GLOB '*[^a-z0-9._-]*' AND length(name) <= 63),
	-- NULL is all groups in a tier's limit, and the owner in a group's own limit,
	-- which would else keep its group from being deleted.
	route_group  text REFERENCES route_groups (name),
	scope        text NOT NULL CHECK (scope IN ('key', 'tenant', 'subject', 'ip')),
	algorithm    text NOT NULL CHECK (algorithm IN ('sliding_window_counter', 'sliding_window_log', 'fixed_window', 'token_bucket', 'leaky_bucket')),
	rate_limit   bigint CHECK (rate_limit BETWEEN 0 AND 9007199254740991), -- NULL is unlimited
	rate_window  bigint NOT NULL CHECK (rate_window BETWEEN 1 AND 31622400), -- seconds
	burst        bigint CHECK (burst BETWEEN 1 AND 9007199254740991), -- NULL means rate_limit
	max_delay_ms bigint NOT NULL DEFAULT 0 CHECK (max_delay_ms BETWEEN 0 AND 60000),
	shadow       boolean NOT NULL CHECK (shadow IN (0, 1)),
	UNIQUE (tier, ordinal),
	UNIQUE (tier, name),
	UNIQUE (owner_group, ordinal),
	UNIQUE (owner_group, name),
	CHECK ((tier IS NULL) <> (owner_group IS NULL)),
	CHECK (owner_group IS NULL OR route_group IS NULL),
	CHECK (name <> 'base'),
	CHECK (burst IS NULL OR (rate_limit IS NOT NULL AND algorithm IN ('token_bucket', 'leaky_bucket'))),
	CHECK (max_delay_ms = 0 OR (rate_limit IS NOT NULL AND algorithm = 'leaky_bucket'))
);
CREATE INDEX limits_route_group ON limits (route_group);

-- The quotas of a tier. Their names are not those of its limits, which is seen to
-- by whoever writes a tier, under the lock of its row.
CREATE TABLE quotas (
	tier        text NOT NULL REFERENCES tiers (name) ON DELETE CASCADE,
	ordinal     integer NOT NULL CHECK (ordinal >= 0), -- place in the list
	name        text NOT NULL CHECK (name GLOB '[a-z0-9]*' AND name NOT GLOB '*[^a-z0-9._-]*' AND length(name) <= 63),
	route_group text REFERENCES route_groups (name), -- NULL is all groups
	scope       text NOT NULL CHECK (scope IN ('key', 'tenant', 'subject', 'ip')),
	quota       bigint CHECK (quota BETWEEN 0 AND 9007199254740991), -- NULL is unlimited
	period      text NOT NULL CHECK (period IN ('day', 'week', 'month', 'year')),
	shadow      boolean NOT NULL CHECK (shadow IN (0, 1)),
	UNIQUE (tier, ordinal),
	UNIQUE (tier, name),
	CHECK (name <> 'base')
);
CREATE INDEX quotas_route_group ON quotas (route_group);

CREATE TABLE tenants (
	id                 text PRIMARY KEY CHECK (id GLOB '[a-z0-9]*' AND id NOT GLOB '*[^a-z0-9._-]*' AND length(id) <= 63),
	name               text NOT NULL CHECK (name <> ''),
	tier               text NOT NULL REFERENCES tiers (name),
	status             text NOT NULL CHECK (status IN ('active', 'suspended')),
	time_zone          text NOT NULL CHECK (time_zone <> ''),
	billing_anchor_day integer NOT NULL CHECK (billing_anchor_day BETWEEN 1 AND 31),
	metadata           text NOT NULL CHECK (json_valid(metadata)),
	version            bigint NOT NULL CHECK (version >= 1),
	created_at         timestamp NOT NULL,
	updated_at         timestamp NOT NULL
);
CREATE INDEX tenants_tier ON tenants (tier);
