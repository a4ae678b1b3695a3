#!/bin/sh
# On a host whose PostgreSQL is stopped, as postgres: copies the primary that has the address `database` and makes this host
# its standby. A former primary joins in the same way: what only it had was never acknowledged, and is gone.
# Until the copy is whole the data of before stay, so that the disk has to hold both.
# Reads REPLICATION_PASSWORD.
set -eu

data=/var/lib/postgresql/haulage
if /usr/lib/postgresql/15/bin/pg_ctl status --pgdata "$data" >/dev/null 2>&1; then
    echo "PostgreSQL runs on $data: stop it first. Is this host the primary?" >&2
    exit 1
fi
rm -rf "$data.new"
export PGPASSWORD="$REPLICATION_PASSWORD" PGSSLROOTCERT=/etc/haulage/tls/ca.pem PGCONNECT_TIMEOUT=5
pg_basebackup --pgdata "$data.new" --checkpoint fast --wal-method stream --write-recovery-conf \
    --dbname "host=database user=replicator sslmode=verify-full"
chmod 700 "$data.new"
rm -rf "$data"
mv "$data.new" "$data"
