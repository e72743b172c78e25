package testenv

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"strconv"
	"strings"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
)

// box is a container that was created, with or without a server in it. It is an instance.
type box struct {
	docker    *testcontainers.DockerProvider
	container testcontainers.Container
	keeper    *keeper // nil where there is no docker command: then testcontainers' own reaper has the task
	ready     func(ctx context.Context, url string) error
	url       string
	frozen    bool
}

// startContainer starts r on a fixed free port of the Docker host, so that it keeps its address when it is stopped and
// started, and waits until it is ready. It does not start anything unless the image is there or can be pulled.
func startContainer(ctx context.Context, r recipe) (instance, string, error) {
	var err error
	for range 5 { // somebody else may take a free port before we do
		var b *box
		if b, err = publish(ctx, r); err == nil {
			return b, "a container of " + r.image, nil
		}
		if ctx.Err() != nil || b == nil {
			break
		}
	}
	return nil, "", err
}

func publish(ctx context.Context, r recipe) (*box, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	b, host, err := runContainer(ctx, r.request(r.port), map[int]int{r.port: port})
	if err != nil {
		return b, err
	}
	b.ready = r.ready
	if b.url, err = reachable(ctx, r, host, port); err != nil {
		return b, errors.Join(fmt.Errorf("run a container of %s: %w", r.image, err), b.remove())
	}
	return b, nil
}

// request asks for a container of the recipe whose server listens on port.
func (r recipe) request(port int) testcontainers.ContainerRequest {
	request := testcontainers.ContainerRequest{Image: r.image, Env: r.env, Cmd: r.cmd(port)}
	for path, content := range r.files {
		request.Files = append(request.Files, testcontainers.ContainerFile{
			Reader: strings.NewReader(content), ContainerFilePath: path, FileMode: 0o600,
		})
	}
	return request
}

// runContainer runs a container and returns it with the name of the Docker host, whose ports lead to those of the
// container as ports says (inside to outside). The box is nil where Docker itself is out of reach.
func runContainer(ctx context.Context, request testcontainers.ContainerRequest, ports map[int]int) (*box, string, error) {
	docker, err := dockerWith(ctx, request.Image)
	if err != nil {
		return nil, "", err
	}
	b := &box{docker: docker}
	host, err := docker.DaemonHost(ctx)
	if err != nil {
		return b, "", errors.Join(fmt.Errorf("find the Docker host: %w", err), b.remove())
	}
	request.Name = "quotad-test-" + strings.ToLower(rand.Text())
	if _, err := exec.LookPath("docker"); err == nil {
		// Before the container, by its name: at no moment is there a container that the keeper does not know.
		if b.keeper, err = startKeeper(removeContainer, []string{"DOCKER_HOST=" + docker.Client().DaemonHost()}, request.Name); err != nil {
			return b, "", errors.Join(err, b.remove())
		}
	}
	bindings := network.PortMap{}
	for inside, outside := range ports {
		bind := network.PortBinding{HostPort: strconv.Itoa(outside)}
		if host == "localhost" {
			bind.HostIP = netip.AddrFrom4([4]byte{127, 0, 0, 1})
		}
		port := strconv.Itoa(inside) + "/tcp"
		request.ExposedPorts = append(request.ExposedPorts, port)
		bindings[network.MustParsePort(port)] = []network.PortBinding{bind}
	}
	tune := request.HostConfigModifier
	request.HostConfigModifier = func(c *container.HostConfig) {
		c.PortBindings = bindings
		if tune != nil {
			tune(c)
		}
	}
	if b.container, err = docker.RunContainer(ctx, request); err != nil {
		return b, "", errors.Join(fmt.Errorf("run a container of %s: %w", request.Image, err), b.remove())
	}
	return b, host, nil
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
	var err error
	switch {
	case b.keeper != nil:
		err = b.keeper.close()
	case b.container != nil:
		err = b.container.Terminate(context.Background(), testcontainers.StopTimeout(0))
	}
	return errors.Join(err, b.docker.Close()) // its connections have goroutines, which some tests count
}
