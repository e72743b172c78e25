#!/bin/sh
# Like that of the official image: the server runs as the user redis, and is open to other containers.
set -eu
chown -R redis: /data
[ "$1" != redis-server ] || set -- "$@" --protected-mode no
exec setpriv --reuid=redis --regid=redis --init-groups "$@"
