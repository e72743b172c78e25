DROP TABLE key_secrets;
DROP TABLE key_route_groups;
DROP TABLE keys;
DELETE FROM schema_history WHERE version = 2;
