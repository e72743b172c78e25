DROP TABLE events;
DROP FUNCTION events_never_change();
DELETE FROM schema_history WHERE version = 4;
