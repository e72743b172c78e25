package main

import (
	"os"
	"testing"

	"github.com/redis/go-redis/v9/logging"
)

// asProgram makes the test program be quotad, for tests that need a process of their own.
const asProgram = "QUOTAD_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
	}
	logging.Disable()
	os.Exit(m.Run())
}
