INSERT INTO schema_history (version, applied_at) VALUES (2, now());

CREATE TABLE keys (
	id               text COLLATE "C" PRIMARY KEY CHECK (length(id) BETWEEN 1 AND 63),
	-- A tenant can't be deleted while it has keys: its store deletes the revoked
	-- ones with it, and any other one keeps it.
	tenant           text COLLATE "C" NOT NULL REFERENCES tenants (id),
	name             text NOT NULL,
	rate_limit       bigint CHECK (rate_limit BETWEEN 0 AND 9007199254740991),
	rate_window      bigint CHECK (rate_window BETWEEN 1 AND 31622400), -- seconds
	all_route_groups boolean NOT NULL, -- else those of key_route_groups
	allowed_cidrs    text NOT NULL CHECK (allowed_cidrs::json IS NOT NULL), -- JSON list; empty admits all addresses
	expires_at       timestamptz,
	status           text NOT NULL CHECK (status IN ('active', 'disabled', 'revoked')),
	version          bigint NOT NULL CHECK (version >= 1),
	created_at       timestamptz NOT NULL,
	updated_at       timestamptz NOT NULL,
	last_used_at     timestamptz,
	CHECK ((rate_limit IS NULL) = (rate_window IS NULL))
);
CREATE INDEX keys_tenant ON keys (tenant, id);

CREATE TABLE key_route_groups (
	key_id      text COLLATE "C" NOT NULL REFERENCES keys (id) ON DELETE CASCADE,
	ordinal     integer NOT NULL CHECK (ordinal >= 0), -- place in the list
	route_group text COLLATE "C" NOT NULL REFERENCES route_groups (name),
	PRIMARY KEY (key_id, ordinal),
	UNIQUE (key_id, route_group)
);
CREATE INDEX key_route_groups_route_group ON key_route_groups (route_group);

-- The secrets of a key: SHA-256 only. The one without an end is the current one.
CREATE TABLE key_secrets (
	hash       bytea PRIMARY KEY NOT NULL CHECK (length(hash) = 32),
	key_id     text COLLATE "C" NOT NULL REFERENCES keys (id) ON DELETE CASCADE,
	hint       text NOT NULL,
	created_at timestamptz NOT NULL,
	expires_at timestamptz
);
CREATE INDEX key_secrets_key ON key_secrets (key_id);
CREATE UNIQUE INDEX key_secrets_current ON key_secrets (key_id) WHERE expires_at IS NULL;
