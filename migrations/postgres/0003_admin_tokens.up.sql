INSERT INTO schema_history (version, applied_at) VALUES (3, now());

CREATE TABLE admin_tokens (
	id         text COLLATE "C" PRIMARY KEY CHECK (length(id) BETWEEN 1 AND 63),
	name       text NOT NULL CHECK (name <> ''),
	role       text NOT NULL CHECK (role IN ('owner', 'operator', 'viewer', 'service')),
	hash       bytea NOT NULL UNIQUE CHECK (length(hash) = 32), -- SHA-256
	hint       text NOT NULL,
	expires_at timestamptz,
	version    bigint NOT NULL CHECK (version >= 1),
	created_at timestamptz NOT NULL
);
