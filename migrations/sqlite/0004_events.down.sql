DROP TABLE events;
DELETE FROM schema_history WHERE version = 4;
