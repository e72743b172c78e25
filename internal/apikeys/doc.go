// Package apikeys keeps API keys: it makes, finds, edits, rotates and revokes them.
package apikeys
