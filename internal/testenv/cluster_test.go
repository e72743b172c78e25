package testenv

import (
	"testing"

	"github.com/redis/go-redis/v9"
)

func TestOwnRedisClusterServesAllSlots(t *testing.T) {
	c := OwnRedisCluster(t)
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs(), DialTimeout: Patience, ReadTimeout: Patience})
	defer client.Close()
	for _, key := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		if err := client.Set(t.Context(), key, key, 0).Err(); err != nil {
			t.Errorf("set %s: %v", key, err)
		}
	}
}

func TestOwnRedisSentinelsKnowTheMaster(t *testing.T) {
	s := OwnRedisSentinels(t)
	client := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: SentinelMaster, SentinelAddrs: s.Addrs(), DialTimeout: Patience, ReadTimeout: Patience})
	defer client.Close()
	if err := client.Set(t.Context(), "a", "b", 0).Err(); err != nil {
		t.Error(err)
	}
}
