// Package ratelimit holds the algorithms as pure functions, and the stores that
// run them atomically.
package ratelimit
