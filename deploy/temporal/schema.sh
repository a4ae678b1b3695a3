#!/bin/sh
# Brings Temporal's two schemas to the version of this tool, which carries them; may be repeated.
set -eu

for pair in temporal:temporal temporal_visibility:visibility; do
    database=${pair%%:*}
    schema=postgresql/v12/${pair##*:}
    temporal-sql-tool --db "$database" setup-schema -v 0.0
    temporal-sql-tool --db "$database" update-schema --schema-name "$schema"
done
