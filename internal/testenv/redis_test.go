package testenv

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
)

func TestRedisDeletesTheTestsKeysAndNoOthers(t *testing.T) {
	t.Parallel()
	url, prefix := Redis(t)
	client := dial(t, url)
	var theirs string
	t.Run("user", func(t *testing.T) {
		_, theirs = Redis(t)
		for _, key := range []string{prefix + "mine", theirs + "a", "{" + theirs + "tag}b"} {
			if err := client.Set(t.Context(), key, 1, 0).Err(); err != nil {
				t.Fatal(err)
			}
		}
	})
	left := slices.Concat(keys(t, client, prefix), keys(t, client, theirs))
	if diff := cmp.Diff([]string{prefix + "mine"}, left); diff != "" {
		t.Errorf("keys left after the other test (-want +got):\n%s", diff)
	}
}

func keys(t *testing.T, client *redis.Client, prefix string) []string {
	t.Helper()
	found, err := client.Keys(t.Context(), "*"+prefix+"*").Result()
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func dial(t *testing.T, url string) *redis.Client {
	t.Helper()
	client, err := redisClient(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}
