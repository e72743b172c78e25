package database

import (
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	_ "modernc.org/sqlite" // the driver "sqlite"
)

// busyTimeout is how long a statement waits for a writer in another process.
const busyTimeout = 3 * time.Second

func (db *DB) openSQLite(address string, o Options) error {
	path, err := sqlitePath(address)
	if err != nil {
		return err
	}
	if err := makeFile(path); err != nil {
		return err
	}
	db.write, err = sql.Open("sqlite", sqliteDSN(path, "_txlock=immediate"))
	if err != nil {
		return fmt.Errorf("open sqlite: %w", err)
	}
	// One writer at a time: whoever waits, waits here, in order, and never meets "database is locked".
	db.write.SetMaxOpenConns(1)
	db.read, err = sql.Open("sqlite", sqliteDSN(path, "_query_only=1"))
	if err != nil {
		return errors.Join(fmt.Errorf("open sqlite: %w", err), db.write.Close())
	}
	readers := o.MaxConns
	if readers <= 0 {
		readers = defaultReaders
	}
	db.read.SetMaxOpenConns(readers)
	db.read.SetMaxIdleConns(readers)
	return nil
}

func directSQLite(address string) (*sql.DB, error) {
	path, err := sqlitePath(address)
	if err != nil {
		return nil, err
	}
	if err := makeFile(path); err != nil {
		return nil, err
	}
	return sql.Open("sqlite", sqliteDSN(path))
}

// SQLiteExists reports whether the file of a sqlite:// address is there.
func SQLiteExists(address string) (bool, error) {
	path, err := sqlitePath(address)
	if err != nil {
		return false, err
	}
	_, err = os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// sqlitePath is the absolute path of the file that an address names.
func sqlitePath(address string) (string, error) {
	path := strings.TrimPrefix(address, "sqlite://")
	switch {
	case path == "" || strings.HasSuffix(path, "/"):
		return "", errors.New("a sqlite:// address must name a file")
	case strings.HasPrefix(path, ":memory:"):
		return "", errors.New("a sqlite:// address must name a file: a database in memory would be another one on each connection")
	case strings.ContainsAny(path, "?#"):
		return "", errors.New("a sqlite:// address takes no parameters")
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("find the sqlite file: %w", err)
	}
	return abs, nil
}

// makeFile makes the file, empty, for its owner alone, unless it exists; SQLite gives the files beside it the same mode.
// A file that exists is not opened: closing it would give up the locks that this process may hold on it.
func makeFile(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("make the directory of the sqlite file: %w", err)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("make the sqlite file: %w", err)
	}
	return f.Close()
}

// sqliteDSN is the driver's name for the file. Times are kept as text in UTC whose order is that of the times.
func sqliteDSN(path string, more ...string) string {
	params := append([]string{
		"_busy_timeout=" + strconv.Itoa(int(busyTimeout.Milliseconds())),
		"_journal_mode=WAL",
		"_synchronous=FULL",
		"_foreign_keys=1",
		"_time_format=sqlite",
		"_timezone=UTC",
	}, more...)
	return "file://" + (&url.URL{Path: filepath.ToSlash(path)}).EscapedPath() + "?" + strings.Join(params, "&")
}
