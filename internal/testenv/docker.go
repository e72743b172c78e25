package testenv

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/network"
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
	port  string // of the server inside the container
	env   map[string]string
	cmd   []string
	url   func(host string, port int) string
	ready func(ctx context.Context, url string) error
}

func postgresContainer() recipe {
	return recipe{
		image: postgresImage,
		port:  "5432/tcp",
		env:   map[string]string{"POSTGRES_PASSWORD": "postgres"},
		cmd:   append([]string{"postgres"}, postgresSettings...),
		url: func(host string, port int) string {
			return fmt.Sprintf("postgres://postgres:postgres@%s:%d/postgres?sslmode=disable", host, port)
		},
		ready: pingPostgres,
	}
}

func redisContainer(args ...string) recipe {
	return recipe{
		image: redisImage,
		port:  "6379/tcp",
		cmd:   append(append([]string{"redis-server"}, redisSettings...), args...),
		url:   func(host string, port int) string { return fmt.Sprintf("redis://%s:%d/0", host, port) },
		ready: pingRedis,
	}
}

// box is a container that was started. It is an instance.
type box struct {
	recipe
	docker    *testcontainers.DockerProvider
	container testcontainers.Container
	keeper    *keeper // nil where there is no docker command: then testcontainers' own reaper has the task
	url       string
	frozen    bool
}

// startContainer starts r on a fixed free port of the Docker host, so that it keeps its address when it is stopped and
// started, and waits until it is ready. It does not start anything unless the image is there or can be pulled.
func startContainer(ctx context.Context, r recipe) (instance, string, error) {
	if err := prepareTestcontainers(); err != nil {
		return nil, "", err
	}
	docker, err := testcontainers.NewDockerProvider(testcontainers.WithLogger(log.NewNoopLogger()))
	if err != nil {
		return nil, "", fmt.Errorf("reach the Docker daemon: %w", err)
	}
	if err := provideImage(ctx, docker.Client(), r.image); err != nil {
		return nil, "", errors.Join(err, docker.Close())
	}
	for range 5 { // somebody else may take a free port before we do
		var b *box
		if b, err = runContainer(ctx, docker, r); err == nil {
			return b, "a container of " + r.image, nil
		}
		if ctx.Err() != nil {
			break
		}
	}
	return nil, "", errors.Join(err, docker.Close())
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

func runContainer(ctx context.Context, docker *testcontainers.DockerProvider, r recipe) (*box, error) {
	host, err := docker.DaemonHost(ctx)
	if err != nil {
		return nil, fmt.Errorf("find the Docker host: %w", err)
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	b := &box{recipe: r, docker: docker}
	name := "quotad-test-" + strings.ToLower(rand.Text())
	if _, err := exec.LookPath("docker"); err == nil {
		// Before the container, by its name: at no moment is there a container that the keeper does not know.
		if b.keeper, err = startKeeper(removeContainer, []string{"DOCKER_HOST=" + docker.Client().DaemonHost()}, name); err != nil {
			return nil, err
		}
	}
	b.container, err = docker.RunContainer(ctx, testcontainers.ContainerRequest{
		Name:         name,
		Image:        r.image,
		Env:          r.env,
		Cmd:          r.cmd,
		ExposedPorts: []string{r.port},
		HostConfigModifier: func(c *container.HostConfig) {
			bind := network.PortBinding{HostPort: strconv.Itoa(port)}
			if host == "localhost" {
				bind.HostIP = netip.AddrFrom4([4]byte{127, 0, 0, 1})
			}
			c.PortBindings = network.PortMap{network.MustParsePort(r.port): {bind}}
		},
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("run a container of %s: %w", r.image, err), b.remove())
	}
	if b.url, err = reachable(ctx, r, host, port); err != nil {
		return nil, errors.Join(fmt.Errorf("run a container of %s: %w", r.image, err), b.remove())
	}
	return b, nil
}

// reachable waits until the server answers and returns the URL at which it does. Inside a container testcontainers
// takes the gateway for the Docker host, which is wrong where the daemon runs inside as well.
func reachable(ctx context.Context, r recipe, host string, port int) (string, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	hosts := []string{"127.0.0.1"}
	if host != "localhost" {
		hosts = append(hosts, host)
	}
	type answer struct {
		url string
		err error
	}
	answers := make(chan answer, len(hosts))
	for _, host := range hosts {
		go func() {
			url := r.url(host, port)
			answers <- answer{url, untilReady(ctx, url, r.ready)}
		}()
	}
	var errs []error
	for range hosts {
		a := <-answers
		if a.err == nil {
			return a.url, nil
		}
		errs = append(errs, a.err)
	}
	return "", errors.Join(errs...)
}

func (b *box) address() string { return b.url }

func (b *box) start(ctx context.Context) error {
	if err := b.container.Start(ctx); err != nil {
		return fmt.Errorf("start the container: %w", err)
	}
	return untilReady(ctx, b.url, b.ready)
}

func (b *box) kill(ctx context.Context) error {
	if b.frozen { // not every daemon can kill a paused container
		if err := b.resume(ctx); err != nil {
			return err
		}
	}
	wait := b.docker.Client().ContainerWait(ctx, b.container.GetContainerID(), client.ContainerWaitOptions{Condition: container.WaitConditionNextExit})
	if _, err := b.docker.Client().ContainerKill(ctx, b.container.GetContainerID(), client.ContainerKillOptions{Signal: "KILL"}); err != nil {
		return fmt.Errorf("kill the container: %w", err)
	}
	select {
	case <-wait.Result:
		return nil
	case err := <-wait.Error:
		return fmt.Errorf("wait for the killed container: %w", err)
	}
}

func (b *box) freeze(ctx context.Context) error {
	if _, err := b.docker.Client().ContainerPause(ctx, b.container.GetContainerID(), client.ContainerPauseOptions{}); err != nil {
		return fmt.Errorf("pause the container: %w", err)
	}
	b.frozen = true
	return nil
}

func (b *box) resume(ctx context.Context) error {
	if _, err := b.docker.Client().ContainerUnpause(ctx, b.container.GetContainerID(), client.ContainerUnpauseOptions{}); err != nil {
		return fmt.Errorf("unpause the container: %w", err)
	}
	b.frozen = false
	return nil
}

func (b *box) remove() error {
	if b.keeper != nil {
		return b.keeper.close()
	}
	if b.container == nil {
		return nil
	}
	return b.container.Terminate(context.Background(), testcontainers.StopTimeout(0))
}
