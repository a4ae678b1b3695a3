#!/bin/sh
# On a standby, as root, when the primary is lost: makes this host the primary and takes the address `database`.
# First make sure that the old primary is off, or cannot be reached: two that take writes would part.
# Choose the standby that has most: psql -c 'SELECT pg_last_wal_receive_lsn()' on both.
set -eu

address=$(getent hosts database | cut -d ' ' -f 1)
setpriv --reuid=postgres --regid=postgres --clear-groups \
    /usr/lib/postgresql/15/bin/pg_ctl promote --pgdata /var/lib/postgresql/haulage --wait --silent
ip address add "$address/24" dev eth0
# Neighbours remember the old host for a minute otherwise.
arping -q -c 2 -A -I eth0 "$address"
