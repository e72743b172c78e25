DROP TABLE idempotency;
DELETE FROM schema_history WHERE version = 5;
