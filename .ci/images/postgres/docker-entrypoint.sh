#!/bin/sh
# Honours the variables of the official image: POSTGRES_USER, POSTGRES_PASSWORD, POSTGRES_DB.
set -eu

as_postgres() {
	setpriv --reuid=postgres --regid=postgres --init-groups "$@"
}

user=${POSTGRES_USER:-postgres}
mkdir -p "$PGDATA"
chown postgres: "$PGDATA"
chmod 700 "$PGDATA"
if [ ! -s "$PGDATA/PG_VERSION" ]; then
	: "${POSTGRES_PASSWORD:?must be set for a new database}"
	file=$(as_postgres mktemp)
	printf '%s\n' "$POSTGRES_PASSWORD" >"$file"
	as_postgres initdb --username="$user" --pwfile="$file" --auth-local=trust --auth-host=scram-sha-256 --encoding=UTF8 --locale=C.UTF-8
	rm "$file"
	echo 'host all all all scram-sha-256' >>"$PGDATA/pg_hba.conf"
	if [ "${POSTGRES_DB:-$user}" != postgres ]; then
		as_postgres pg_ctl --wait --options="-c listen_addresses=''" start
		as_postgres createdb --username="$user" --maintenance-db=postgres "${POSTGRES_DB:-$user}"
		as_postgres pg_ctl --wait stop
	fi
fi
[ "$1" != postgres ] || { shift && set -- postgres -c 'listen_addresses=*' "$@"; }
exec setpriv --reuid=postgres --regid=postgres --init-groups "$@"
