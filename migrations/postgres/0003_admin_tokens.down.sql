DROP TABLE admin_tokens;
DELETE FROM schema_history WHERE version = 3;
