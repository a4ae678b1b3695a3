#!/bin/sh
# On the first primary, as postgres, once: databases and roles of deploy/postgres/databases.sh, and those of several hosts.
# Reads DATABASE_PASSWORD, ENGINE_DATABASE_PASSWORD, STORE_DATABASE_PASSWORD and REPLICATION_PASSWORD.
set -eu

POSTGRES_USER=postgres sh "$(dirname "$0")/../postgres/databases.sh"
psql --dbname postgres --set ON_ERROR_STOP=1 \
    --set store="$STORE_DATABASE_PASSWORD" --set replication="$REPLICATION_PASSWORD" <<'SQL'
CREATE ROLE seaweedfs LOGIN PASSWORD :'store';
CREATE DATABASE seaweedfs OWNER seaweedfs;
REVOKE CONNECT ON DATABASE seaweedfs FROM PUBLIC;
CREATE ROLE replicator LOGIN REPLICATION PASSWORD :'replication';
SQL
