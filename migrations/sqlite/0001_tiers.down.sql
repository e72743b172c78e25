DROP TABLE tenants;
DROP TABLE quotas;
DROP TABLE limits;
DROP TABLE route_groups;
DROP TABLE tiers;
DROP TABLE locks;
DROP TABLE schema_history;
