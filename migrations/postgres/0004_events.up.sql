INSERT INTO schema_history (version, applied_at) VALUES (4, now());

-- One row for each successful write, in the transaction of that write. Rows are
-- never changed, so nothing in them refers to other tables.
CREATE TABLE events (
	id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	at         timestamptz NOT NULL,
	action     text NOT NULL CHECK (action <> ''),
	actor_type text NOT NULL CHECK (actor_type IN ('admin_token', 'command', 'system')),
	actor_id   text NOT NULL,
	actor_name text NOT NULL,
	request_id text NOT NULL,
	address    text NOT NULL,
	resource   text NOT NULL CHECK (resource <> ''),
	target     text COLLATE "C" NOT NULL CHECK (target <> ''),
	tenant     text COLLATE "C" NOT NULL, -- '' where there is none
	version    bigint NOT NULL CHECK (version >= 1), -- of the resource after the write
	before     text CHECK (before IS NULL OR before::json IS NOT NULL), -- NULL on creation
	after      text CHECK (after IS NULL OR after::json IS NOT NULL) -- NULL on deletion
);
CREATE INDEX events_at ON events (at);
CREATE INDEX events_tenant ON events (tenant, id);
CREATE INDEX events_target ON events (resource, target, id);

CREATE FUNCTION events_never_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	RAISE EXCEPTION 'events are never changed' USING ERRCODE = 'check_violation';
END $$;
CREATE TRIGGER events_never_change BEFORE UPDATE ON events
	FOR EACH ROW EXECUTE FUNCTION events_never_change();
