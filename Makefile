# Needs Go. `make test` also needs Docker, or postgresql, redis-server, nginx, caddy and haproxy, which root on Debian gets
# installed.
# test, race and bench take PACKAGES='./internal/quota ./internal/tiers'.

VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
SERVERS := go run ./internal/testenv/withservers --
PACKAGES := ./...

.DEFAULT_GOAL := help
.PHONY: help run test race lint bench build docker smoke traefik

help: ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: build ## build and run quotad with a demo tenant and key, with no configuration
	bin/quotad serve --demo

test: ## run all tests on real Postgres and Redis servers
	$(SERVERS) go test -timeout 40m $(PACKAGES)

race: ## run all tests with the race detector
	$(SERVERS) go test -race -timeout 40m $(PACKAGES)

lint: ## check formatting, go vet and staticcheck
	@unformatted=$$(gofmt -l .); test -z "$$unformatted" || { echo "gofmt would change:"; echo "$$unformatted"; exit 1; }
	go vet ./...
	go tool staticcheck ./...

bench: ## run all benchmarks
	$(SERVERS) go test -run '^$$' -bench . -benchmem $(PACKAGES)

build: ## build bin/quotad
	CGO_ENABLED=0 go build -trimpath -ldflags '-X main.version=$(VERSION)' -o bin/quotad ./cmd/quotad

docker: ## build the image quotad
	docker build --build-arg VERSION='$(VERSION)' --tag quotad .

smoke: build ## build quotad, run it, and call it with the line it prints
	scripts/smoke bin/quotad

traefik: ## build Traefik from its module, which takes a while, and test its configuration in deploy/ with it
	program=$$(deploy/traefik/build) && QUOTAD_TEST_TRAEFIK=$$program go test -count=1 -run '(Gateways|QuotadIsAway)/Traefik' ./deploy
