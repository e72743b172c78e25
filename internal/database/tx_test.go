package database_test

import (
	"testing"

	"github.com/quotad/quotad/internal/database"
	"github.com/quotad/quotad/internal/database/databasetest"
)

func TestPing(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		if err := db.Ping(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}
