package testenv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/log"
)

// The images of docker-compose.yml.
const (
	postgresImage = "postgres:17"
	redisImage    = "redis:8"
)

// recipe is a container to be started.
type recipe struct {
	image string
	port  int // where the server listens, in a container with a network of its own
	env   map[string]string
	files map[string]string // path inside the container to content
	cmd   func(port int) []string
	url   func(host string, port int) string
	ready func(ctx context.Context, url string) error
}

func postgresContainer() recipe {
	return recipe{
		image: postgresImage,
		port:  5432,
		env:   map[string]string{"POSTGRES_PASSWORD": "postgres"},
		cmd: func(port int) []string {
			return slices.Concat([]string{"postgres", "-p", strconv.Itoa(port)}, postgresSettings)
		},
		url: func(host string, port int) string {
			return fmt.Sprintf("postgres://postgres:postgres@%s:%d/postgres?sslmode=disable", host, port)
		},
		ready: pingPostgres,
	}
}

// dockerWith reaches the Docker daemon and sees to it that it has the image.
func dockerWith(ctx context.Context, image string) (*testcontainers.DockerProvider, error) {
	if err := prepareTestcontainers(); err != nil {
		return nil, err
	}
	docker, err := testcontainers.NewDockerProvider(testcontainers.WithLogger(log.NewNoopLogger()))
	if err != nil {
		return nil, fmt.Errorf("reach the Docker daemon: %w", err)
	}
	if err := provideImage(ctx, docker.Client(), image); err != nil {
		return nil, errors.Join(err, docker.Close())
	}
	return docker, nil
}

// prepareTestcontainers makes the settings that testcontainers keeps for the whole process, before its first use.
var prepareTestcontainers = sync.OnceValue(func() error {
	log.SetDefault(log.NewNoopLogger()) // its banner would be in every test's output
	if _, err := exec.LookPath("docker"); err != nil || os.Getenv("TESTCONTAINERS_RYUK_DISABLED") != "" {
		return nil
	}
	if err := os.Setenv("TESTCONTAINERS_RYUK_DISABLED", "true"); err != nil {
		return fmt.Errorf("let the keeper do the work of testcontainers' reaper: %w", err)
	}
	return nil
})

// provideImage pulls the image when it is not there.
func provideImage(ctx context.Context, docker client.APIClient, image string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	if _, err := docker.ImageInspect(ctx, image); err == nil {
		return nil
	}
	fmt.Fprintf(os.Stderr, "testenv: pulling %s\n", image)
	pull, err := docker.ImagePull(ctx, image, client.ImagePullOptions{})
	if err == nil {
		err = pull.Wait(ctx)
	}
	if err != nil {
		return fmt.Errorf("pull %s: %w", image, err)
	}
	return nil
}
