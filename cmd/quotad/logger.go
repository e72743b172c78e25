package main

import (
	"io"
	"log/slog"
)

// newLogger writes what happens to w, as the configuration says.
func newLogger(w io.Writer, config Config) *slog.Logger {
	options := &slog.HandlerOptions{Level: config.LogLevel}
	if config.LogFormat == logText {
		return slog.New(slog.NewTextHandler(w, options))
	}
	return slog.New(slog.NewJSONHandler(w, options))
}
