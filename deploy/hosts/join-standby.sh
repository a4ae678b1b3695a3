#!/bin/sh
# On a host whose PostgreSQL is stopped, as postgres: copies the primary that has the address `database` and makes this host
# its standby. A former primary joins in the same way: what only it had was never acknowledged, and is gone.
# Reads REPLICATION_PASSWORD.
set -eu

data=/var/lib/postgresql/haulage
rm -rf "$data"
export PGPASSWORD="$REPLICATION_PASSWORD" PGSSLROOTCERT=/etc/haulage/tls/ca.pem PGCONNECT_TIMEOUT=5
pg_basebackup --pgdata "$data" --checkpoint fast --wal-method stream --write-recovery-conf \
    --dbname "host=database user=replicator sslmode=verify-full"
chmod 700 "$data"
