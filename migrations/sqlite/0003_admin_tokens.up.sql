INSERT INTO schema_history (version, applied_at) VALUES (3, strftime('%Y-%m-%d %H:%M:%f+00:00', 'now'));

CREATE TABLE admin_tokens (
	id         text PRIMARY KEY CHECK (length(id) BETWEEN 1 AND 63),
	name       text NOT NULL CHECK (name <> ''),
	role       text NOT NULL CHECK (role IN ('owner', 'operator', 'viewer', 'service')),
	hash       blob NOT NULL UNIQUE CHECK (length(hash) = 32), -- SHA-256
	hint       text NOT NULL,
	expires_at timestamp,
	version    bigint NOT NULL CHECK (version >= 1),
	created_at timestamp NOT NULL
);
