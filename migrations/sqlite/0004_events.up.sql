INSERT INTO schema_history (version, applied_at) VALUES (4, strftime('%Y-%m-%d %H:%M:%f+00:00', 'now'));

-- One row for each successful write, in the transaction of that write. Rows are
-- never changed, so nothing in them refers to other tables.
CREATE TABLE events (
	id         integer PRIMARY KEY AUTOINCREMENT,
	at         timestamp NOT NULL,
	action     text NOT NULL CHECK (action <> ''),
	actor_type text NOT NULL CHECK (actor_type IN ('admin_token', 'command', 'system')),
	actor_id   text NOT NULL,
	actor_name text NOT NULL,
	request_id text NOT NULL,
	address    text NOT NULL,
	resource   text NOT NULL CHECK (resource <> ''),
	target     text NOT NULL CHECK (target <> ''),
	tenant     text NOT NULL, -- '' where there is none
	version    bigint NOT NULL CHECK (version >= 1), -- of the resource after the write
	before     text CHECK (json_valid(before)), -- NULL on creation
	after      text CHECK (json_valid(after)) -- NULL on deletion
);
CREATE INDEX events_at ON events (at);
CREATE INDEX events_tenant ON events (tenant, id);
CREATE INDEX events_target ON events (resource, target, id);

CREATE TRIGGER events_never_change BEFORE UPDATE ON events
BEGIN
	SELECT RAISE(ABORT, 'events are never changed');
END;
