package testenv

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/moby/moby/api/types/container"
	"github.com/testcontainers/testcontainers-go"
)

// pod is a group of servers that tell clients each other's addresses, and so must reach one another where the test
// reaches them: at 127.0.0.1. Processes of this machine do that by nature. Containers share the network of one more
// that only holds it, and has the same ports inside as outside.
type pod struct {
	t      testing.TB
	size   int   // how many servers it will have
	holder *box  // nil as long as no container is in it
	ports  []int // the holder's that no server has yet
}

// own starts one more server of the pod.
func (p *pod) own(name string, r redisServer) *Server {
	p.t.Helper()
	ways := r.ways()
	ways["docker"] = r.contained(p.start)
	return own(p.t, name, ways)
}

func (p *pod) start(ctx context.Context, r recipe) (instance, string, error) {
	if p.holder == nil {
		if err := p.hold(ctx, r.image); err != nil {
			return nil, "", err
		}
	}
	if len(p.ports) == 0 {
		return nil, "", fmt.Errorf("the pod has its %d servers", p.size)
	}
	port := p.ports[0]
	p.ports = p.ports[1:]
	request := r.request(port)
	request.HostConfigModifier = func(c *container.HostConfig) {
		c.NetworkMode = container.NetworkMode("container:" + p.holder.container.GetContainerID())
	}
	b, _, err := runContainer(ctx, request, nil)
	if err != nil {
		return nil, "", err
	}
	b.ready, b.url = r.ready, r.url("127.0.0.1", port)
	if err := untilReady(ctx, b.url, b.ready); err != nil {
		return nil, "", errors.Join(fmt.Errorf("run a container of %s: %w", r.image, err), b.remove())
	}
	return b, "a container of " + r.image, nil
}

// hold runs the container that holds the network.
func (p *pod) hold(ctx context.Context, image string) error {
	request := testcontainers.ContainerRequest{Image: image, Cmd: []string{"sleep", "infinity"}}
	var err error
	for range 5 { // somebody else may take a free port before we do
		ports := map[int]int{}
		for len(ports) < p.size {
			port, err := freePort()
			if err != nil {
				return err
			}
			ports[port] = port
		}
		var b *box
		if b, _, err = runContainer(ctx, request, ports); err == nil {
			p.holder, p.ports = b, slices.Collect(maps.Keys(ports))
			p.t.Cleanup(func() {
				if err := b.remove(); err != nil {
					p.t.Errorf("testenv: remove the container that holds a pod: %v", err)
				}
			})
			return nil
		}
		if b == nil {
			break
		}
	}
	return err
}
