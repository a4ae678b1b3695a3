#!/bin/sh
# Runs once, when the cluster is laid out: one role and its databases for Haulage, one for Temporal.
set -eu

psql --username "$POSTGRES_USER" --dbname postgres --set ON_ERROR_STOP=1 \
    --set haulage="$DATABASE_PASSWORD" --set engine="$ENGINE_DATABASE_PASSWORD" <<'SQL'
CREATE ROLE haulage LOGIN PASSWORD :'haulage';
CREATE DATABASE haulage OWNER haulage;
CREATE ROLE temporal LOGIN PASSWORD :'engine';
CREATE DATABASE temporal OWNER temporal;
CREATE DATABASE temporal_visibility OWNER temporal;
REVOKE CONNECT ON DATABASE haulage, temporal, temporal_visibility FROM PUBLIC;
SQL
