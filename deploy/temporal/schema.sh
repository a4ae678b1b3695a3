#!/bin/sh
# Brings Temporal's two schemas to the version of this image; may be repeated.
set -eu

for pair in temporal:temporal temporal_visibility:visibility; do
    database=${pair%%:*}
    schema=/etc/temporal/schema/postgresql/v12/${pair##*:}/versioned
    temporal-sql-tool --db "$database" setup-schema -v 0.0
    temporal-sql-tool --db "$database" update-schema -d "$schema"
done
