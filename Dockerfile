FROM golang:1.26 AS build
WORKDIR /src
# Predefined variables of the go command, for builds behind a proxy: --build-arg GOPROXY=…
ARG GOPROXY
ARG GOFLAGS
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=dev
RUN CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X main.version=$VERSION" -o /out/quotad ./cmd/quotad
# Where quotad may write: the default database, and what SQLite puts aside.
RUN mkdir -p /out/owned/quotad-data /out/owned/tmp

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /out/quotad /quotad
COPY --from=build --chown=65532:65532 /out/owned/ /
USER 65532:65532
VOLUME /quotad-data
# The metered API, and the admin API once QUOTAD_ADMIN_LISTEN lets it out of the container.
EXPOSE 8080 8081
ENTRYPOINT ["/quotad"]
CMD ["serve"]
