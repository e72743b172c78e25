// Package admin is the admin REST API: what operators say of tiers, tenants,
// route groups, keys and admin tokens, and what was done to them.
package admin
