INSERT INTO schema_history (version, applied_at) VALUES (5, now());

-- The first answer to each POST that carried an Idempotency-Key.
CREATE TABLE idempotency (
	actor      text COLLATE "C" NOT NULL, -- who asked: keys of two actors never meet
	key        text COLLATE "C" NOT NULL CHECK (key <> ''),
	request    bytea NOT NULL CHECK (length(request) = 32), -- SHA-256 of method, path and body
	status     integer CHECK (status BETWEEN 100 AND 599), -- NULL while the first one is at work
	headers    text CHECK (headers IS NULL OR headers::json IS NOT NULL),
	body       text,
	created_at timestamptz NOT NULL,
	PRIMARY KEY (actor, key),
	CHECK ((status IS NULL) = (headers IS NULL) AND (status IS NULL) = (body IS NULL))
);
CREATE INDEX idempotency_created ON idempotency (created_at);
